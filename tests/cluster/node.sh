#!/bin/sh
# node.sh BIN IMAGES PCIDP TREE: boots the host in TREE and a cluster on it, says so on standard output, and ends it all when
# standard input ends: so it ends with the process that started it, however that ends.
#   up PID: everything is in the namespaces of this process; its /run/cluster holds kubeconfig, logs and sockets
set -eu
here=$(cd "$(dirname "$0")" && pwd)

# The folders of all cgroup hierarchies, of version 1 or 2.
cgroups() { if [ -f /sys/fs/cgroup/cgroup.procs ]; then echo /sys/fs/cgroup; else find /sys/fs/cgroup -mindepth 1 -maxdepth 1 -type d; fi; }
remove_cgroup() {
  for above in $(cgroups); do
    [ -d "$above/$1" ] || continue
    for try in 1 2 3 4 5 6 7 8 9 10; do
      find "$above/$1" -name cgroup.procs -exec cat {} + 2>/dev/null | xargs -r kill -9 2>/dev/null || true
      find "$above/$1" -depth -type d -exec rmdir {} + 2>/dev/null && break
      sleep 0.1
    done
  done
}

# What an aborted run has left: a cgroup is all that outlives its namespaces.
for left in $(for above in $(cgroups); do find "$above" -maxdepth 1 -name 'pcidp-cluster-*' -printf '%f\n'; done | sort -u); do
  pid=${left#pcidp-cluster-}
  grep -qs node.sh "/proc/$pid/cmdline" || remove_cgroup "$left"
done

export CGROUP=pcidp-cluster-$$
for above in $(cgroups); do
  mkdir -p "$above/$CGROUP"
  [ ! -f "$above/cgroup.subtree_control" ] || for controller in $(cat "$above/cgroup.controllers"); do
    echo "+$controller" > "$above/cgroup.subtree_control" || true
  done
done
trap 'remove_cgroup "$CGROUP"' EXIT

# The first process in the namespace of processes takes all others with it.
unshare --mount --net --uts --ipc --pid --fork --kill-child --mount-proc --propagation private \
  sh -euc 'hostname node1; sh "$0/host.sh" "$4" >&2; sh "$0/up.sh" "$1" "$2" "$3" >&2 < /dev/null; echo up; cat > /dev/null' "$here" "$@" <&0 &
while ! first=$(cat "/proc/$!/task/$!/children") || [ -z "$first" ]; do sleep 0.05; done
echo "first ${first% }"
wait $!
