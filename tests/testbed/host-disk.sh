#!/usr/bin/env bash
#! Owns the disk of a whole Debian host: systemd is its first process, and it has a kernel and an initramfs of its own, which
#! initramfs-tools makes. Knows no test.
#
#   host-disk.sh DISK FILES     DISK takes the image (ext4), DISK.kernel and DISK.initrd what boots it; FILES: a tree that is laid over the root
set -euo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
[ $# -eq 2 ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }
DISK=$1 FILES=$2 SIZE=3G

# With documents, since packages bring examples. One NIC's driver is kept out of the initramfs, so that its device appears late.
# shellcheck disable=SC2016 # the root's own shell expands it
MAKE='set -e
rm -f /etc/dpkg/dpkg.cfg.d/99mmdebstrap
apt-get update -qq
apt-get install -y -q --no-install-recommends systemd systemd-sysv udev dbus kmod iproute2 ethtool nftables procps adduser curl \
    libgcc-s1 qemu-guest-agent rdma-core ibverbs-providers librdmacm1 etcd-server openssl initramfs-tools
printf "#!/bin/sh\n[ \"\$1\" = prereqs ] || find \"\$DESTDIR\" -name e1000e.ko -delete\n" >/etc/initramfs-tools/hooks/late-nic
chmod 755 /etc/initramfs-tools/hooks/late-nic
apt-get install -y -q --no-install-recommends linux-image-amd64'

archive=$("$HERE/debian-root.sh" "$MAKE")
tree=$(mktemp -d "$DISK.tree.XXXXXX")
trap 'rm -rf -- "$tree"' EXIT
tar -C "$tree" -xf "$archive" --exclude='./dev/*'
cp "$tree"/boot/vmlinuz-* "$DISK.kernel"
cp "$tree"/boot/initrd.img-* "$DISK.initrd"
tr -d - </proc/sys/kernel/random/uuid >"$tree/etc/machine-id"
cp -a "$FILES/." "$tree/"
rm -f -- "$DISK"
mkfs.ext4 -q -F -d "$tree" "$DISK" "$SIZE"
