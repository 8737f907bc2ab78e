#!/bin/sh
# Builds the programs of a cluster from the modules that tools/ names, and prints the folder that they are in.
# Cold about ten minutes on two cores; nothing to do while the modules stay as they are.
set -eu
cd "$(dirname "$0")/tools"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/pcidp/cluster
key=$(cat go.mod go.sum multus/go.mod multus/go.sum ../build.sh | sha256sum | cut -c1-16)
bin=$cache/$key/bin
if [ ! -d "$bin" ]; then
  mkdir -p "$cache/$key"
  # Finished or not there at all: an aborted build must not look like a cache.
  part=$(mktemp -d "$cache/$key/part.XXXXXX")
  trap 'rm -rf "$part"' EXIT
  version=$(sed -n 's|^\tk8s.io/kubernetes \(v[0-9.]*\).*|\1|p' go.mod)
  minor=${version#v1.}
  stamp=k8s.io/component-base/version
  # Multus is a module of its own: it needs an older k8s.io/kubelet than the kubelet.
  for module in . multus; do
    # The API server compares versions, and without a stamp it takes itself for v0.0.0. The compiler spends a quarter
    # of its time on collecting garbage that fits in memory.
    (cd $module && CGO_ENABLED=0 GOGC=${GOGC:-400} go build -trimpath -buildvcs=false -tags no_btrfs,no_devmapper,no_zfs \
      -ldflags "-s -w -X $stamp.gitVersion=$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=${minor%%.*}" \
      -o "$part/" tool >&2)
  done
  # What NFD asks of the API server comes with its module.
  cp -r "$(go list -m -f '{{.Dir}}' sigs.k8s.io/node-feature-discovery)/deployment/base/nfd-crds" "$part/"
  chmod -R u+w "$part/nfd-crds"
  mv "$part/server" "$part/etcd" # its package is …/etcd/server/v3
  mv -T "$part" "$bin" 2> /dev/null || [ -d "$bin" ] # two runs may build at once
fi
echo "$bin"
