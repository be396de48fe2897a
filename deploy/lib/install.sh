# shellcheck shell=bash disable=SC2154 # variables in lower case are set by deploy/demo
# The control plane and the daemon, by their charts, and what a launch needs. Every step may be done again. No secret is ever on
# a command line, where the process list would show it: tokens go through environment and standard input.

release_in() { case $1 in nymph-system) echo nymph ;; *) echo "$1" ;; esac; }

# demo_made NAMESPACE: it is there, and it was the demo that made it.
demo_made() { [ "$(kube get namespace "$1" --ignore-not-found -o 'jsonpath={.metadata.labels.nymph\.dev/demo}')" = true ]; }

# make_namespace NAME: a namespace of somebody else's making is not touched.
make_namespace() {
  local there
  there=$(kube get namespace "$1" --ignore-not-found -o name)
  if [ -z "$there" ]; then
    kube create namespace "$1"
    kube label namespace "$1" nymph.dev/demo=true >/dev/null
  elif ! demo_made "$1"; then
    die "the cluster has a namespace '$1' that the demo did not make: is nymph installed there? The demo would change it"
  fi
}

image_key() { cat "$(dirname "$("$here/image" tar "$1")")/$1.key"; }

# image_values NAME: a new image under the old tag restarts what runs.
image_values() {
  printf -- '--set-string podAnnotations.demo/image=%s\n' "$(image_key "$1")"
  if [ -n "$registry" ]; then printf -- '--set image.repository=%s --set image.pullPolicy=Always\n' "$registry/$1"; fi
}

install_chart() { # RELEASE NAMESPACE FLAGS…
  local release=$1 namespace=$2 values
  shift 2
  read -ra values <<<"$(image_values "$release" | xargs)"
  helm_here upgrade --install "$release" "$root/charts/$release" --namespace "$namespace" "${values[@]}" "$@" >"$state/helm-$release.log" 2>&1 ||
    { cat "$state/helm-$release.log"; return 1; }
  grep -E '^(STATUS|REVISION): ' "$state/helm-$release.log" | xargs
}

# rollout KIND/NAME NAMESPACE: waits until it is up; gives up at once when its containers end or cannot be started, and says why.
rollout() {
  local said deadline=$(($(now_ms) + 180000)) bad='CrashLoopBackOff|ErrImage|ImagePullBackOff|InvalidImageName|CreateContainer'
  while [ "$(now_ms)" -lt $deadline ]; do
    if said=$(kube rollout status "$1" --namespace "$2" --timeout 2s 2>/dev/null); then
      tail -n 1 <<<"$said"
      return 0
    fi
    if kube get pods --namespace "$2" -o 'jsonpath={.items[*].status.containerStatuses[*].state.waiting.reason}' | grep -E "$bad"; then break; fi
  done
  kube get pods --namespace "$2" -o wide
  kube get events --namespace "$2" --sort-by .lastTimestamp | tail -n 8
  kube logs "$1" --namespace "$2" --tail 15 || true
  return 1
}

install_control_plane() {
  make_namespace lakeshore
  install_chart lakeshore lakeshore --set persistence.enabled=false
  rollout statefulset/lakeshore lakeshore
}

# reach_control_plane: from the person's own shell, as its first admin.
reach_control_plane() {
  "$target"_reach
  LAKESHORE_URL=http://127.0.0.1:$lakeshore_port
  LAKESHORE_TOKEN=$(kube get secret lakeshore-admin-token --namespace lakeshore -o 'jsonpath={.data.token}' | base64 -d)
  LAKESHORE_NAMESPACE=default
  export LAKESHORE_URL LAKESHORE_TOKEN LAKESHORE_NAMESPACE
  wait_until 20 "the control plane at $LAKESHORE_URL" "$bin/lakeshore" clusters list
  write_env
  "$bin/lakeshore" version
}

enrolled() { "$bin/lakeshore" clusters list -o json | grep "\"name\": *\"$1\"" >/dev/null; }

# enrol sets $cluster: the name that the token in the Secret belongs to. A token is shown once: where one side has lost it (the
# Secret was deleted, or the control plane, which has no volume here), the cluster is enrolled anew, under the next name.
enrol() {
  local answer n
  make_namespace nymph-system
  cluster=$(kube get secret nymph-token --namespace nymph-system --ignore-not-found -o 'jsonpath={.metadata.labels.demo/cluster}')
  if [ -n "$cluster" ] && enrolled "$cluster"; then
    echo "cluster $cluster is enrolled, and its token is in Secret nymph-token"
    return 0
  fi
  cluster=demo
  for n in {2..99}; do
    enrolled "$cluster" || break
    cluster=demo-$n
  done
  answer=$("$bin/lakeshore" clusters enroll "$cluster" -o json)
  grep -o 'nymph_enrol_[A-Za-z0-9_-]\{43\}' <<<"$answer" | sed -n 1p | tr -d '\n' |
    kube create secret generic nymph-token --namespace nymph-system --from-file=token=/dev/stdin --dry-run=client -o yaml |
    kube label --local --filename - "demo/cluster=$cluster" -o yaml |
    kube apply --server-side --force-conflicts --filename -
  # A daemon takes up a new token by itself, once the kubelet has renewed the file: a minute that nobody wants to watch.
  if [ -n "$(kube get daemonset nymph --namespace nymph-system --ignore-not-found -o name)" ]; then
    kube rollout restart daemonset/nymph deployment/nymph-cluster --namespace nymph-system
  fi
}

install_daemon() {
  install_chart nymph nymph-system --set controlPlane.url=ws://lakeshore.lakeshore.svc --set controlPlane.tokenSecret.name=nymph-token \
    --set-string 'runNamespace.labels.nymph\.dev/demo=true'
  # Ready means connected.
  rollout daemonset/nymph nymph-system
  rollout deployment/nymph-cluster nymph-system
  "$bin/lakeshore" daemons
}

add_provider() {
  "$bin/lakeshore" providers add demo --force --launcher Kube --kwarg dispatch=daemon --kwarg "cluster=$cluster" --kwarg "image=$python_image"
  "$bin/lakeshore" modes add demo --force --field provider=demo --field 'env={"GREETING": "Hello from a Pod that the control plane never had a kubeconfig for"}'
  "$bin/lakeshore" providers test demo
}

# write_env: for `eval "$(deploy/demo env)"`.
write_env() {
  (
    umask 077
    {
      # shellcheck disable=SC2016 # expands in the person's shell
      printf 'export PATH=%q:"$PATH"\n' "$bin"
      printf 'export %s=%q\n' KUBECONFIG "$kubeconfig" LAKESHORE_URL "$LAKESHORE_URL" LAKESHORE_TOKEN "$LAKESHORE_TOKEN" \
        LAKESHORE_NAMESPACE "$LAKESHORE_NAMESPACE"
      [ "$target" != own ] || printf 'export %s=%q\n' NYMPH_CLUSTER "$name"
    } >"$state/env"
  )
}
