# shellcheck shell=bash
# What the machine must have. Each check ends in one message that names what is missing.

needed_programs="ip:iproute2 iptables:iptables conntrack:conntrack socat:socat nsenter:util-linux unshare:util-linux
flock:util-linux openssl:openssl pgrep:procps curl:curl"

require_root() {
  [ "$(id -u)" = 0 ] || die "root is needed, for namespaces, cgroups and mounts: run it as root (this is $(id -un 2>/dev/null || id -u))"
}

check_programs() {
  local entry missing=() packages=()
  for entry in $needed_programs; do
    command -v "${entry%%:*}" >/dev/null && continue
    missing+=("${entry%%:*}")
    packages+=("${entry#*:}")
  done
  [ "${#missing[@]}" = 0 ] ||
    die "programs are missing: ${missing[*]} (Debian: apt-get install ${packages[*]}; 'cluster build' installs them)"
}

check_cgroups() {
  local controller
  [ -n "$(hierarchies)" ] || die "no cgroup hierarchy is mounted: mount one at /sys/fs/cgroup"
  if cgroup_v2_only; then
    for controller in cpu cpuset memory pids; do
      grep -qw "$controller" "$(process_hierarchy)/cgroup.controllers" ||
        die "the cgroup controller '$controller' is missing from $(process_hierarchy)/cgroup.controllers"
    done
  else
    for controller in cpu cpuacct cpuset memory pids devices freezer; do
      awk -v c="$controller" '$3 == "cgroup" && $4 ~ "(^|,)" c "(,|$)" { found = 1 } END { exit !found }' /proc/self/mounts ||
        die "the cgroup controller '$controller' is not mounted (v1): the kernel lacks it, or /sys/fs/cgroup was laid without it"
    done
  fi
  mkdir -p "$(process_hierarchy)/$cgroup" 2>/dev/null ||
    die "no cgroup can be made below $(process_hierarchy): it is read-only here, or another's"
}

# check_kernel tries each feature once, in namespaces that go with the probe.
check_kernel() {
  local missing
  unshare --net --mount --uts --ipc --pid --fork --kill-child --mount-proc true 2>/dev/null ||
    die "the kernel refuses new namespaces (net, mount, uts, ipc, pid): CAP_SYS_ADMIN is missing, or a sandbox forbids unshare"
  mkdir -p "$scratch/probe"/{lower,upper,work,merged}
  # shellcheck disable=SC2016 # expands in the probe
  missing=$(XTABLES_LOCKFILE=$scratch/probe/xtables.lock unshare --net --mount bash -c '
    ip link add probe0 type bridge 2>/dev/null || echo "bridge interfaces (CONFIG_BRIDGE)"
    ip link add probe1 type veth peer name probe2 2>/dev/null || echo "veth interfaces (CONFIG_VETH)"
    iptables -t nat -w 5 -S >/dev/null 2>&1 || echo "iptables nat table (CONFIG_NF_NAT, CONFIG_NF_TABLES or CONFIG_IP_NF_NAT)"
    iptables -w 5 -A INPUT -m comment --comment x -m conntrack --ctstate NEW -j ACCEPT 2>/dev/null || echo "iptables matches comment and conntrack (CONFIG_NETFILTER_XT_MATCH_*)"
    mount -t tmpfs probe "$1/merged" 2>/dev/null && umount "$1/merged" || echo "mounting tmpfs"
    mount -t overlay -o "lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work" overlay "$1/merged" 2>/dev/null ||
      echo "overlay mounts on the file system of $1 (CONFIG_OVERLAY_FS; the scratch folder may not lie on an overlay itself: set NYMPH_CLUSTER_DIR)"
  ' probe "$scratch/probe")
  rm -rf "$scratch/probe"
  [ -z "$missing" ] || die "the kernel lacks: $(paste -sd ';' <<<"$missing" | sed 's/;/; /g')"
}

check_machine() {
  require_root
  check_programs
  check_kernel
  check_cgroups
}
