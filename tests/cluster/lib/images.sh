# shellcheck shell=bash
# The images that every node is given, built from nothing by buildah, without a daemon or a registry, and kept as tars.

# name, its reference, in the order in which a node imports them
images="pause=localhost/pause:1
shell=localhost/shell:1
alpine=docker.io/library/alpine:3
python=localhost/python:1
python-nonroot=localhost/python-nonroot:1"

# buildah_here ARGS…: with a storage of its own below the build's folder, gone with it. vfs and chroot ask the least of the
# machine: neither overlay mounts nor a container runtime are needed to copy files into an image.
buildah_here() {
  buildah --root "$work/storage" --runroot "$work/runroot" --storage-driver vfs "$@"
}

build_image() { # NAME REFERENCE CONTEXT: into $out/NAME.tar
  if ! buildah_here bud --quiet --isolation chroot --pull-never --timestamp 0 --format docker \
    -f "$here/images/Dockerfile.$1" -t "$2" "$3" >"$work/buildah.log" 2>&1 </dev/null ||
    ! buildah_here push --quiet "$2" "docker-archive:$out/$1.tar:$2" >>"$work/buildah.log" 2>&1; then
    tail -n 15 "$work/buildah.log" >&2
    die "buildah could not build the image $2"
  fi
}

prepare_pause() { gcc -static -Os -s -o "$1/pause" "$here/images/pause.c"; }

prepare_shell() {
  local applet
  mkdir -p "$1"/root/{bin,sbin,usr/bin,usr/sbin,etc,root,tmp,var,home,proc,sys,dev}
  chmod 1777 "$1/root/tmp"
  cp "$(command -v busybox)" "$1/root/bin/busybox"
  for applet in $(busybox --list); do
    [ "$applet" = busybox ] || ln -s /bin/busybox "$1/root/bin/$applet"
  done
  ln -s ../../bin/busybox "$1/root/usr/bin/env" # scripts start with #!/usr/bin/env
  echo 'root:x:0:0:root:/root:/bin/sh' >"$1/root/etc/passwd"
  echo 'root:x:0:' >"$1/root/etc/group"
}

prepare_python() {
  mmdebstrap --quiet --variant=extract --include=python3-minimal,libpython3-stdlib,dash,coreutils \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook='test -e "$1/bin/sh" || ln -s dash "$1/bin/sh"' \
    --customize-hook='echo root:x:0:0:root:/root:/bin/sh >"$1/etc/passwd"; echo root:x:0: >"$1/etc/group"' \
    "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$1/root.tar" >"$work/mmdebstrap.log" 2>&1 </dev/null ||
    { tail -n 15 "$work/mmdebstrap.log" >&2; die "mmdebstrap could not make the Python image's files"; }
}

build_images() {
  local line image context
  for line in $images; do
    image=${line%%=*}
    context=$work/$image
    mkdir -p "$context"
    case $image in pause | shell | python) "prepare_$image" "$context" ;; esac
    build_image "$image" "${line#*=}" "$context"
    rm -rf "$context"
    say "    … image ${line#*=}"
  done
}

image_dir() { part_dir images; }

# image_tars prints them in the order of import: pause first, as no Pod starts without it.
image_tars() {
  local line
  for line in $images; do echo "$(image_dir)/${line%%=*}.tar"; done
}
