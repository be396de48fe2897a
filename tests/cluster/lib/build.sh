# shellcheck shell=bash
# Builds every program of the cluster from Go modules into the cache, once. A part's folder carries its version and a hash
# of what makes it, and comes into being by a rename: a folder that is there is whole.

containerd_version=2.4.2
runc_version=1.5.3
cni_version=1.10.0
helm_version=3.22.0
coredns_version=$(sed -n 's|^require github.com/coredns/coredns v||p' "$here/dns/go.mod")

all_parts="hk containerd runc cni coredns helm images"

build_packages=(ca-certificates gcc libc6-dev libseccomp-dev pkg-config buildah busybox-static mmdebstrap)
run_packages=(iptables conntrack iproute2 ethtool socat procps util-linux openssl curl)

hash_of() { cat -- "$@" | sha256sum | cut -c 1-8; }

# hk_sources prints what goes into hk: go.mod and go.sum are committed for the versions that were tried.
hk_sources() {
  printf '%s\n' "$here"/hk/*.go
  [ ! -d "$here/hk/$kubernetes" ] || printf '%s\n' "$here/hk/$kubernetes"/go.{mod,sum}
}

part_id() {
  local sources
  case $1 in
    hk | apiserver) mapfile -t sources < <(hk_sources); echo "$1-$kubernetes-$(hash_of "${sources[@]}")" ;;
    containerd) echo "containerd-$containerd_version" ;;
    runc) echo "runc-$runc_version" ;;
    cni) echo "cni-$cni_version" ;;
    coredns) echo "coredns-$coredns_version-$(hash_of "$here"/dns/main.go "$here"/dns/go.{mod,sum})" ;;
    helm) echo "helm-$helm_version" ;;
    images) echo "images-$(hash_of "$here"/images/* "$here/lib/images.sh")" ;;
    *) die "no part is called '$1'; there are: $all_parts apiserver" ;;
  esac
}

part_dir() { echo "$cache/parts/$(part_id "$1")"; }

have_part() { [ -d "$(part_dir "$1")" ]; }

# bin_dir prints the folder of links to all programs; it is made anew when a part changes.
bin_dir() {
  local part ids=""
  for part in $all_parts apiserver; do ids+="$(part_id "$part") "; done
  echo "$cache/bin/$kubernetes-$(printf '%s' "$ids" | sha256sum | cut -c 1-8)"
}

# --- one function a part: it fills $out -----------------------------------------------------------------------------

# compile EXPECTED COMMAND…: runs a `go build -v`, which prints a line per compiled package, and says how far it is.
compile() {
  local expected=$1 log=$work/go.log pid next=15 began=$SECONDS
  shift
  # The compiler goes when this script goes, however that ends.
  setpriv --pdeathsig KILL "$@" >"$log" 2>&1 </dev/null 8>&- &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.5
    if [ "$((SECONDS - began))" -ge "$next" ]; then
      next=$((next + 15))
      say "    … $part: $(grep -cvE '^(go: |#)' "$log" || true)$expected packages, $((SECONDS - began)) s"
    fi
  done
  wait "$pid" || { grep -vE '^[a-z0-9./_-]+$' "$log" | tail -n 30 >&2; die "$part did not build; the whole log: $log"; }
}

go_install() { # MODULE@VERSION PACKAGE…: by name, at a pinned version
  local module=${1%@*} version=${1#*@} packages=() p
  shift
  for p in "$@"; do packages+=("$module${p:+/$p}@v$version"); done
  GOBIN=$out compile "" go install -v -trimpath -ldflags "${ldflags:--s -w}" ${tags:+-tags "$tags"} "${packages[@]}"
}

build_hk() { # [TAG]: all programs, or with the tag "apiserver" etcd and kube-apiserver alone
  local v=v$kubernetes minor ldflags total
  minor=$(cut -d . -f 2 <<<"$kubernetes")
  cp "$here"/hk/*.go "$work/"
  if [ -d "$here/hk/$kubernetes" ]; then
    cp "$here/hk/$kubernetes"/go.{mod,sum} "$work/"
  else
    say "    $part: no go.sum is committed for $kubernetes, it is made now"
    (cd "$work" && "$here/hk/gen" "$kubernetes")
  fi
  ldflags="-s -w"
  for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    ldflags+=" -X $p.gitVersion=$v -X $p.gitMajor=1 -X $p.gitMinor=$minor"
  done
  total=$(cd "$work" && CGO_ENABLED=0 go list -deps -tags "${1:-}" . 2>"$work/list.log" | wc -l) ||
    { tail -n 5 "$work/list.log" >&2; die "go could not resolve the modules of $part"; }
  CGO_ENABLED=0 compile " of $total" go build -C "$work" -v -trimpath -tags "${1:-}" -ldflags "$ldflags" -o "$out/hk" .
}

build_apiserver() { build_hk apiserver; }

build_containerd() {
  local v=github.com/containerd/containerd/v2/version
  CGO_ENABLED=0 ldflags="-s -w -X $v.Version=v$containerd_version" \
    go_install github.com/containerd/containerd/v2@$containerd_version cmd/containerd cmd/containerd-shim-runc-v2 cmd/ctr
}

build_runc() { # seccomp wants C; without the tag every container with a profile is refused
  CGO_ENABLED=1 tags=seccomp ldflags="-s -w -X main.version=$runc_version" go_install github.com/opencontainers/runc@$runc_version ""
}

build_cni() {
  CGO_ENABLED=0 go_install github.com/containernetworking/plugins@$cni_version \
    plugins/main/bridge plugins/main/loopback plugins/ipam/host-local plugins/meta/portmap
}

build_helm() {
  CGO_ENABLED=0 ldflags="-s -w -X helm.sh/helm/v3/internal/version.version=v$helm_version" \
    go_install helm.sh/helm/v3@$helm_version cmd/helm
}

build_coredns() {
  cp "$here"/dns/{main.go,go.mod,go.sum} "$work/"
  CGO_ENABLED=0 compile "" go build -C "$work" -v -trimpath -ldflags "-s -w" -o "$out/coredns" .
}

# --- all of them ----------------------------------------------------------------------------------------------------

build_part() {
  local part=$1 dir began=$SECONDS work out
  dir=$(part_dir "$part")
  [ ! -d "$dir" ] || return 0
  say "  $(basename "$dir"): building"
  work=$cache/build.tmp/$part
  out=$work.out
  rm -rf "$work" "$out"
  mkdir -p "$work" "$out" "$cache/parts"
  "build_$part"
  mv -T "$out" "$dir"
  rm -rf "$work"
  say "  $(basename "$dir"): built in $((SECONDS - began)) s"
}

# link_parts fills the folder of links from the parts that are there.
link_parts() {
  local bin f p dir
  bin=$(bin_dir)
  mkdir -p "$bin"
  link() { [ "$(readlink "$bin/$2" || true)" = "$1" ] || ln -sfn "$1" "$bin/$2"; }
  if have_part apiserver; then for p in etcd kube-apiserver; do link "$(part_dir apiserver)/hk" $p; done; fi
  if have_part hk; then
    for p in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl; do link "$(part_dir hk)/hk" $p; done
  fi
  for p in containerd runc coredns helm; do
    dir=$(part_dir $p)
    for f in "$dir"/*; do [ ! -e "$f" ] || link "$f" "$(basename "$f")"; done
  done
  if have_part cni; then link "$(part_dir cni)" cni; fi
  # kubectl talks to any version near its own: a second version that was built in part borrows it.
  if [ ! -e "$bin/kubectl" ]; then
    for f in "$cache"/parts/hk-*/hk; do [ ! -e "$f" ] || link "$f" kubectl; done
  fi
}

# build_missing PART…: builds what is not there, one build at a time on this machine.
build_missing() {
  local part missing=() began=$SECONDS
  for part in "$@"; do have_part "$part" || missing+=("$part"); done
  if [ "${#missing[@]}" -gt 0 ]; then
    mkdir -p "$cache/build.tmp"
    exec 8>"$cache/build.lock"
    flock -n 8 || { say "cluster: another build is running, waiting for it"; flock 8; }
    prepare_toolchain "${missing[@]}"
    say "cluster: building into $cache: ${missing[*]} (once; Kubernetes takes 10 minutes on 2 cores)"
    for part in "${missing[@]}"; do build_part "$part"; done
    rm -rf "$cache/build.tmp" # Go's build cache of 3 GB among it: only finished programs are kept
    exec 8>&-
    say "cluster: built in $((SECONDS - began)) s"
  fi
  link_parts
}

prepare_toolchain() {
  # shellcheck source=tests/support/toolchain
  . "$here/../support/toolchain"
  toolchain_packages "${build_packages[@]}" "${run_packages[@]}" || die "the build needs those Debian packages"
  [ "$*" = images ] || toolchain_go || die "the build needs Go"
  export GOCACHE=$cache/build.tmp/gocache GOFLAGS="-buildvcs=false -mod=readonly" GOWORK=off
}

verb_build() {
  local parts=$all_parts part
  while [ $# -gt 0 ]; do
    case $1 in
      --parts) parts=${2:?--parts wants a list, such as hk,helm}; parts=${parts//,/ }; shift 2 ;;
      *) die "build knows --parts LIST only, not '$1'" ;;
    esac
  done
  for part in $parts; do part_id "$part" >/dev/null; done
  # shellcheck disable=SC2086 # a list of words
  build_missing $parts
  for part in $parts; do say "  $(part_id "$part"): there"; done
}
