# shellcheck shell=bash
# Bringing a cluster up.

# healthy: is it up, with the same settings, and does all of it run?
healthy() {
  local f
  if [ ! -e "$run/up" ] || [ "$(cat "$run/up")" != "$1" ] || ! is_mounted "$netns"; then return 1; fi
  for f in "$run"/pid/*; do
    case ${f##*/} in relay-*) continue ;; esac
    alive "$f" || return 1
  done
  for node in $(node_names); do node_has_init "$node" || return 1; done
  apiserver_live || return 1
  [ "$(cat "$run/nodes")" = 0 ] || all_nodes_ready
}

# failed says what went wrong where the reader looks first, and leaves nothing running; the logs stay for `logs`.
failed() {
  local f
  trap - EXIT
  say "cluster: '$name' did not come up; what ran is taken away, its logs stay: cluster logs"
  for f in "$run"/pid/*; do
    if [ ! -e "$f" ] || alive "$f"; then continue; fi
    say "--- ${f##*/} has ended:"
    tail -n 5 "$run/log/${f##*/}.log" >&2 || true
  done
  sweep_processes || true
}

verb_up() {
  local nodes=2 controllers="" settings parts
  while [ $# -gt 0 ]; do
    case $1 in
      --nodes) nodes=${2:-}; shift 2 || die "--nodes wants a number" ;;
      --controllers) controllers=yes; shift ;;
      --audit) shift ;; # always on
      *) die "up knows --nodes N and --controllers only, not '$1'" ;;
    esac
  done
  [[ $nodes =~ ^[0-8]$ ]] || die "--nodes wants 0 to 8, not '$nodes'"
  [ "$nodes" = 0 ] || controllers=yes
  require_root
  parts=$all_parts
  if [ "$nodes" = 0 ]; then # a control plane alone: nothing that runs containers, and what `build --parts apiserver` made will do
    parts=hk
    if [ -z "$controllers" ] && ! have_part hk && have_part apiserver; then parts=apiserver; fi
  fi
  lock_cluster
  bin=$(bin_dir)
  settings="kubernetes=$kubernetes nodes=$nodes controllers=${controllers:-no} programs=$bin"
  if healthy "$settings"; then
    say "cluster: '$name' is up already: $settings"
    return 0
  fi
  if remnants; then
    say "cluster: sweeping what an earlier run of '$name' left"
    sweep
  fi
  # shellcheck disable=SC2086 # a list of words
  build_missing $parts
  check_machine
  boot
}

boot() {
  local t0 node
  t0=$(now_ms)
  say "cluster: '$name', Kubernetes $kubernetes, $nodes nodes${controllers:+, with controllers}"
  trap failed EXIT
  mkdir -p "$run"/{log,pid,kubeconfig}
  echo "$nodes" >"$run/nodes"
  echo "$bin" >"$run/bin"
  make_cgroup system
  make_network
  make_pki
  start_etcd
  for node in admin proxy $(node_names); do write_kubeconfig "$node" "$api" "$(kubeconfig_of "$node")"; done
  start_apiserver
  step "etcd and kube-apiserver started"
  for node in $(node_names); do node_launch "$node"; done
  [ "$nodes" = 0 ] || step "$nodes nodes launched"
  wait_for 90 "kube-apiserver" apiserver_comes
  step "kube-apiserver is live"
  if [ -n "$controllers" ]; then start_controllers; else make_default_account; fi
  if [ "$nodes" -gt 0 ]; then
    start_scheduler
    start_proxy
    start_dns
  fi
  wait_for 60 "the default ServiceAccount" has_default_account
  step "the default ServiceAccount is there"
  if [ "$nodes" -gt 0 ]; then
    wait_for 90 "$nodes nodes to become Ready" all_nodes_ready
    step "$nodes nodes are Ready"
    for node in $(node_names); do wait_for 90 "the images of $node" node_up "$node"; done
    step "images are loaded"
  fi
  echo "$settings" >"$run/up"
  trap - EXIT
  say "cluster: up. kubectl: tests/cluster/cluster --name $name kubectl get nodes"
}

# Pods are refused in a namespace without it, and no controller is there to make it.
make_default_account() { kubectl_admin create serviceaccount default --namespace default >/dev/null; }

verb_status() {
  local f
  [ -e "$run" ] || { say "the cluster '$name' is not up"; return 1; }
  [ -e "$run/up" ] || say "the cluster '$name' is half up: it is booting, or that was cut short"
  [ ! -e "$run/up" ] || cat "$run/up"
  for f in "$run"/pid/*; do
    [ -e "$f" ] || continue
    if alive "$f"; then printf '  %-22s runs, process %s\n' "${f##*/}" "$(cat "$f")"; else printf '  %-22s has ended\n' "${f##*/}"; fi
  done
  [ ! -e "$run/up" ] || kubectl_admin get nodes -o wide 2>&1
}

verb_logs() {
  local component=${1:-} f
  [ -d "$run/log" ] || die "there are no logs of '$name'"
  if [ -z "$component" ]; then
    for f in "$run"/log/*; do basename "$f" .log; done
  else
    f=$run/log/$component.log
    [ -e "$f" ] || die "no log is called '$component'; there are: $(verb_logs | xargs)"
    cat "$f"
  fi
}
