#!/usr/bin/env bash
#! Owns the reference figures of the guest's RDMA devices: ib_write_bw and ib_send_lat, every rail and size in turn, the
#! whole of it several times over, because under emulation a figure is only worth its place beside the others of its run.
#! Runs inside: in one VM between two processes, or as both commands of `vm.sh pair` (a serves, b measures).
#!
#!   vm.sh run  --share /tmp/p --rail rxe:4096 --rail siw -- tests/testbed/vm-perftest.sh --rounds 5
#!   vm.sh pair --share /tmp/p --rail rxe:4096 --rail siw -- tests/testbed/vm-perftest.sh ::: tests/testbed/vm-perftest.sh
#!   tests/testbed/perftest_table.py /tmp/p/perftest.jsonl      (of a pair: /tmp/p/b/perftest.jsonl)
#!
#!   --rounds N     default 3
#!   --bw "SIZE…"   bytes, default "4096 65536 262144 1048576"     --lat "SIZE…"   default "64 4096"
#!   --also SCRIPT  after each round of a rail, on every host: SCRIPT RAIL ROUND. What it prints on the measuring host
#!                  are lines like the reference's own, with another "tool", so that the table puts them side by side.
#!
#! A line: {"tool": "ib_write_bw", "device": "rxe0", "kind": "rxe", "mtu": 4096, "hosts": 1, "bytes": 65536, "round": 1,
#! "mib_per_s": 61.2}, or "us" (typical) and "us_p99" in place of mib_per_s. MiB is 2^20, as perftest's own "MB".
set -euo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=vm-faults.sh
. "$HERE/vm-faults.sh"
# shellcheck source=vm-meet.sh
. "$HERE/vm-meet.sh"

ROUNDS=3 BANDWIDTH='4096 65536 262144 1048576' LATENCY='64 4096' ALSO=''
# What one bandwidth figure moves, and how many pings a latency is made of: about a second at 60 MiB/s between processes
# and 10 MiB/s between VMs. A few thousand iterations are enough for the smallest messages.
BANDWIDTH_BYTES=$((32 << 20)) ITERATIONS_MAX=4000 LATENCY_ITERATIONS=500
ATTEMPT_SECONDS=40
while [ $# -gt 0 ]; do
  case $1 in
    --rounds) ROUNDS=$2 ;;
    --bw) BANDWIDTH=$2 ;;
    --lat) LATENCY=$2 ;;
    --also) ALSO=$2 ;;
    *) echo "vm-perftest: no option '$1'" >&2; exit 2 ;;
  esac
  shift 2
done

LINES_FILE=$VM_SHARE/perftest.jsonl
LOG=$(mktemp -d)
port=18515
HOSTS=1
if [ -n "${VM_COMMON:-}" ]; then HOSTS=2 BANDWIDTH_BYTES=$((8 << 20)) LATENCY_ITERATIONS=200; fi
# Which side of a measurement this host is; a lone VM is both.
serves() { [ "$VM_SIDE" = a ]; }
measures() { [ "$HOSTS" = 1 ] || [ "$VM_SIDE" = b ]; }

fail() { echo "vm-perftest: $*" >&2; cat "$LOG"/* >&2; exit 1; }

# measure_once RAIL TOOL BYTES ITERATIONS: one figure; prints perftest's line of figures on the measuring host. Every
# measurement has a port of its own, so the client can't meet the server of the one before.
measure_once() {
  local server=0 options
  port=$((port + 1))
  # iWARP connects through rdma_cm only (-R); rxe does as well. A pair's hosts have one CPU each, and a process that
  # polls takes it from the kernel: there, sleep on completions (-e, which WRITE has not). Not in a lone VM, although
  # polling starves siw's threads as well (milliseconds): its client crashed with -e, on a loaded machine.
  options=(-R -d "${RAIL_DEVICE[$1]}" -s "$3" -n "$4" -p "$port" -F)
  if [ "$2" = ib_send_lat ] && [ "$HOSTS" = 2 ]; then options+=(-e); fi
  if serves; then
    timeout "$ATTEMPT_SECONDS" "$2" "${options[@]}" >"$LOG/server" 2>&1 & server=$!
    await_listen $port || fail "$2 ${options[*]} does not listen"
    [ "$HOSTS" = 1 ] || meet_signal "perftest-$port"
  fi
  if measures; then
    [ "$HOSTS" = 1 ] || meet_await "perftest-$port" "$ATTEMPT_SECONDS" >/dev/null || fail "host a does not serve"
    timeout "$ATTEMPT_SECONDS" "$2" "${options[@]}" "${RAIL_PEER[$1]}" >"$LOG/client" 2>&1 || {
      echo "vm-perftest: $2 ${options[*]} ${RAIL_PEER[$1]} ended with $?" >&2
      if [ "$server" != 0 ]; then kill "$server" 2>/dev/null || true; wait "$server" || true; fi
      return 1
    }
    awk '/#bytes/ { found = 1; next } found && $1 ~ /^[0-9]+$/ { print; exit }' "$LOG/client"
  fi
  [ "$server" = 0 ] || wait "$server" || { echo "vm-perftest: $2 ${options[*]}, serving, failed" >&2; return 1; }
}

# perftest's connections fail now and then on a loaded machine. Two hosts would have to agree on another try: none there.
measure() {
  local attempt
  for attempt in 1 2 3; do
    if measure_once "$@"; then return 0; fi
    if [ "$HOSTS" = 2 ] || [ "$attempt" = 3 ]; then fail "$2 over ${RAIL_DEVICE[$1]}: no figure after $attempt attempts"; fi
  done
}

line() { # TOOL RAIL BYTES ROUND FIGURES
  [ "$HOSTS" = 1 ] || [ "$VM_SIDE" = b ] || return 0
  printf '{"tool": "%s", "device": "%s", "kind": "%s", "mtu": %d, "hosts": %d, "bytes": %d, "round": %d, %s}\n' \
    "$1" "${RAIL_DEVICE[$2]}" "${RAIL_KIND[$2]}" "${RAIL_MTU[$2]}" "$HOSTS" "$3" "$4" "$5" | tee -a "$LINES_FILE"
}

one_round() { # RAIL ROUND
  local bytes iterations figures
  for bytes in $BANDWIDTH; do
    iterations=$((BANDWIDTH_BYTES / bytes))
    [ $iterations -le $ITERATIONS_MAX ] || iterations=$ITERATIONS_MAX
    # #bytes #iterations peak average rate
    measure "$1" ib_write_bw "$bytes" $iterations >"$LOG/figures"
    read -ra figures <"$LOG/figures" || true
    line ib_write_bw "$1" "$bytes" "$2" "\"mib_per_s\": ${figures[3]:-null}"
  done
  for bytes in $LATENCY; do
    # #bytes #iterations min max typical average deviation 99% 99.9%
    measure "$1" ib_send_lat "$bytes" $LATENCY_ITERATIONS >"$LOG/figures"
    read -ra figures <"$LOG/figures" || true
    line ib_send_lat "$1" "$bytes" "$2" "\"us\": ${figures[4]:-null}, \"us_p99\": ${figures[7]:-null}"
  done
  if [ -n "$ALSO" ]; then
    "$ALSO" "$1" "$2" >"$LOG/also" || fail "$ALSO $1 $2 failed"
    if measures; then tee -a "$LINES_FILE" <"$LOG/also"; fi
  fi
}

: >"$LINES_FILE"
for ((round = 1; round <= ROUNDS; round++)); do
  for rail in "${!RAIL_KIND[@]}"; do
    [ "${RAIL_KIND[$rail]}" = none ] || one_round "$rail" "$round"
  done
done
