#!/usr/bin/env bash
#! Measures how long a reader waits when a worker fails: open loop of hot GETs through a gateway and two workers over TCP on loopback.
#
#   loadtest/failover.sh [RATE]      requests of 1 MiB that are due each second; 100 unless said
#
# Three runs of 20 s, each in a cluster of its own: nothing happens (none); a worker is killed in the middle (KILL); one is stopped (STOP),
# as a host that falls silent. HEDGE says gateway.tier.hedge_after (250ms), FIRST first_progress (2s). Prints milliseconds, and fails
# on an error or a wrong byte. Ends what it has started, by pid. Without VERBS3_PROFILE it wants a release build.
set -euo pipefail

ROOT=$(readlink -f "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/..")
# shellcheck source=../tests/testbed/cluster.sh
. "$ROOT/tests/testbed/cluster.sh"
RATE=${1:-100}
[[ $RATE =~ ^[1-9][0-9]*$ ]] || usage
VERBS3=$(binary)
PIDS=() VICTIM=
DIR=$(mktemp -d "${TMPDIR:-/tmp}/verbs3-failover.XXXXXX")
# A killed worker ends with a status of its own.
trap '[ -z "$VICTIM" ] || kill -CONT "$VICTIM" 2>/dev/null || true; stop_cluster 2>/dev/null || true; rm -rf -- "$DIR"' EXIT

cluster() {
  local workers=() index
  store_port=$(free_port) gateway_port=$(free_port)
  for index in 0 1; do workers+=("$(free_port)"); done
  launch_store "$store_port"
  shared_config "http://127.0.0.1:$store_port" "$CLUSTER_ACCESS_KEY" "$CLUSTER_SECRET_KEY" "${workers[@]}" >"$DIR/shared.toml"
  for index in 0 1; do
    { cat "$DIR/shared.toml"
      worker_section "$index" "${workers[$index]}" 512MiB 'shm = { enabled = false }'
    } >"$DIR/worker-$index.toml"
    launch "worker-$index" "${workers[$index]}" worker
  done
  VICTIM=${PIDS[-1]}
  { cat "$DIR/shared.toml"
    gateway_section "$gateway_port" 256MiB "tier = { hedge_after = \"${HEDGE:-250ms}\", first_progress = \"${FIRST:-2s}\" }"
  } >"$DIR/gateway.toml"
  launch gateway "$gateway_port" gateway
  bucket=failover
  AWS_ACCESS_KEY_ID=$CLUSTER_ACCESS_KEY AWS_SECRET_ACCESS_KEY=$CLUSTER_SECRET_KEY
  export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
  create_bucket "$gateway_port" "$bucket"
}

# run NAME SIGNAL: the load, and the signal in the middle of it.
run() {
  local name=$1 signal=$2 bench
  "$VERBS3" bench s3 hot-1m --target "http://127.0.0.1:$gateway_port/$bucket" --rate "$RATE" --connections 32 --rounds 1 --time 20s --json >"$DIR/$name.json" 2>"$DIR/$name.err" &
  bench=$!
  # Objects are put in, read once and warmed up first.
  sleep "$LEAD"
  [ "$signal" = none ] || kill "-$signal" "$VICTIM"
  wait "$bench" || { cat "$DIR/$name.err" >&2; return 1; }
  python3 - "$name" "$DIR/$name.json" <<'END'
import json, sys
figures = json.load(open(sys.argv[2]))["sides"][0]["all"]
times = figures["latency"]
print(f"{sys.argv[1]:8} {figures['requests']:6} requests   p50 {times['p50'] / 1000:7.1f}   p99 {times['p99'] / 1000:7.1f}   p99.9 {times['p999'] / 1000:7.1f}   max {times['max'] / 1000:7.1f} ms"
      f"   errors {sum(figures['errors'].values())}   wrong {figures['wrong_answers']}")
sys.exit(bool(figures["errors"]) or figures["wrong_answers"] > 0)
END
}

failed=0
for case in none KILL STOP; do
  cluster
  # The first run of a cluster puts the objects in.
  "$VERBS3" bench s3 hot-1m --target "http://127.0.0.1:$gateway_port/$bucket" --prepare-only >"$DIR/prepare.log" 2>&1 || { cat "$DIR/prepare.log" >&2; exit 1; }
  LEAD=10
  run "$case" "$case" || failed=1
  [ "$case" != STOP ] || kill -CONT "$VICTIM"
  stop_cluster 2>/dev/null || true
  VICTIM=
  rm -rf -- "${DIR:?}"/*
done
exit "$failed"
