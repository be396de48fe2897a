# shellcheck shell=bash
# Taking a cluster away, whole: after a run that ended well, one that failed, or one that was killed at any point. It goes by
# what the machine says (cgroups, mounts, namespaces), not by notes that a killed run may not have written.

kill_all() {
  local pids
  mapfile -t pids < <(cgroup_pids)
  [ "${#pids[@]}" -gt 0 ] || return 0
  # A cluster of tests has nothing to save: all at once, as many often fork while others die.
  kill -9 "${pids[@]}" 2>/dev/null || true
  return 1
}

mounts_below() { awk -v p="$scratch/" 'index($5, p) == 1 { print $5 }' /proc/self/mountinfo | sort -r; }

# strangers prints the processes in the cluster's network that are not its own: what `exec` started and left.
strangers() {
  local inode
  is_mounted "$netns" || return 0
  inode=$(stat -Lc %i "$netns")
  find /proc/[0-9]*/ns/net -maxdepth 0 -printf '%p %l\n' 2>/dev/null |
    sed -n "s|^/proc/\([0-9]*\)/ns/net net:\[$inode\]\$|\1|p" | grep -vx "$$" || true
}

# remnants: is anything there that a sweep would take away?
remnants() {
  local h
  [ ! -e "$scratch" ] || return 0
  for h in $(hierarchies); do [ ! -d "$h/$cgroup" ] || return 0; done
  return 1
}

# sweep_processes leaves the scratch folder with its logs.
sweep_processes() {
  local mount
  wait_for 30 "the processes of '$name' to end" kill_all
  for mount in $(mounts_below); do umount "$mount" || umount -l "$mount"; done
  rm -f "$netns" "$run/up"
  remove_cgroup "$cgroup"
}

sweep() {
  sweep_processes
  rm -rf --one-file-system "$scratch"
}

# unlock for good: with the last cluster their folder goes too.
forget_lock() {
  rm -f "$clusters/.$name.lock"
  rmdir "$clusters" 2>/dev/null || true
}

verb_down() {
  local left pid
  require_root
  lock_cluster
  if ! remnants; then
    forget_lock
    say "cluster: '$name' is not up, nothing to take down"
    return 0
  fi
  left=$(comm -23 <(strangers | sort) <(cgroup_pids | sort))
  for pid in $left; do
    say "cluster: process $pid still runs in the network of '$name' and was not started by it, it is left: $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null || true)"
  done
  sweep
  forget_lock
  say "cluster: '$name' is down"
}
