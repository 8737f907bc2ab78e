#!/bin/sh
# machine.sh ROOT PROGRAM …: the first program of a virtual machine (tests/vm/run with VM_ROOT=1). Makes the root of this
# computer the machine's, below a layer of memory, prepares it for a cluster, as host.sh does for a recorded host, and
# goes on with PROGRAM in it. ROOT is the repository.
set -eu
if [ "${INSIDE:-}" != 1 ]; then
  for module in overlay veth bridge; do modprobe $module; done
  mkdir -p /mnt/below /mnt/above /mnt/whole
  mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,ro,cache=loose root /mnt/below
  mount -t tmpfs -o size=3g none /mnt/above
  mkdir /mnt/above/upper /mnt/above/work
  mount -t overlay -o lowerdir=/mnt/below,upperdir=/mnt/above/upper,workdir=/mnt/above/work overlay /mnt/whole
  for directory in proc sys dev; do mount --rbind /$directory /mnt/whole/$directory; done
  for directory in cmd out; do
    mkdir -p /mnt/whole/$directory
    mount --bind /$directory /mnt/whole/$directory
  done
  mount -t tmpfs none /mnt/whole/run
  mkdir /mnt/whole/run/lock
  cp /bin/open-vfio /mnt/whole/run/
  # The root of a machine in memory cannot be left, and who joins the namespace of a container that was only moved to another
  # directory finds himself outside of it. In a namespace of its own, this computer's root is put over the machine's.
  export INSIDE=1
  exec unshare -m sh -c '
    mount --make-rprivate /
    cd /mnt/whole
    mount --move . /
    exec chroot . /bin/sh "$1/tests/cluster/machine.sh" "$@"' sh "$@"
fi

shift
unset LD_LIBRARY_PATH
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
hostname node1
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
  echo "+$controller" > /sys/fs/cgroup/cgroup.subtree_control
done
for directory in /var/lib /var/log; do mount -t tmpfs none $directory; done
mkdir -p /var/lib/kubelet /run/cluster /run/tmp
mount --make-rshared /
ip link add up0 type veth peer name up1
ip link set up1 up
ip link set up0 up
ip address add 192.168.77.2/24 dev up0
ip route add default via 192.168.77.1 dev up0
exec "$@"
