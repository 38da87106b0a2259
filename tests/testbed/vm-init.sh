#!/bin/busybox sh
# shellcheck shell=dash
#! Owns the guest's first minutes: process 1 of the VM that vm.sh boots, alone in the initramfs with busybox and modules.
#! Turns the host's root into the guest's (read-only over 9p, a tmpfs above it), sets up the wires that the host's
#! `network` script describes, runs `job`, leaves its exit status in the share and powers off. Knows no test.

export PATH=/bin
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /host /upper /root /share
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do insmod "/modules/$module" || echo "init: module $module does not load"; done </modules.list

# cache=none: what the guest writes is at once in the host's file. The root is read only, and cached.
mount -t 9p -o trans=virtio,version=9p2000.L,msize=1048576,cache=none share /share || { echo "init: no share"; poweroff -f; }
give_up() {
  echo "init: $*" >/share/failed
  sync
  poweroff -f
}
mount -t 9p -o trans=virtio,version=9p2000.L,msize=1048576,cache=loose,ro host /host || give_up "the host's root can't be mounted"
mount -t tmpfs -o size=90% tmpfs /upper || give_up "no tmpfs"
mkdir /upper/data /upper/work
mount -t overlay -o lowerdir=/host,upperdir=/upper/data,workdir=/upper/work overlay /root || give_up "the overlay can't be mounted"
for folder in proc sys dev run tmp; do mkdir -p "/root/$folder"; done
mount -t proc proc /root/proc
mount -t sysfs sysfs /root/sys
mount -t devtmpfs devtmpfs /root/dev
mount -t tmpfs tmpfs /root/run
mkdir -p /root/dev/shm /root/dev/pts /root/run/vm /root/run/lock
mount -t tmpfs tmpfs /root/dev/shm
mount -t devpts devpts /root/dev/pts
mount --bind /share /root/run/vm
ln -sf /proc/self/fd /root/dev/fd
hostname vm
ulimit -l unlimited

# Not chroot alone: who enters a container's namespaces gets their real root, which this makes it. This script keeps its own.
cd /root || give_up "no root"
mount --move . / || give_up "the root can't be moved"
chroot . /bin/bash /run/vm/network >/share/network.log 2>&1 || give_up "the network: $(cat /share/network.log)"
uname -r >/share/booted
chroot . /bin/bash /run/vm/job >/share/stdout 2>/share/stderr </dev/null
echo $? >/share/status
dmesg >/share/dmesg
sync
poweroff -f
