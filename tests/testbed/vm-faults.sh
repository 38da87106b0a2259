#!/usr/bin/env bash
#! Owns what can be done to a guest's rails, and what can be counted on them: links and devices that go and return,
#! lost and late packets, resources of the kernel. Sourced inside the guest by the tests and by vm-network.sh; it needs
#! the VM_* variables that vm.sh sets. Deliberately not here: what a test concludes.
#
# A rail is its number: 0, 1 …. What can be done, and what was seen of it (6.1, rping running):
#   link_down 0, link_up 0              this host's end: its netdev goes, its RDMA port is DOWN, the peer sees silence.
#                                       siw's connections of this host end at once. rxe's don't: work requests retry for
#                                       as long as rdma_cm's default ack timeout says, above 40 s, on both hosts
#   device_remove 0, device_add 0       the RDMA device goes (hot unplug), the netdev stays. rdma_cm's users get
#                                       DEVICE_REMOVAL at once, but the device goes, and device_remove returns, only
#                                       when every process has closed its context: run it in the background
#   drop_packets 0 100 [in|out|both]    lost in silence, port and device stay up; `in` and `both` take 100 only.
#                                       A second of it is survived by both kinds
#   delay_packets 0 50                  ms, on the way out
#   heal 0                              no losses, no delay
# Between two processes of one VM, packets don't reach the wire: losses and delays need `vm.sh pair`.

# ---- rails ---------------------------------------------------------------------------------------------------------

# Arrays by rail, made once: a fork is dear under emulation. RAIL_PEER is the other host's address; in a lone VM there
# is no other host, and its own address stands for it.
RAIL_KIND=() RAIL_MTU=() RAIL_NETDEV=() RAIL_DEVICE=() RAIL_ADDRESS=() RAIL_PEER=()
# shellcheck disable=SC2034 # read by whoever sources this
describe_rails() {
  local text rail=0 mine=2 other=3
  if [ "$VM_SIDE" = b ]; then mine=3 other=2; elif [ -z "${VM_COMMON:-}" ]; then other=2; fi
  for text in $VM_RAILS; do
    RAIL_NETDEV[rail]=eth$rail
    if [[ $text = *@veth ]]; then RAIL_NETDEV[rail]=veth$rail; fi
    text=${text%@*}
    RAIL_KIND[rail]=${text%:*} RAIL_MTU[rail]=1024
    if [[ $text = *:* ]]; then RAIL_MTU[rail]=${text#*:}; fi
    RAIL_DEVICE[rail]=${text%:*}$rail RAIL_ADDRESS[rail]=10.77.$rail.$mine RAIL_PEER[rail]=10.77.$rail.$other
    rail=$((rail + 1))
  done
  [ -z "${VM_ADDRESS:-}" ] || RAIL_ADDRESS[0]=$VM_ADDRESS RAIL_PEER[0]=$VM_ADDRESS
}
describe_rails

load_module() { modprobe -d "$VM_MODULES" -S "$VM_KERNEL" "$1"; }

# await_state RAIL STATE: until its port is ACTIVE or DOWN, half a minute at the most.
await_state() {
  local device=${RAIL_DEVICE[$1]}
  for _ in $(seq 600); do
    if rdma link show "$device/1" 2>/dev/null | grep -q "state $2"; then return 0; fi
    sleep 0.05
  done
  echo "$device does not become $2: $(rdma link show)" >&2
  return 1
}

# await_listen PORT [SECONDS]: until rdma_cm listens there on this host, default 60 s. Clients must not try before: one
# that is refused by siw hangs in its clean-up (rping), or takes the server along (perftest).
await_listen() {
  local deadline=$((SECONDS + ${2:-60}))
  until rdma resource show cm_id | grep -q "state LISTEN .*:$1 "; do
    [ $SECONDS -lt $deadline ] || { echo "nobody listens on port $1: $(rdma resource show cm_id)" >&2; return 1; }
    sleep 0.1
  done
}

# ---- faults --------------------------------------------------------------------------------------------------------

link_down() {
  ip link set "${RAIL_NETDEV[$1]}" down
  [ "${RAIL_KIND[$1]}" = none ] || await_state "$1" DOWN
}

link_up() {
  ip link set "${RAIL_NETDEV[$1]}" up
  [ "${RAIL_KIND[$1]}" = none ] || await_state "$1" ACTIVE
}

device_remove() { rdma link delete "${RAIL_DEVICE[$1]}"; }

device_add() {
  local kind=${RAIL_KIND[$1]}
  if [ "$kind" = siw ]; then load_module crc32c_generic; load_module siw; fi
  rdma link add "${RAIL_DEVICE[$1]}" type "$kind" netdev "${RAIL_NETDEV[$1]}"
  await_state "$1" ACTIVE
}

drop_packets() { # RAIL PERCENT [in|out|both]
  local netdev=${RAIL_NETDEV[$1]} way=${3:-out}
  case $way in in | out | both) ;; *) echo "drop_packets: in, out or both, not '$way'" >&2; return 2 ;; esac
  if [ "$way" != in ]; then
    load_module sch_netem
    tc qdisc replace dev "$netdev" root netem loss "$2%"
  fi
  if [ "$way" != out ]; then
    [ "$2" = 100 ] || { echo "drop_packets: what comes in is lost wholly (100) or not" >&2; return 2; }
    load_module sch_ingress; load_module cls_matchall; load_module act_gact
    tc qdisc add dev "$netdev" ingress
    tc filter add dev "$netdev" ingress matchall action drop
  fi
}

delay_packets() { # RAIL MILLISECONDS
  load_module sch_netem
  tc qdisc replace dev "${RAIL_NETDEV[$1]}" root netem delay "$2ms"
}

heal() {
  local netdev=${RAIL_NETDEV[$1]}
  tc qdisc del dev "$netdev" root 2>/dev/null || true
  tc qdisc del dev "$netdev" ingress 2>/dev/null || true
}

# ---- counts --------------------------------------------------------------------------------------------------------

# What the kernel holds for each device, one `DEVICE KIND COUNT` a line: pd, cq, qp, cm_id, mr, ctx, srq.
resources() {
  rdma resource show | sed -E 's/^[0-9]+: ([^:]+): (.*)/\1 \2/' |
    awk '{ for (i = 2; i < NF; i += 2) print $1, $i, $(i + 1) }' | sort
}

# resources_return_to FILE [SECONDS]: until they are again what `resources >FILE` wrote, default 60 s; else the difference, and 1.
resources_return_to() {
  local deadline=$((SECONDS + ${2:-60})) now
  [ -s "$1" ] || { echo "$1 has no counts: nothing to compare with" >&2; return 1; }
  while now=$(resources); [ "$now" != "$(cat "$1")" ]; do
    if [ $SECONDS -ge $deadline ]; then
      echo "resources did not return to where they were (< before, > now):" >&2
      diff "$1" <(echo "$now") | grep '^[<>]' >&2
      return 1
    fi
    sleep 0.1
  done
}

# The kernel's own counters of a rail's RDMA port and netdev, one `NAME VALUE` a line.
port_counters() { # RAIL
  grep -s . "/sys/class/infiniband/${RAIL_DEVICE[$1]}/ports/1"/{counters,hw_counters}/* \
    "/sys/class/net/${RAIL_NETDEV[$1]}/statistics"/{rx,tx}_{bytes,packets,dropped} |
    sed -E 's#^.*/([^/]+):#\1 #; /^lifespan /d'
}
