#!/bin/sh
# host.sh TREE, inside new namespaces: makes this machine look like the host that is laid out in TREE.
#   TREE/sys     becomes /sys, around the parts of the real one that the kubelet, containerd and runc need
#   TREE/dev     device nodes as text files ("char 243:0 0600"), made with mknod in a /dev of our own
#   TREE/links   a batch for ip(8): the netdevs, as ends of veth pairs, and the routes
set -eu
tree=$1

# Everything that the node writes goes into memory, and with the namespace.
mount --make-rprivate /
real=/mnt
mount -t tmpfs none $real
mkdir "$real/sys" "$real/dev" "$real/tree"
mount -t sysfs sysfs "$real/sys"
mount --rbind /sys/fs/cgroup "$real/sys/fs/cgroup"
cp -a "$tree/." "$real/tree"

tree=$real/tree
mkdir -p "$tree/sys/fs/cgroup" "$tree/sys/fs/bpf" "$tree/sys/devices/system" "$tree/sys/devices/virtual" "$tree/sys/kernel/mm" "$tree/sys/block"
for virtual in "$real"/sys/devices/virtual/*; do
  mkdir -p "$tree/sys/devices/virtual/${virtual##*/}"
done
# A recording holds no folders of drivers and groups, and CNI plugins follow the links to them.
find "$tree/sys" -type l '(' -name driver -o -name iommu_group ')' -exec readlink -m '{}' + | sort -u | xargs -r mkdir -p
mount --bind "$tree/sys" /sys
mount --rbind "$real/sys/fs/cgroup" /sys/fs/cgroup
for part in devices/system kernel/mm; do mount --bind "$real/sys/$part" /sys/$part; done
for virtual in "$real"/sys/devices/virtual/*; do
  # The host's own virtual netdevs (a bond) stay.
  rmdir "/sys/devices/virtual/${virtual##*/}" 2>/dev/null || continue
  mkdir "/sys/devices/virtual/${virtual##*/}"
  mount --bind "$virtual" "/sys/devices/virtual/${virtual##*/}"
done

# A kubelet sees as many NUMA nodes as the host has; the processors are dealt out to them.
last=$(cat $(find "$tree/sys/devices" -name numa_node) /dev/null | sort -n | tail -1)
if [ "${last:-0}" -gt 0 ]; then
  nodes=/sys/devices/system/node
  show=$real/numa
  for node in $(seq 0 "$last"); do
    mkdir -p "$show/node$node"
    for file in meminfo vmstat numastat; do sed "s/Node 0/Node $node/" $nodes/node0/$file > "$show/node$node/$file"; done
    cp -r $nodes/node0/hugepages "$show/node$node/" 2>/dev/null || true
    list=
    for cpu in $(seq "$node" $((last + 1)) $(($(nproc --all) - 1))); do
      list=$list${list:+,}$cpu
      ln -s "/sys/devices/system/cpu/cpu$cpu" "$show/node$node/cpu$cpu"
    done
    echo "$list" > "$show/node$node/cpulist"
    seq -s ' ' 0 "$last" | tr ' ' '\n' | sed "s/^$node\$/here/; s/^[0-9]*\$/20/; s/here/10/" | paste -sd' ' > "$show/node$node/distance"
  done
  for file in online possible has_cpu has_memory has_normal_memory; do echo "0-$last" > "$show/$file"; done
  mount --bind "$show" $nodes
fi

# /dev is the machine's, and a node made there would stay.
mkdir "$real/dev/pts" "$real/dev/shm" "$real/dev/mqueue"
for node in null zero full random urandom tty kmsg ptmx fuse net/tun; do
  [ -e "/dev/$node" ] || continue
  mkdir -p "$(dirname "$real/dev/$node")"
  cp -a "/dev/$node" "$real/dev/$node"
done
ln -s /proc/self/fd "$real/dev/fd"
for stream in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${stream%:*}" "$real/dev/${stream#*:}"; done
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$real/dev/pts"
mount -t tmpfs none "$real/dev/shm"
mount -t mqueue none "$real/dev/mqueue"
[ ! -d "$tree/dev" ] || (cd "$tree/dev" && find . -type f) | while read -r node; do
  read -r kind number mode < "$tree/dev/$node"
  case $kind in char) kind=c ;; *) kind=b ;; esac
  mkdir -p "$(dirname "$real/dev/$node")"
  rm -f "$real/dev/$node"
  mknod -m "$mode" "$real/dev/$node" $kind "${number%:*}" "${number#*:}"
done
mount --rbind "$real/dev" /dev

ip link set lo up
# -force: what this kernel cannot make is told, and left out.
ip -force -batch "$tree/links"

for directory in /run /var/lib /var/log; do mount -t tmpfs none $directory; done
mkdir -p /var/lib/kubelet /run/cluster /run/tmp
mount --make-rshared /
