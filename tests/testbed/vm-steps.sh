#!/usr/bin/env bash
#! Owns the steps that vm-suite.sh runs in the guests: a function each, under the name that its table uses, with what
#! follows a colon as its argument (`conformance_verbs:1`, on rail 1). Each leaves `STEP STATUS SECONDS` in $VM_SHARE/results; the steps after a failed one run all the same.
#!
#!   vm.sh run --rail siw -- tests/testbed/vm-steps.sh rdma_ping       one step by hand
#!   VERBS3=target/release/verbs3 vm.sh run -- tests/testbed/vm-steps.sh doctor
#!
#! On two hosts, both run the same step and know by VM_SIDE what is theirs. VERBS3, CONFORMANCE and UNIT (of rdma) are the binaries.
set -uo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=vm-faults.sh
. "$HERE/vm-faults.sh"
# shellcheck source=vm-meet.sh
. "$HERE/vm-meet.sh"
# shellcheck source=vm-system.sh
. "$HERE/vm-system.sh"
WORK=$(mktemp -d)
# The interpreter itself and nothing of what a machine adds at its start: found by a shim (pyenv), it took 15 s under emulation.
PYTHON=("${VM_PYTHON:-python3}" -I -S)
RPING_PORT=7174

say() { echo "$VM_SIDE: $*"; }
on_rdma_rails() { local rail; for rail in "${!RAIL_KIND[@]}"; do [ "${RAIL_KIND[$rail]}" = none ] || "$@" "$rail" || return 1; done; }
# Both hosts of a pair are here before either goes on.
both_reach() { # NAME [SECONDS]
  [ -n "${VM_COMMON:-}" ] || return 0
  meet_signal "$1-$VM_SIDE"
  if [ "$VM_SIDE" = a ]; then meet_await "$1-b" "${2:-60}" >/dev/null; else meet_await "$1-a" "${2:-60}" >/dev/null; fi
}

# ---- the ground ----------------------------------------------------------------------------------------------------

# Every rail's device is there, active, and has the RDMA MTU it was asked for.
devices() {
  rdma link
  on_rdma_rails has_its_mtu
}
has_its_mtu() {
  local text; text=$(ibv_devinfo -d "${RAIL_DEVICE[$1]}") || return 1
  if grep -q 'state:.*PORT_ACTIVE' <<<"$text" && grep -qE "active_mtu:\s+${RAIL_MTU[$1]} " <<<"$text"; then return 0; fi
  echo "${RAIL_DEVICE[$1]} is not active with MTU ${RAIL_MTU[$1]}: $text" >&2
  return 1
}

# The binary starts, and names each device.
doctor() {
  "$VERBS3" doctor >"$WORK/doctor" || [ $? -le 1 ] || { cat "$WORK/doctor"; return 1; }
  cat "$WORK/doctor"
  "$VERBS3" doctor --json >"$WORK/doctor.json"
  on_rdma_rails is_named && on_rdma_rails is_told_with_its_mtu
}
# As the device says, by ibv_query_port.
is_told_with_its_mtu() {
  "${PYTHON[@]}" -c 'import json, sys
[port] = [port for device in json.load(open(sys.argv[1]))["devices"] if device["name"] == sys.argv[2] for port in device["ports"]]
sys.exit(port["active_mtu"] != int(sys.argv[3]) and "%s: active_mtu is %s" % (sys.argv[2], port["active_mtu"]))' "$WORK/doctor.json" "${RAIL_DEVICE[$1]}" "${RAIL_MTU[$1]}"
}
is_named() { grep -q "${RAIL_DEVICE[$1]}" "$WORK/doctor" || { echo "doctor does not name ${RAIL_DEVICE[$1]}" >&2; return 1; }; }

# Bytes by RDMA READ and WRITE, checked by rping (-V), over every rail; and nothing of the kernel's is left over.
rdma_ping() {
  resources >"$WORK/ping-before"
  on_rdma_rails ping_rail && resources_return_to "$WORK/ping-before"
}
ping_rail() { # RAIL
  local server=0 status=0
  if [ "$VM_SIDE" = a ]; then
    timeout 120 rping -s -a "${RAIL_ADDRESS[$1]}" -S 4096 -P >"$WORK/server" 2>&1 & server=$!
    await_listen $RPING_PORT || return 1
  fi
  both_reach "ping-$1" || return 1
  if [ "$VM_SIDE" = b ] || [ -z "${VM_COMMON:-}" ]; then
    timeout 60 rping -c -a "${RAIL_PEER[$1]}" -C 20 -S 4096 -V >"$WORK/client" 2>&1 ||
      { echo "rping over ${RAIL_DEVICE[$1]} failed:" >&2; tail -n 5 "$WORK/client" >&2; status=1; }
  fi
  both_reach "pinged-$1" 90 || status=1
  if [ "$server" != 0 ]; then kill "$server"; wait "$server"; fi 2>/dev/null
  return "$status"
}

# perftest's figures of every rail, for the table beside ours.
perftest() { "$HERE/vm-perftest.sh" --rounds "${PERFTEST_ROUNDS:-2}" --bw '65536 1048576' --lat 4096; }

# ---- the transports ------------------------------------------------------------------------------------------------

conformance_tcp() { VERBS3_TEST_ADDRESS=${RAIL_ADDRESS[0]} "$CONFORMANCE" --test-threads=2; }

# The verbs cases over one rail's device: ignored where there is none, so asked for here. None run is none proven.
conformance_verbs() { # RAIL
  resources >"$WORK/verbs-before"
  VERBS3_TEST_ADDRESS=${RAIL_ADDRESS[$1]} timeout 800 "$CONFORMANCE" --ignored verbs --skip device_removal --skip path_mtu --test-threads=2 | tee "$WORK/verbs"
  [ "${PIPESTATUS[0]}" = 0 ] || return 1
  grep -qE '^test result: ok\. [1-9]' "$WORK/verbs" || { echo "the conformance suite has no verbs cases" >&2; return 1; }
  resources_return_to "$WORK/verbs-before"
}

# The same, with memory windows where the device has them, and with tags for what is written.
conformance_verbs_windows() { VERBS3_TEST_WINDOWS=1 VERBS3_TEST_TAGS=1 conformance_verbs "$1"; } # RAIL
# The same, as with a device that has nothing beyond what every device has.
conformance_verbs_plain() { VERBS3_TEST_PLAIN=1 conformance_verbs "$1"; } # RAIL

# What a worker that knows the secret can write, and what it can't; how receive buffers are shared.
hostile() { # RAIL
  VERBS3_TEST_ADDRESS=${RAIL_ADDRESS[$1]} timeout 600 "$UNIT" --ignored verbs:: --skip fake_devices --skip seal_costs --skip client_memory --skip tests::gateway_ --test-threads=1 | tee "$WORK/hostile"
  grep -qE '^test result: ok\. [1-9]' "$WORK/hostile"
}

# Writes into memory of clients that are no members: every byte, and none behind the end. RoCE alone: iWARP has no GIDs.
client_memory() { # RAIL
  resources >"$WORK/client-before"
  VERBS3_TEST_ADDRESS=${RAIL_ADDRESS[$1]} timeout 600 "$UNIT" --ignored verbs::tests::client_memory --test-threads=1 | tee "$WORK/client"
  grep -qE '^test result: ok\. [1-9]' "$WORK/client" && resources_return_to "$WORK/client-before"
}

# In a process of its own: a metric tells what the path MTU is.
path_mtu() { # RAIL
  VERBS3_TEST_ADDRESS=${RAIL_ADDRESS[$1]} "$CONFORMANCE" --ignored path_mtu --nocapture --test-threads=1 | tee "$WORK/mtu"
  grep -qE '^test result: ok\. 1 passed' "$WORK/mtu"
}

# In a process of its own: it takes the device away and makes it anew.
device_late() { # RAIL
  resources >"$WORK/late-before"
  VERBS3_TEST_ADDRESS=${RAIL_ADDRESS[$1]} VERBS3_TEST_DEVICE=${RAIL_DEVICE[$1]} "$CONFORMANCE" --ignored device_that_comes_late --test-threads=1 | tee "$WORK/late"
  grep -qE '^test result: ok\. 1 passed' "$WORK/late" && await_state "$1" ACTIVE && resources_return_to "$WORK/late-before"
}

# In a process of its own: the device goes when the process ends, and is made anew.
device_removal() { # RAIL
  VERBS3_TEST_ADDRESS=${RAIL_ADDRESS[$1]} "$CONFORMANCE" --ignored device_removal --test-threads=1 | tee "$WORK/removal"
  grep -qE '^test result: ok\. 1 passed' "$WORK/removal" || return 1
  for _ in $(seq 100); do rdma link show "${RAIL_DEVICE[$1]}/1" 2>/dev/null | grep -q . || break; sleep 0.1; done
  device_add "$1"
}

# ---- the faults themselves -----------------------------------------------------------------------------------------

# Each fault of vm-faults.sh does what it says to a running stream of pings, so that a test that uses it proves something.
faults() {
  resources >"$WORK/faults-before"
  on_rdma_rails fault_rail && resources_return_to "$WORK/faults-before" 30
}
pings() { grep -c 'ping data' "$WORK/pings"; }
flows() { local before=$1; for _ in $(seq 150); do [ "$(pings)" -le "$before" ] || return 0; sleep 0.2; done; echo "no pings" >&2; return 1; }
fault_rail() { # RAIL
  local server client status=0
  if [ "$VM_SIDE" = a ]; then
    timeout 120 rping -s -a "${RAIL_ADDRESS[$1]}" -P >"$WORK/server" 2>&1 & server=$!
    await_listen $RPING_PORT || status=1
    both_reach "faults-begin-$1"
    both_reach "faults-end-$1" 120 || status=1
    kill "$server" 2>/dev/null; wait "$server" 2>/dev/null
    return "$status"
  fi
  both_reach "faults-begin-$1"
  timeout 120 stdbuf -oL rping -c -a "${RAIL_PEER[$1]}" -v -C 1000000 >"$WORK/pings" 2>&1 & client=$!
  lost_packets_stop_the_stream_and_healing_resumes_it "$1" && removal_ends_it "$1" "$client" || status=1
  kill "$client" 2>/dev/null; wait "$client" 2>/dev/null
  both_reach "faults-end-$1"
  return "$status"
}
lost_packets_stop_the_stream_and_healing_resumes_it() {
  local before
  flows 0 || { cat "$WORK/pings" >&2; return 1; }
  drop_packets "$1" 100 both
  sleep 0.5; before=$(pings); sleep 1
  [ "$(pings)" = "$before" ] || { echo "${RAIL_DEVICE[$1]}: pings pass although every packet is dropped" >&2; return 1; }
  heal "$1"
  flows "$before" || { echo "${RAIL_DEVICE[$1]}: no pings after healing" >&2; return 1; }
  say "${RAIL_DEVICE[$1]}: loss and healing work"
}
removal_ends_it() { # RAIL CLIENT
  device_remove "$1" || return 1
  ! kill -0 "$2" 2>/dev/null || wait "$2" || true
  ! rdma link show "${RAIL_DEVICE[$1]}/1" 2>/dev/null | grep -q . || { echo "${RAIL_DEVICE[$1]} is still there" >&2; return 1; }
  device_add "$1" && link_down "$1" && link_up "$1" && say "${RAIL_DEVICE[$1]}: went and returned, as its link did"
}

# ---- running them --------------------------------------------------------------------------------------------------

rm -f "$VM_SHARE/results"
failures=0
for step; do
  [ "$(type -t "${step%%:*}")" = function ] || { echo "vm-steps: no step '$step'" >&2; exit 2; }
  echo "=== $step"
  began=$SECONDS status=0
  argument=${step#"${step%%:*}"}
  "${step%%:*}" "${argument#:}" || status=$?
  echo "$step $status $((SECONDS - began))" >>"$VM_SHARE/results"
  [ "$status" = 0 ] || failures=$((failures + 1))
done
[ "$failures" = 0 ]
