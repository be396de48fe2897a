# shellcheck shell=bash disable=SC2154 # variables in lower case are set by deploy/demo
# One launch, and all that can be seen of it: the output as it comes, how it ended, the file on the node, the audit lines.

# field NAME: of the first object of a JSON list on standard input, be it written on one line or on many.
field() { tr ',{}' '\n' | sed -n "s/^ *\"$1\": *\"\{0,1\}\([^\"]*\)\"\{0,1\} *$/\1/p" | sed -n 1p; }

launch_and_follow() {
  local code=0 newest
  echo "\$ lakeshore launch demo deploy/demo.py -- --seconds 5"
  "$bin/lakeshore" launch demo "$here/demo.py" -- --seconds 5 || code=$?
  newest=$("$bin/lakeshore" providers instances demo -o json)
  instance=$(field instanceId <<<"$newest")
  node=$(field node <<<"$newest")
  echo "\$ echo \$?"
  echo "$code"
  [ "$code" = 0 ] || { kube get pods --namespace nymph-runs -o wide; return 1; }
}

show_end() {
  "$bin/lakeshore" instances | sed -n 1,5p
  kube get pod "$instance" --namespace nymph-runs -o wide
}

show_file() {
  echo "$node:/var/lib/nymph/work/nymph-runs/$instance/greeting.txt"
  "$target"_file "$instance" "$node" greeting.txt
}

show_audit() {
  local pod lines
  pod=$(kube get pods --namespace nymph-system -l app.kubernetes.io/name=nymph,app.kubernetes.io/component=node --field-selector "spec.nodeName=$node" -o 'jsonpath={.items[0].metadata.name}')
  lines=$(kube logs "$pod" --namespace nymph-system | grep '"target":"audit"' | grep -F "$instance") || {
    echo "the daemon on $node wrote no audit line for $instance"
    return 1
  }
  echo "$lines"
}
