#!/usr/bin/env bash
#! Owns the comparison of the transports with what the network can do: verbs with perftest on the soft devices of the
#! VM, tcp with plain streams over loopback. Both sides of a ratio take turns, round by round, in one run; figures of
#! different runs are not comparable. Deliberately not here: how they are measured (`verbs3 bench fabric`, vm-perftest.sh).
#
#   fabric.sh verbs DIR [RAIL…]   in one VM, rails as for vm.sh; default rxe:4096 siw. DIR keeps all figures
#   fabric.sh pair DIR [RAIL…]    between two VMs
#   fabric.sh tcp DIR             two processes over loopback
#   ROUNDS=5 AT_LEAST=0.9         the last fails (1) where a ratio is below it; default none, and only reported
#   BUSY_POLL=100                 verbs and pair: verbs3 is measured twice, asleep and polling for at most so many µs
#
# Needs target/release/verbs3, or VERBS3=BINARY; verbs and pair also root, for the VM.
set -euo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/..")
BED=$ROOT/tests/testbed
VERBS3=${VERBS3:-${CARGO_TARGET_DIR:-$ROOT/target}/release/verbs3}
export VERBS3
ROUNDS=${ROUNDS:-5} AT_LEAST=${AT_LEAST:-} BUSY_POLL=${BUSY_POLL:-} DEPTH=${DEPTH:-16} SECONDS_EACH=${SECONDS_EACH:-1}
PORT=9410
BANDWIDTH='262144 1048576' LATENCY='64 4096'

usage() { sed -n 's/^#   //p' "${BASH_SOURCE[0]}" >&2; exit 2; }
die() { echo "fabric: $*" >&2; exit 1; }
numbers() { local IFS=,; echo "$*"; }

# start_host ADDRESS [OPTION…]: serves in the background as $HOST_PID; returns when it does.
start_host() {
  local address=$1 log; shift
  log=$(mktemp)
  "$VERBS3" bench fabric --serve --listen "$address:$PORT" "$@" >"$log" 2>&1 & HOST_PID=$!
  for _ in $(seq 200); do
    ! grep -q '^serving on' "$log" || { grep 'not served' "$log" >&2 || true; rm "$log"; return 0; }
    kill -0 "$HOST_PID" 2>/dev/null || break
    sleep 0.1
  done
  cat "$log" >&2; die "the serving side does not start"
}
stop_host() { kill "$HOST_PID"; wait "$HOST_PID" || true; }

# ---- in the guest, after each round of a rail: lines like perftest's own --------------------------------------------

also() { # RAIL ROUND
  # shellcheck source=../tests/testbed/vm-faults.sh
  . "$BED/vm-faults.sh"
  # shellcheck source=../tests/testbed/vm-meet.sh
  . "$BED/vm-meet.sh"
  measure_fabric "$1" "$2" verbs3
  [ -z "$BUSY_POLL" ] || measure_fabric "$1" "$2" verbs3-polled --busy-poll "$BUSY_POLL"
}

measure_fabric() { # RAIL ROUND TOOL [OPTION…]
  local json hosts=1 rail=$1 round=$2 tool=$3; shift 3
  [ -z "${VM_COMMON:-}" ] || hosts=2
  if [ "$VM_SIDE" = a ]; then start_host "${RAIL_ADDRESS[$rail]}" --rail "${RAIL_ADDRESS[$rail]}" --memory 64MiB "$@"; fi
  if [ "$hosts" = 2 ]; then
    if [ "$VM_SIDE" = a ]; then
      meet_signal "fabric-$tool-$rail-$round"
      meet_await "fabric-done-$tool-$rail-$round" 120 >/dev/null
      stop_host
      return 0
    fi
    meet_await "fabric-$tool-$rail-$round" 60 >/dev/null
  fi
  json=$VM_SHARE/fabric-$tool-${RAIL_DEVICE[$rail]}-$round.json
  # shellcheck disable=SC2086 # lists of sizes
  "$VERBS3" bench fabric "${RAIL_PEER[$rail]}:$PORT" --rail "${RAIL_ADDRESS[$rail]}" --ways verbs --directions read --no-plain \
    --sizes "$(numbers $LATENCY),$(numbers $BANDWIDTH)" --connections 1 --depth "$DEPTH" --seconds "$SECONDS_EACH" "$@" --json >"$json"
  if [ "$hosts" = 2 ]; then meet_signal "fabric-done-$tool-$rail-$round"; else stop_host; fi
  python3 - "$json" "$tool" "${RAIL_DEVICE[$rail]}" "${RAIL_KIND[$rail]}" "${RAIL_MTU[$rail]}" "$hosts" "$round" "$BANDWIDTH" "$LATENCY" <<'PYTHON'
import json, sys
file, tool, device, kind, mtu, hosts, number, bandwidth, latency = sys.argv[1:]
record = json.load(open(file, encoding="utf-8"))
if not record["figures"]:
    sys.exit(f"fabric: no way was measured: {record['left_out']}")
for figure in record["figures"]:
    if figure["failed"]:
        sys.exit(f"fabric: {figure['way']} at {figure['bytes']} bytes: {figure['failed']}")
    line = {"tool": tool, "device": device, "kind": kind, "mtu": int(mtu), "hosts": int(hosts), "bytes": figure["bytes"], "round": int(number)}
    if str(figure["bytes"]) in bandwidth.split():
        print(json.dumps({**line, "mib_per_s": figure["read"][0]["mib_per_s"], "cost": {side: figure["read"][0][side] for side in ("here", "there")}}))
    if str(figure["bytes"]) in latency.split():
        # perftest says half of a round trip.
        print(json.dumps({**line, "us": figure["echo"][0]["us_p50"] / 2, "us_p99": figure["echo"][0]["us_p99"] / 2}))
PYTHON
}

# ---- on the host ---------------------------------------------------------------------------------------------------

in_vm() { # run|pair DIR RAIL…
  local how=$1 dir=$2 rails=() rail lines command; shift 2
  [ $# -gt 0 ] || set -- rxe:4096 siw
  for rail; do rails+=(--rail "$rail"); done
  mkdir -p "$dir"; dir=$(readlink -f "$dir")
  command=("$BED/vm-perftest.sh" --rounds "$ROUNDS" --bw "$BANDWIDTH" --lat "$LATENCY" --also "$HERE/fabric.sh")
  export ROUNDS DEPTH SECONDS_EACH BUSY_POLL
  if [ "$how" = pair ]; then
    "$BED/vm.sh" pair --timeout 1800 --share "$dir" "${rails[@]}" -- "${command[@]}" ::: "${command[@]}" >"$dir/log"
    lines=$dir/b/perftest.jsonl
  else
    "$BED/vm.sh" run --timeout 1800 --share "$dir" "${rails[@]}" -- "${command[@]}" >"$dir/log"
    lines=$dir/perftest.jsonl
  fi
  "$BED/perftest_table.py" "$lines" --json "$dir/table.json" ${AT_LEAST:+--at-least "verbs3=$AT_LEAST"}
}

over_tcp() { # DIR
  mkdir -p "$1"
  start_host 127.0.0.1
  # shellcheck disable=SC2086 # a list of sizes
  "$VERBS3" bench fabric "127.0.0.1:$PORT" --ways tcp --directions read --sizes "$(numbers $BANDWIDTH)" \
    --connections "${CONNECTIONS:-2}" --depth "$DEPTH" --seconds "$SECONDS_EACH" --rounds "$ROUNDS" --json >"$1/tcp.json" || { stop_host; exit 1; }
  stop_host
  python3 - "$1/tcp.json" "$AT_LEAST" <<'PYTHON'
import json, statistics, sys
record, least = json.load(open(sys.argv[1], encoding="utf-8")), sys.argv[2]
plain = {row["bytes"]: row["mib_per_s"] for row in record["plain_streams"]}
below = False
for figure in record["figures"]:
    pairs = [(read["mib_per_s"], other) for read, other in zip(figure["read"], plain[figure["bytes"]])]
    ratios = sorted(mine / other for mine, other in pairs)
    ratio = statistics.median(ratios)
    print(f"tcp {figure['bytes']:>8} bytes: {statistics.median(mine for mine, _ in pairs):7.0f} MiB/s, plain "
          f"{statistics.median(other for _, other in pairs):7.0f} MiB/s, ratio {ratio:.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f})")
    below |= bool(least) and ratio < float(least)
sys.exit(1 if below else 0)
PYTHON
}

[ -x "$VERBS3" ] || die "no $VERBS3: cargo build --release --workspace --bin verbs3"
case ${1:-} in
  verbs) [ $# -ge 2 ] || usage; shift; in_vm run "$@" ;;
  pair) [ $# -ge 2 ] || usage; shift; in_vm pair "$@" ;;
  tcp) [ $# = 2 ] || usage; over_tcp "$2" ;;
  [0-9]*) also "$1" "$2" ;;
  *) usage ;;
esac
