# shellcheck shell=bash
# Ways in from the machine's own network, for a person's browser or shell: a loopback port that leads to an address inside.

port_answers() { (: >"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

relay_start() { # PORT ADDRESS:PORT
  local port=$1 target=$2 component=relay-$1
  [[ $port =~ ^[1-9][0-9]{0,4}$ ]] || die "'$port' is no port"
  [[ $target =~ ^[0-9.]+:[0-9]+$ ]] || die "a relay leads to ADDRESS:PORT inside the cluster's network, not to '$target'"
  if alive "$run/pid/$component"; then
    [ "$(cat "$run/relay/$port")" = "$target" ] || die "port $port is relayed to $(cat "$run/relay/$port") already"
    return 0
  fi
  if port_answers "$port"; then die "port $port of 127.0.0.1 is taken by another program"; fi
  mkdir -p "$run/relay"
  echo "$target" >"$run/relay/$port"
  start "$component" socat "TCP-LISTEN:$port,bind=127.0.0.1,fork,reuseaddr,backlog=512" \
    "EXEC:nsenter --net=$netns socat - TCP\:${target/:/\\:}"
  wait_for 5 "the relay on port $port (cluster logs $component)" port_answers "$port"
}

verb_relay() {
  [ $# = 2 ] || die "relay wants PORT ADDRESS:PORT"
  lock_cluster
  require_up
  relay_start "$@"
  say "127.0.0.1:$1 leads to $2"
}

verb_kubeconfig() {
  local file
  case ${1:-} in
    "") require_up; kubeconfig_of admin ;;
    --loopback)
      [ $# = 2 ] || die "kubeconfig --loopback wants a port of 127.0.0.1"
      lock_cluster
      require_up
      relay_start "$2" $bridge_ip:6443
      file=$(kubeconfig_of "loopback-$2")
      write_kubeconfig admin "https://127.0.0.1:$2" "$file"
      echo "$file" ;;
    *) die "kubeconfig knows --loopback PORT only, not '$1'" ;;
  esac
}
