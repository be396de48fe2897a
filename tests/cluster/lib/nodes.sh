# shellcheck shell=bash
# The nodes: each a real containerd, kubelet and kube-proxy in network, mount, pid, uts and ipc namespaces of its own.

node_dir() { echo "$run/$1"; }

require_node() {
  [ -n "${1:-}" ] || die "which node? one of: $(node_names | xargs)"
  node_names | grep -qx -- "$1" || die "the cluster '$name' has no node '$1'; it has: $(node_names | xargs)"
}

# node_init prints the process that is PID 1 of a node. The id noted by start is that of unshare, its parent.
node_init() {
  local pid
  alive "$run/pid/$1" && pid=$(pgrep -P "$(cat "$run/pid/$1")" | head -n 1) && [ -n "$pid" ] && echo "$pid"
}

node_has_init() { node_init "$1" >/dev/null; }

# in_node NODE COMMAND…: in the node's namespaces, as its own programs see the machine.
in_node() {
  local init
  init=$(node_init "$1") || die "$1 is not running: cluster node start $1"
  shift
  nsenter -t "$init" --mount --net --pid --uts --ipc --wd=/ -- env PATH="$bin:$PATH" "$@"
}

# --- cgroups --------------------------------------------------------------------------------------------------------

# make_cgroup NAME: in every hierarchy. kubelet wants its root to exist in each; a new cpuset of v1 is born without cpus and
# memory nodes, and v2 hands controllers down one level at a time.
make_cgroup() {
  local h dir f controllers
  for h in $(hierarchies); do
    for dir in "$h/$cgroup" "$h/$cgroup/$1"; do
      mkdir -p "$dir"
      for f in cpuset.cpus cpuset.mems; do
        if ! cgroup_v2_only && [ -e "$dir/$f" ] && [ -z "$(<"$dir/$f")" ]; then cat "${dir%/*}/$f" >"$dir/$f"; fi
      done
    done
    if cgroup_v2_only; then
      controllers=$(sed 's/[^ ]*/+&/g' "$h/cgroup.controllers")
      for dir in "$h" "$h/$cgroup"; do
        echo "$controllers" >"$dir/cgroup.subtree_control" ||
          die "the cgroup $dir does not hand its controllers down: processes sit in it, move them into a child first"
      done
    fi
  done
}

remove_cgroup_now() {
  local h left=0
  for h in $(hierarchies); do
    [ -d "$h/$1" ] || continue
    find "$h/$1" -depth -type d -exec rmdir {} + 2>/dev/null || true
    [ ! -d "$h/$1" ] || left=1
  done
  return $left
}

# remove_cgroup PATH: a group can be removed a moment after its last process only.
remove_cgroup() { wait_for 20 "the cgroup $1 to become empty" remove_cgroup_now "$1"; }

# --- configuration --------------------------------------------------------------------------------------------------

write_node_files() { # NODE: what its programs read; see `node` for where the folders appear inside
  local node=$1 dir
  dir=$(node_dir "$node")
  mkdir -p "$dir"/{cni,kubelet,kubelet.d,containerd,certs.d}
  echo "nameserver 127.0.0.1" >"$dir/resolv.conf" # names outside the cluster fail at once
  cat >"$dir/containerd.toml" <<Y
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.blockfile", "io.containerd.nri.v1.nri"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "localhost/pause:1"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "$dir/certs.d"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true # without CAP_SYS_RESOURCE runc may not lower the score and dies with an EOF
  disable_apparmor = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["$bin/cni"]
    conf_dir = "$dir/cni"
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = "$bin/runc"
        SystemdCgroup = false
Y
  cat >"$dir/cni/10-bridge.conflist" <<Y
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "/run/ipam", "ranges": [[{"subnet": "$(node_cidr "$node")"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
Y
  # Quick to notice a lost node; no eviction, as every node sees the whole machine's disk and memory ("0%" switches it off,
  # "0" is refused). oomScoreAdj and maxOpenFiles: what can be had without CAP_SYS_RESOURCE.
  cat >"$dir/kubelet.yaml" <<Y
kind: KubeletConfiguration
apiVersion: kubelet.config.k8s.io/v1beta1
address: $(node_ip "$node")
readOnlyPort: 0
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $pki/ca.crt}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$cgroup/$node
failCgroupV1: false
enforceNodeAllocatable: []
failSwapOn: false
evictionHard: {memory.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%", imagefs.inodesFree: "0%"}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
resolvConf: $dir/resolv.conf
clusterDNS: [$bridge_ip]
clusterDomain: cluster.local
oomScoreAdj: 0
maxOpenFiles: 20000
nodeStatusUpdateFrequency: 2s
nodeLeaseDurationSeconds: 10
serializeImagePulls: false
registryPullQPS: 0
eventRecordQPS: 0
Y
}

# --- life -----------------------------------------------------------------------------------------------------------

node_routes() { # NODE: the other nodes' Pod ranges, as RANGE@GATEWAY
  local other
  for other in $(node_names); do
    [ "$other" = "$1" ] || printf '%s@%s ' "$(node_cidr "$other")" "$(node_ip "$other")"
  done
}

node_launch() { # NODE: namespaces first, then a veth pair into them
  local node=$1 init
  write_node_files "$node"
  make_cgroup "$node"
  start "$node" env NODE="$node" NODE_DIR="$(node_dir "$node")" NODE_RUN="$run" NODE_BIN="$bin" NODE_IP="$(node_ip "$node")" \
    NODE_ROUTES="$(node_routes "$node")" NODE_KUBECONFIG="$(kubeconfig_of "$node")" NODE_IMAGES="$(image_tars | xargs)" \
    PROXY_KUBECONFIG="$(kubeconfig_of proxy)" PROXY_FLAGS="$proxy_flags" \
    unshare --net --mount --uts --ipc --pid --fork --kill-child --mount-proc bash "$here/node"
  wait_for 20 "$node's namespaces" node_has_init "$node"
  init=$(node_init "$node")
  inside ip link add "v$node" type veth peer name eth0 netns "$init"
  inside ip link set "v$node" master kbr0 up
  inside ip route replace "$(node_cidr "$node")" via "$(node_ip "$node")" dev kbr0
}

node_up() { # NODE: containerd answers and has its images; a node that died on the way will not come
  node_has_init "$1" || die "$1 has ended: $(tail -n 3 "$run/log/$1.log")"
  [ -e "$(node_dir "$1")/serving" ]
}

node_link_gone() { ! inside ip link show "v$1" >/dev/null 2>&1; }

# SIGKILL to unshare takes the whole node at once, as a power cut does: --kill-child ends its PID 1, the kernel all the rest.
# unshare itself ignores TERM.
node_kill() {
  local node=$1
  if alive "$run/pid/$node"; then kill -9 "$(cat "$run/pid/$node")"; fi
  rm -f "$run/pid/$node" "$(node_dir "$node")/serving"
  wait_for 20 "$node's network to go" node_link_gone "$node"
  remove_cgroup "$cgroup/$node"
}

node_start() {
  if node_has_init "$1"; then say "$1 is running already"; return 0; fi
  node_kill "$1" # what a node that ended by itself left
  node_launch "$1"
  wait_for 60 "containerd of $1" node_up "$1"
}

verb_node() {
  local action=${1:-} node=${2:-}
  case $action in
    kill | start | cut | heal | exec | root | dir) ;;
    *) die "node wants one of: kill, start, cut, heal, exec, root, dir (see --help)" ;;
  esac
  require_node "$node"
  shift 2
  case $action in
    root) echo "$(node_dir "$node")/var/lib" ;;
    dir) node_dir "$node" ;;
    exec)
      [ $# -gt 0 ] || die "node exec wants a command"
      in_node "$node" "$@" ;;
    kill) lock_cluster; require_up; node_kill "$node" ;;
    start) lock_cluster; require_up; node_start "$node" ;;
    cut) require_up; inside ip link set "v$node" down ;;
    heal)
      require_up
      inside ip link set "v$node" up ;;
  esac
}

# load TAR…: docker archives, into every running node. By standard input, as a node does not see all of the machine's folders.
verb_load() {
  local tar node loaded=0
  [ $# -gt 0 ] || die "load wants tars: docker archives, such as 'buildah push NAME docker-archive:FILE:NAME' writes"
  for tar in "$@"; do [ -r "$tar" ] || die "cannot read the image tar '$tar'"; done
  require_up
  for node in $(node_names); do
    node_has_init "$node" || { say "cluster: $node is not running, nothing is loaded there"; continue; }
    for tar in "$@"; do
      in_node "$node" "$bin/ctr" -n k8s.io images import - <"$tar" >"$run/log/load-$node.log" 2>&1 ||
        { tail -n 3 "$run/log/load-$node.log" >&2; die "$node did not take the image tar '$tar'"; }
    done
    loaded=$((loaded + 1))
  done
  [ "$loaded" -gt 0 ] || die "the cluster '$name' has no running node to load images into"
}
