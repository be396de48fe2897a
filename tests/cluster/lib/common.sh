# shellcheck shell=bash
# What every part of tests/cluster needs: words for the person, paths, cgroups and processes.

say() { printf '%s\n' "$*" >&2; }

die() {
  printf 'cluster: %s\n' "$*" >&2
  exit 1
}

now_ms() { local t=${EPOCHREALTIME/[.,]/}; printf '%s\n' "$((t / 1000))"; }

# step TEXT: a line of the table that up prints, with the time since $t0.
step() {
  local ms=$(($(now_ms) - t0))
  printf '  %3d.%d s  %s\n' "$((ms / 1000))" "$((ms % 1000 / 100))" "$*" >&2
}

# wait_for SECONDS WHAT COMMAND…: polls the command until it holds.
wait_for() {
  local deadline=$(($(now_ms) + $1 * 1000)) what=$2
  shift 2
  until "$@"; do
    if [ "$(now_ms)" -ge "$deadline" ]; then
      say "cluster: gave up waiting for $what"
      return 1
    fi
    sleep 0.05
  done
}

# paths sets every global that depends on the cluster's name and Kubernetes version.
paths() {
  [[ $name =~ ^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$ ]] ||
    die "the name '$name' does not do: 1 to 32 of a-z, 0-9 and '-', as it names cgroups and folders"
  [[ $kubernetes =~ ^1\.[0-9]+\.[0-9]+$ ]] || die "the version '$kubernetes' does not do: write it as 1.37.2"
  cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/nymph
  clusters=${NYMPH_CLUSTER_DIR:-$cache/clusters}
  clusters=$(realpath -ms -- "$clusters")
  case "$(realpath -m -- "$clusters")/" in
    /var/lib/* | /var/log/*)
      die "the scratch folder $clusters lies below /var/lib or /var/log, which each node lays an overlay over: set NYMPH_CLUSTER_DIR to another place" ;;
    *[[:space:]:,\\\"\']*)
      die "the scratch folder '$clusters' has a character that mount options or configuration files cannot hold: set NYMPH_CLUSTER_DIR to another place" ;;
  esac
  scratch=$clusters/$name
  run=$scratch/run
  pki=$scratch/pki
  netns=$scratch/netns
  cgroup=nymph-$name # its path below the root of each cgroup hierarchy
  bridge_ip=198.18.0.1
  api=https://$bridge_ip:6443
}

# node_names prints the nodes that this run has.
node_names() { [ ! -e "$run/nodes" ] || seq -f node%g "$(cat "$run/nodes")"; }

node_ip() { printf '198.18.0.%d\n' "$((10 + ${1#node}))"; }

node_cidr() { printf '10.244.%d.0/24\n' "${1#node}"; }

# inside COMMAND…: in the cluster's network namespace. nsenter, not `ip netns exec`, which mounts a /sys without cgroups.
inside() { nsenter --net="$netns" -- "$@"; }

# hierarchies prints where each cgroup hierarchy is mounted: many with v1, one with v2.
hierarchies() { awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/self/mounts | sort -u; }

cgroup_v2_only() { ! grep -q ' cgroup ' /proc/self/mounts; }

# The hierarchy that counts the cluster's own processes: the v2 one where there is one, since it moves no controller of v1.
process_hierarchy() {
  { awk '$3 == "cgroup2" { print $2 }' /proc/self/mounts; hierarchies; } | awk 'NR == 1'
}

# cgroup_pids prints every process in the cluster's cgroups, those of its containers too.
cgroup_pids() {
  local h
  for h in $(hierarchies); do
    [ ! -d "$h/$cgroup" ] || find "$h/$cgroup" -name cgroup.procs -exec cat {} + 2>/dev/null || true
  done | sort -un | grep -vx 0 || true
}

# alive PIDFILE: the process runs, is no zombie, and is the cluster's own, not another that was given the same number.
alive() {
  local pid status groups
  [ -s "$1" ] || return 1
  pid=$(<"$1")
  # Not $(<FILE): bash 5.2 ends the whole script when FILE is gone, `||` or not.
  status=$(cat "/proc/$pid/status" 2>/dev/null) && groups=$(cat "/proc/$pid/cgroup" 2>/dev/null) || return 1
  [[ $status != *$'\nState:\tZ'* && $groups == *":/$cgroup/"* ]]
}

# start NAME COMMAND…: a process of the cluster, in its cgroup from its first instruction on, so that a later sweep finds it
# even when whoever started it was killed right after. Its log and its process id are noted under NAME.
start() {
  local component=$1
  shift
  # shellcheck disable=SC2016 # expands in the new process
  setsid bash -c 'echo $$ >"$0" && exec "$@"' "$(process_hierarchy)/$cgroup/system/cgroup.procs" "$@" \
    >>"$run/log/$component.log" 2>&1 </dev/null 8>&- 9>&- &
  echo $! >"$run/pid/$component"
  # Until it has entered its cgroup it does not count as alive.
  for _ in {1..200}; do
    ! alive "$run/pid/$component" || return 0
    [ -d "/proc/$!" ] || return 0
    sleep 0.01
  done
}

# start_inside NAME COMMAND…: likewise, in the cluster's network namespace.
start_inside() {
  local component=$1
  shift
  start "$component" nsenter --net="$netns" -- "$@"
}

# require_up: most verbs make no sense without a cluster.
require_up() {
  if [ ! -e "$run/up" ] || ! is_mounted "$netns"; then
    die "the cluster '$name' is not up: tests/cluster/cluster --name $name up"
  fi
}

is_mounted() { awk -v p="$1" '$5 == p { found = 1 } END { exit !found }' /proc/self/mountinfo; }

# lock_cluster: one at a time changes a cluster. The lock lies beside the scratch folder, which `down` takes away, and goes with
# it: who waited for a lock that is gone by then takes the new one.
lock_cluster() {
  local lock=$clusters/.$name.lock
  while :; do
    mkdir -p "$clusters" || die "cannot make the scratch folder $clusters"
    { exec 9>"$lock"; } 2>/dev/null || continue # the folder went in between
    flock -n 9 || { say "cluster: another command is working on '$name', waiting for it"; flock 9; }
    [ "$(stat -Lc %i "/proc/$$/fd/9")" != "$(stat -c %i "$lock" 2>/dev/null)" ] || return 0
  done
}
