#!/bin/sh
# Makes the images of a cluster without a registry, and prints the folder of their archives: `pause` and `busybox` are
# Debian's static busybox.
set -eu
cache=${XDG_CACHE_HOME:-$HOME/.cache}/pcidp/cluster/images
mkdir -p "$cache"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build="buildah --root $work/root --runroot $work/run --storage-driver vfs"
export BUILDAH_ISOLATION=chroot

# image NAME FOLDER [OPTION…]: the archive is renewed only when the content is another one.
image() {
  name=$1 folder=$2
  shift 2
  key=$(cd "$folder" && { echo "$@"; find . -printf '%p %m %l\n' | sort; find . -type f | sort | xargs cat; } | sha256sum | cut -c1-16)
  archive=$cache/$name-$key.tar
  if [ ! -f "$archive" ]; then
    container=$($build from scratch)
    $build copy -q "$container" "$folder" / >/dev/null
    $build config "$@" "$container"
    $build commit -q "$container" "oci-archive:$work/$name.tar:localhost/$name:1" >/dev/null
    find "$cache" -name "$name-*.tar" -delete
    mv "$work/$name.tar" "$archive"
  fi
}

mkdir -p "$work/busybox/bin" "$work/busybox/tmp"
cp /bin/busybox "$work/busybox/bin/"
for applet in sh env ls cat sleep ip stat id touch grep mount; do ln -s busybox "$work/busybox/bin/$applet"; done
image busybox "$work/busybox" --cmd '["/bin/sh"]' --env PATH=/bin
# The kubelet's sandbox needs a process that does nothing.
image pause "$work/busybox" --entrypoint '["/bin/busybox", "sleep", "99999999"]'
echo "$cache"
