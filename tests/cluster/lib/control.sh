# shellcheck shell=bash
# The control plane: certificates, kubeconfigs, etcd, kube-apiserver and its companions, on the bridge's address.

# --- identities -----------------------------------------------------------------------------------------------------

certificate() { # NAME SUBJECT EXTENSIONS
  openssl ecparam -name prime256v1 -genkey -noout -out "$pki/$1.key"
  openssl req -new -key "$pki/$1.key" -subj "$2" 2>/dev/null |
    openssl x509 -req -CA "$pki/ca.crt" -CAkey "$pki/ca.key" -CAcreateserial -days 3650 \
      -extfile <(printf '%s\n' "$3") -out "$pki/$1.crt" 2>/dev/null
}

make_pki() {
  local client=$'keyUsage=digitalSignature\nextendedKeyUsage=clientAuth' node names
  names=DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local
  names+=,IP:127.0.0.1,IP:10.96.0.1,IP:$bridge_ip
  mkdir -p "$pki"
  openssl ecparam -name prime256v1 -genkey -noout -out "$pki/ca.key"
  openssl req -x509 -new -key "$pki/ca.key" -days 3650 -subj "/CN=nymph test cluster $name" -out "$pki/ca.crt"
  openssl ecparam -name prime256v1 -genkey -noout -out "$pki/sa.key"
  openssl ec -in "$pki/sa.key" -pubout -out "$pki/sa.pub" 2>/dev/null
  certificate apiserver /CN=kube-apiserver $'keyUsage=digitalSignature\nextendedKeyUsage=serverAuth\nsubjectAltName='"$names"
  certificate admin /O=system:masters/CN=admin "$client"
  certificate kubelet-client /O=system:masters/CN=apiserver-kubelet "$client"
  certificate proxy /CN=system:kube-proxy "$client"
  for node in $(node_names); do certificate "$node" "/O=system:nodes/CN=system:node:$node" "$client"; done
}

# write_kubeconfig IDENTITY SERVER FILE: complete in itself, so that it may be copied anywhere.
write_kubeconfig() {
  local file=$3
  cat >"$file.part" <<Y
apiVersion: v1
kind: Config
clusters:
- name: $name
  cluster:
    server: $2
    certificate-authority-data: $(base64 -w 0 "$pki/ca.crt")
users:
- name: $1
  user:
    client-certificate-data: $(base64 -w 0 "$pki/$1.crt")
    client-key-data: $(base64 -w 0 "$pki/$1.key")
contexts:
- name: $name
  context: {cluster: $name, user: $1}
current-context: $name
Y
  chmod 600 "$file.part"
  mv "$file.part" "$file"
}

kubeconfig_of() { echo "$run/kubeconfig/$1"; }

# --- talking to it --------------------------------------------------------------------------------------------------

# get PATH: the API server's answer, by curl, which starts ten times faster than kubectl.
get() { inside curl -fs --max-time 10 --cacert "$pki/ca.crt" --cert "$pki/admin.crt" --key "$pki/admin.key" "$api$1"; }

apiserver_live() { get /livez >/dev/null; }

# The same, while booting: a server that has died will not come.
apiserver_comes() {
  alive "$run/pid/etcd" || die "etcd has ended: $(tail -n 3 "$run/log/etcd.log")"
  alive "$run/pid/apiserver" || die "kube-apiserver has ended: $(tail -n 3 "$run/log/apiserver.log")"
  apiserver_live
}

has_default_account() { get /api/v1/namespaces/default/serviceaccounts/default >/dev/null; }

ready_nodes() { get '/api/v1/nodes?pretty=true' | grep -A 1 '"type": "Ready"' | grep -c '"status": "True"'; }

all_nodes_ready() { [ "$(ready_nodes)" = "$(cat "$run/nodes")" ]; }

kubectl_admin() { KUBECONFIG=$(kubeconfig_of admin) inside "$bin/kubectl" "$@"; }

# --- processes ------------------------------------------------------------------------------------------------------

make_network() {
  touch "$netns"
  unshare --net="$netns" true
  inside ip link set lo up
  inside ip link add kbr0 type bridge
  inside ip addr add "$bridge_ip/24" dev kbr0
  inside ip link set kbr0 up
  inside ip route add 10.96.0.0/16 dev kbr0 src "$bridge_ip" # Services, which kube-proxy turns into Pods
}

start_etcd() {
  local peer=http://127.0.0.1:2380 client=http://127.0.0.1:2379
  start_inside etcd "$bin/etcd" --name e --data-dir "$run/etcd" --unsafe-no-fsync --log-level warn \
    --listen-client-urls $client --advertise-client-urls $client \
    --listen-peer-urls $peer --initial-advertise-peer-urls $peer --initial-cluster e=$peer
}

start_apiserver() {
  start_inside apiserver "$bin/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 \
    --bind-address=0.0.0.0 --advertise-address="$bridge_ip" --secure-port=6443 \
    --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" --client-ca-file="$pki/ca.crt" \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged=true \
    --service-cluster-ip-range=10.96.0.0/16 --service-account-issuer=https://kubernetes.default.svc \
    --service-account-signing-key-file="$pki/sa.key" --service-account-key-file="$pki/sa.pub" \
    --kubelet-client-certificate="$pki/kubelet-client.crt" --kubelet-client-key="$pki/kubelet-client.key" \
    --kubelet-preferred-address-types=InternalIP \
    --audit-policy-file="$here/audit.yaml" --audit-log-path="$run/log/audit.log" --audit-log-maxsize=1024
}

# verb_apiserver stop|start: an outage of the API server alone; etcd keeps what it has, nodes and their Pods run on.
verb_apiserver() {
  require_up
  lock_cluster
  case ${1:-} in
    stop)
      alive "$run/pid/apiserver" || return 0
      kill "$(cat "$run/pid/apiserver")"
      wait_for 60 "kube-apiserver to end" not_alive "$run/pid/apiserver" ;;
    start)
      alive "$run/pid/apiserver" || start_apiserver
      wait_for 90 "kube-apiserver" apiserver_comes ;;
    *) die "apiserver wants stop or start, not '${1:-}'" ;;
  esac
}

not_alive() { ! alive "$1"; }

# verb_compact: makes etcd forget every revision but the newest, so that no watch can go on from where it was.
verb_compact() {
  local etcd=http://127.0.0.1:2379/v3/kv revision
  require_up
  revision=$(inside curl -fs "$etcd/range" -d '{"key":"AA=="}' | sed -n 's/.*"revision":"\([0-9]*\)".*/\1/p')
  [ -n "$revision" ] || die "etcd does not say its revision"
  inside curl -fs "$etcd/compaction" -d "{\"revision\":\"$revision\",\"physical\":true}" >/dev/null || die "etcd does not compact"
}

start_controllers() { # one service account for all its controllers and a high rate, else the first ServiceAccount takes 15 s
  start_inside controller-manager "$bin/kube-controller-manager" \
    --kubeconfig="$(kubeconfig_of admin)" --authentication-kubeconfig="$(kubeconfig_of admin)" \
    --authorization-kubeconfig="$(kubeconfig_of admin)" --leader-elect=false --bind-address=127.0.0.1 \
    --use-service-account-credentials=false --service-account-private-key-file="$pki/sa.key" --root-ca-file="$pki/ca.crt" \
    --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key" \
    --kube-api-qps=500 --kube-api-burst=1000 --allocate-node-cidrs=false \
    --node-monitor-period=1s --node-monitor-grace-period=8s # a lost node shows in 10 s, not in 45
}

start_scheduler() {
  start_inside scheduler "$bin/kube-scheduler" --kubeconfig="$(kubeconfig_of admin)" \
    --authentication-kubeconfig="$(kubeconfig_of admin)" --authorization-kubeconfig="$(kubeconfig_of admin)" \
    --leader-elect=false --bind-address=127.0.0.1
}

# The conntrack flags at 0 keep it from writing sysctls of the whole machine.
proxy_flags="--proxy-mode=iptables --cluster-cidr=10.244.0.0/16 --conntrack-max-per-core=0 --conntrack-min=0
--conntrack-tcp-timeout-established=0s --conntrack-tcp-timeout-close-wait=0s
--healthz-bind-address=127.0.0.1:10256 --metrics-bind-address=127.0.0.1:10249"

# Services are reachable from the control plane's side too (webhooks, `cluster exec`, relays). kube-proxy wants to be a node;
# it lends node1's name and writes nothing to the API.
start_proxy() {
  # shellcheck disable=SC2086 # a list of flags
  XTABLES_LOCKFILE=$run/xtables.lock start_inside proxy "$bin/kube-proxy" --kubeconfig="$(kubeconfig_of proxy)" --hostname-override=node1 $proxy_flags
}

# Cluster DNS on the bridge's address, outside any Pod; kubelet names it to Pods. Names outside the cluster fail at once.
start_dns() {
  cat >"$run/Corefile" <<C
.:53 {
  bind $bridge_ip
  errors
  ready 127.0.0.1:8181
  kubernetes cluster.local in-addr.arpa {
    kubeconfig $(kubeconfig_of admin)
  }
}
C
  start_inside coredns "$bin/coredns" -conf "$run/Corefile"
}
