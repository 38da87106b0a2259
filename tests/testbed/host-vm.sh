#!/usr/bin/env bash
#! Owns the host that host_vm.py follows: its disk with our package beside it, the units that stand for what a host has besides (a
#! store, a container runtime, soft-RoCE on both NICs), and its network. Needs root, since it makes a root file system.
#
#   host-vm.sh DIR     DIR takes disk, package and console; DIR/not-proven what such a machine does not have
set -euo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/../..")
# shellcheck source=tests/testbed/built.sh
. "$HERE/built.sh"
[ $# -eq 1 ] || usage
export PYTHONDONTWRITEBYTECODE=1
VERBS3=$(binary)
VENV=$("$HERE/venv.sh" deploy)
mkdir -p "$1"; DIR=$(readlink -f "$1")

files=$DIR/files units=$DIR/files/etc/systemd/system
rm -rf -- "$files"; mkdir -p "$files/root" "$units"/{multi-user,network-online}.target.wants "$files/etc/systemd/network"
deb=$(BINARY="$VERBS3" COMPRESSION=gzip "$ROOT/deploy/debian/build.sh" "$DIR")
cp "$deb" "$files/root/verbs3.deb"
echo gpu-01 >"$files/etc/hostname"
number=0
for driver in virtio_net e1000e; do
  printf '[Match]\nDriver=%s\n[Network]\nAddress=10.77.%d.2/24\n' "$driver" $number >"$files/etc/systemd/network/$driver.network"
  number=$((number + 1))
done
cat >"$units/soft-roce.service" <<'UNIT'
[Unit]
After=systemd-networkd.service systemd-udev-settle.service
Wants=systemd-udev-settle.service
Before=network-online.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/bash -ec 'modprobe -a crc32_generic rdma_rxe; rdma link add rxe0 type rxe netdev "$$(basename /sys/bus/virtio/drivers/virtio_net/*/net/*)"; rdma link add rxe1 type rxe netdev "$$(basename /sys/bus/pci/drivers/e1000e/*/net/*)"'
UNIT
printf '[Service]\nExecStart=/bin/sleep infinity\n' >"$units/containerd.service"
mkdir -p "$files/usr/lib/systemd/system"; mv "$units/containerd.service" "$files/usr/lib/systemd/system/"
cat >"$units/store.service" <<'UNIT'
[Service]
ExecStart=/usr/bin/verbs3 dev --no-demo --listen 127.0.0.1:7480 --dir /srv/store --ready-file /srv/store/ready
[Install]
WantedBy=multi-user.target
UNIT
for unit in systemd-networkd containerd; do ln -s "/lib/systemd/system/$unit.service" "$units/multi-user.target.wants/"; done
ln -s ../soft-roce.service "$units/multi-user.target.wants/"
ln -s /lib/systemd/system/systemd-networkd-wait-online.service "$units/network-online.target.wants/"

"$HERE/host-disk.sh" "$DIR/host.disk" "$files"
PYTHONPATH=$ROOT/tests/deploy "$VENV/bin/python" "$HERE/host_vm.py" "$DIR/host.disk" "$deb" "$DIR"
