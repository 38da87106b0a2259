#!/usr/bin/env bash
#! Owns the guest's wires: names, addresses, MTUs and RDMA devices of its rails. Process 1 of the guest runs it before
#! the command, with VM_SIDE, VM_RAILS, VM_KERNEL and VM_MODULES set. Deliberately not here: breaking them (vm-faults.sh).
#
# Rail i has the subnet 10.77.i.0/24 and the netdev eth<i> (veth<i> if it says @veth); host a is .2, host b is .3.
# Its RDMA device is named rxe<i> or siw<i>.
set -euo pipefail
export PATH=/usr/sbin:/usr/bin:/sbin:/bin

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=vm-faults.sh
. "$HERE/vm-faults.sh"

# The Ethernet MTU that gives an RDMA MTU: the payload, and up to 104 bytes of headers.
ethernet_mtu() { case $1 in 1024) echo 1500 ;; 2048) echo 2200 ;; 4096) echo 4200 ;; esac; }

rail_up() { # RAIL
  local netdev=${RAIL_NETDEV[$1]} mtu
  mtu=$(ethernet_mtu "${RAIL_MTU[$1]}")
  if [[ $netdev = veth* ]]; then
    load_module veth
    ip link add "$netdev" type veth peer name "peer$1"
    ip link set "peer$1" up mtu "$mtu"
  fi
  ip address add "${RAIL_ADDRESS[$1]}/24" dev "$netdev"
  ip link set "$netdev" up mtu "$mtu"
  [ "${RAIL_KIND[$1]}" = none ] || device_add "$1"
}

hostname "vm-$VM_SIDE"
ip link set lo up
for rail in "${!RAIL_KIND[@]}"; do rail_up "$rail"; done
if [ -n "${VM_COMMON:-}" ]; then
  mkdir -p "$VM_COMMON"
  mount -t 9p -o trans=virtio,version=9p2000.L,msize=1048576,cache=none common "$VM_COMMON"
fi
