# shellcheck shell=bash disable=SC2154 # variables in lower case are set by deploy/demo
# Which Kubernetes the demo runs on: one of its own (tests/cluster), or one that the person has.
#
# Sets: kubeconfig, context (empty in the cluster of its own), bin (folder for the person's PATH), lakeshore_port.

link_program() { ln -sfn "$(readlink -f "$1")" "$bin/$2"; }

kube() { "$bin/kubectl" --kubeconfig "$kubeconfig" ${context:+--context "$context"} "$@"; }

helm_here() { "$bin/helm" --kubeconfig "$kubeconfig" ${context:+--kube-context "$context"} "$@"; }

port_answers() { (: >"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# --- a cluster of its own -------------------------------------------------------------------------------------------

own_cluster() { "$root/tests/cluster/cluster" --name "$name" "$@" 6>&-; }

own_needs() {
  [ "$(uname -s)" = Linux ] || die "the demo's own cluster runs on Linux; elsewhere give it one: deploy/demo --context kind-NAME (or minikube, k3d-NAME), or --kubeconfig FILE"
  [ "$(id -u)" = 0 ] || die "the demo's own cluster wants root, for namespaces and mounts: run it as root, or give it a cluster: deploy/demo --kubeconfig FILE"
}

own_build() {
  own_cluster build
  link_program "$(own_cluster bin)/kubectl" kubectl
  link_program "$(own_cluster bin)/helm" helm
}

own_up() {
  own_cluster up --nodes 2
  # The API server answers inside of the cluster's network; the person's own shell gets it on a port of loopback.
  relay_on_free_port 16443 api_relay
}

# relay_on_free_port FIRST COMMAND: calls it with a port, the one of the last run if it can be had.
relay_on_free_port() {
  local file=$state/port-$2 port tried
  for tried in $(cat "$file" 2>/dev/null || true) $(seq "$1" $(($1 + 30))); do
    if "$2" "$tried" >"$work/relay" 2>&1; then
      echo "$tried" >"$file"
      port=$tried
      break
    fi
    grep -q 'taken by another program\|is relayed to' "$work/relay" || { cat "$work/relay"; return 1; }
  done
  [ -n "${port:-}" ] || die "none of the ports from $1 on is free"
  echo "127.0.0.1:$port leads to the ${2%_relay}"
}

api_relay() {
  local file
  file=$(own_cluster kubeconfig --loopback "$1") || return 1
  install -m 600 "$file" "$kubeconfig"
}

lakeshore_relay() { own_cluster relay "$1" "$lakeshore_ip:80"; }

own_load() {
  local key
  key="$(kube get namespace kube-system -o 'jsonpath={.metadata.uid}') $(image_key nymph) $(image_key lakeshore)"
  if [ "$key" = "$(cat "$state/loaded" 2>/dev/null || true)" ]; then
    echo "both nodes have them already"
    return 0
  fi
  own_cluster load "$("$here/image" tar nymph)" "$("$here/image" tar lakeshore)"
  echo "$key" >"$state/loaded"
  echo "both nodes have them now"
}

own_reach() {
  lakeshore_ip=$(kube get service lakeshore -n lakeshore -o 'jsonpath={.spec.clusterIP}')
  relay_on_free_port 7420 lakeshore_relay
  lakeshore_port=$(cat "$state/port-lakeshore_relay")
}

# own_file INSTANCE NODE FILE prints a file of a workdir as the node has it.
own_file() { own_cluster node exec "$2" cat "/var/lib/nymph/work/nymph-runs/$1/$3"; }

own_down() { own_cluster down; }

# --- a cluster that the person has ----------------------------------------------------------------------------------

given_needs() {
  command -v kubectl >/dev/null || die "kubectl is not on PATH"
  [ -r "$kubeconfig_given" ] || die "the kubeconfig $kubeconfig_given cannot be read"
  [ -n "$context" ] || context=$(kubectl --kubeconfig "$kubeconfig_given" config current-context) ||
    die "$kubeconfig_given has no current context: name one by --context"
}

given_build() {
  link_program "$(command -v kubectl)" kubectl
  if command -v helm >/dev/null; then
    link_program "$(command -v helm)" helm
  else
    "$root/tests/cluster/cluster" build --parts helm
    link_program "$("$root/tests/cluster/cluster" bin)/helm" helm
  fi
}

given_up() {
  # One context alone, with what it refers to inside: it goes on working wherever the person's own file goes.
  (umask 077 && kubectl --kubeconfig "$kubeconfig_given" --context "$context" config view --minify --flatten >"$kubeconfig")
  kube get nodes || die "the cluster of context '$context' does not answer"
}

# given_tool prints the flags of `deploy/image load` for the tool that made the cluster, nothing when it is another.
given_tool() {
  case $context in
    kind-*) echo "--kind ${context#kind-}" ;;
    k3d-*) echo "--k3d ${context#k3d-}" ;;
    minikube) echo "--minikube minikube" ;;
    *)
      if [ -n "$(kube get nodes -l minikube.k8s.io/name="$context" -o name 2>/dev/null)" ]; then echo "--minikube $context"; fi ;;
  esac
}

given_load() {
  local flags
  if [ -n "$registry" ]; then
    "$here/image" push "$registry"
    return
  fi
  if [ -n "$images_loaded" ]; then
    echo "taken as loaded (--images-loaded)"
    return
  fi
  read -ra flags <<<"$(given_tool)"
  if [ "${#flags[@]}" = 0 ]; then
    cat <<H
The context '$context' is none of kind, minikube or k3d, so the images must go through a registry that its nodes can pull from:

    buildah login REGISTRY
    deploy/demo ${demo_options[*]} --registry REGISTRY

which does: deploy/image push REGISTRY, and installs with image.repository=REGISTRY/nymph and REGISTRY/lakeshore. Where the nodes
have the images localhost/nymph:dev and localhost/lakeshore:dev already: deploy/demo ${demo_options[*]} --images-loaded
H
    exit 3
  fi
  "$here/image" load "${flags[@]}"
}

given_reach() {
  local port pid
  port=$(cat "$state/port" 2>/dev/null || true)
  pid=$(cat "$state/port-forward.pid" 2>/dev/null || true)
  # The image may have changed, and with it the Pod that an earlier port-forward led to: always a new one.
  [ -z "$pid" ] || stop_port_forward "$pid"
  for port in $port $(seq 7420 7450); do port_answers "$port" || break; done
  setsid "$bin/kubectl" --kubeconfig "$kubeconfig" --namespace lakeshore port-forward service/lakeshore "$port:80" \
    >"$state/port-forward.log" 2>&1 </dev/null 6>&- &
  echo $! >"$state/port-forward.pid"
  wait_until 20 "the port-forward (its log: $state/port-forward.log)" port_answers "$port"
  echo "$port" >"$state/port"
  # shellcheck disable=SC2034 # read by reach_control_plane
  lakeshore_port=$port
  echo "127.0.0.1:$port leads to the control plane, by kubectl port-forward (the same command renews it)"
}

# stop_port_forward PID: only if that process is still ours.
stop_port_forward() {
  if tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null | grep "port-forward service/lakeshore" >/dev/null; then kill "$1" 2>/dev/null || true; fi
  rm -f "$state/port-forward.pid"
}

# given_file INSTANCE NODE FILE: by a Pod of its own on that node that looks into the workdir.
given_file() {
  local look=demo-look-$1
  kube apply --filename - >/dev/null <<J
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "$look", "namespace": "nymph-runs"}, "spec": {
  "nodeName": "$2", "restartPolicy": "Never", "automountServiceAccountToken": false,
  "volumes": [{"name": "workdir", "hostPath": {"path": "/var/lib/nymph/work/nymph-runs/$1", "type": "Directory"}}],
  "containers": [{"name": "look", "image": "$python_image", "command": ["cat", "/workdir/$3"],
    "volumeMounts": [{"name": "workdir", "mountPath": "/workdir", "readOnly": true}]}]}}
J
  kube wait "pod/$look" --namespace nymph-runs --for 'jsonpath={.status.phase}=Succeeded' --timeout 60s >/dev/null
  kube logs "$look" --namespace nymph-runs
  kube delete pod "$look" --namespace nymph-runs --wait=false >/dev/null
}

given_down() {
  local pid namespace
  pid=$(cat "$state/port-forward.pid" 2>/dev/null || true)
  [ -z "$pid" ] || stop_port_forward "$pid"
  [ -s "$kubeconfig" ] || { echo "the demo was not installed by this user"; return 0; }
  for namespace in nymph-system lakeshore; do
    if demo_made "$namespace"; then helm_here uninstall "$(release_in "$namespace")" --namespace "$namespace" --ignore-not-found --wait; fi
  done
  # Only what the demo made; launches and their Pods go with their namespace.
  kube delete namespace --selector nymph.dev/demo=true --timeout 120s
}
