# shellcheck shell=bash
# What tests/chart and deploy/render-plain share: where helm is, and how a chart is rendered the same on every machine.

# A helm that was built from its Go module thinks that Kubernetes is 1.20 when it renders without a cluster.
# shellcheck disable=SC2034 # used by who sources this
helm_kube_version=1.37.2

# helm_program prints the helm of the cluster's cache, or else the one on PATH.
helm_program() {
  local top bin
  top=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../..
  bin=$("$top/tests/cluster/cluster" bin 2>/dev/null || true)
  if [ -n "$bin" ] && [ -x "$bin/helm" ]; then
    echo "$bin/helm"
  elif ! command -v helm; then
    echo "helm is neither in the cache nor on PATH: tests/cluster/cluster build --parts helm" >&2
    return 1
  fi
}
