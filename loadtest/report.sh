#!/usr/bin/env bash
#! Measures everything that PERFORMANCE.md says, and writes it.
#
#   loadtest/report.sh DIR [PART ...]     measures (all parts, or those that are named) into DIR, each in at most 8 minutes
#   loadtest/report.sh tables DIR         writes loadtest/PERFORMANCE.md from what is in DIR, and the table of README.md
#
# Parts: hot two effort head half crowd many ranges cold requests write amplification memory lent preload populate fabric failover tenants
#
# Measures what is delivered, the build of profile `dist` (VERBS3_PROFILE names another):
#   cargo build --profile dist --locked -p verbs3-cli -p verbs3-loadtest
# Needs nginx (apt-get install nginx-light) and an idle machine. BANDWIDTH, CONNECTION_BANDWIDTH and FIRST_BYTE
# shape the store (defaults 256MiB, 64MiB, 10ms), TIME is of a round of `hot` and `write`. Ends what it has started, by pid.
set -euo pipefail

ROOT=$(readlink -f "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/..")
VERBS3_PROFILE=${VERBS3_PROFILE:-dist}
export VERBS3_PROFILE
# shellcheck source=../tests/testbed/cluster.sh
. "$ROOT/tests/testbed/cluster.sh"
# shellcheck source=shaped.sh
. "$ROOT/loadtest/shaped.sh"
case ${1:-} in
  ''|-*) usage ;;
  tables) exec python3 "$ROOT/loadtest/report.py" "${2:?DIR}" "$ROOT/loadtest/PERFORMANCE.md" ;;
esac
OUT=$(mkdir -p "$1" && readlink -f "$1"); shift
[ $# -gt 0 ] || set -- hot two effort head half crowd many ranges cold requests write amplification memory lent preload populate fabric failover tenants
VERBS3=$(binary)
LOADTEST=$(dirname "$VERBS3")/verbs3-loadtest
export VERBS3 LOADTEST
BANDWIDTH=${BANDWIDTH:-256MiB} CONNECTION_BANDWIDTH=${CONNECTION_BANDWIDTH:-64MiB} FIRST_BYTE=${FIRST_BYTE:-10ms}
PIDS=()
DIR=$(mktemp -d "${TMPDIR:-/tmp}/verbs3-report.XXXXXX")
trap 'stop_cluster || true; rm -rf -- "$DIR"' EXIT
export AWS_ACCESS_KEY_ID=$CLUSTER_ACCESS_KEY AWS_SECRET_ACCESS_KEY=$CLUSTER_SECRET_KEY
export AGAINST_SECRET_ACCESS_KEY=

# bench NAME SCENARIO ARGUMENT...: one comparison; its record is OUT/NAME.json. Errors are in the record, and end the part.
bench() {
  local name=$1 scenario=$2; shift 2
  say "$name"
  "$VERBS3" bench s3 "$scenario" --json --html "$OUT/$name.html" "$@" >"$OUT/$name.json" || { say "$name failed"; return 1; }
}

store() { STORE_PORT=$(free_port); launch_store "$STORE_PORT"; }

# tier GATEWAYS WORKERS: processes of their own behind the shaped way BEHIND; sets GATEWAYS, TIER_PIDS. COORDINATED: with a
# coordinator, so that homes grant leases and gateways hold small objects. WAY=tcp: no shared memory between the two.
# WORKER_LINE, GATEWAY_LINE: one more line of [worker], of [gateway]. WORKER_ADMIN: the address of a lone worker's metrics.
tier() {
  local index port ports=() leases=() shm=true members
  members=("http://$BEHIND" "$CLUSTER_ACCESS_KEY" "$CLUSTER_SECRET_KEY")
  for _ in $(seq "$2"); do ports+=("$(free_port)"); done
  [ "${WAY:-shm}" = shm ] || shm=false
  if [ -n "${COORDINATED:-}" ]; then
    launch_coordinator "${members[@]}"
    leases=("$LEASED_AT_ONCE")
  else
    shared_config "${members[@]}" "${ports[@]}" >"$DIR/shared.toml"
  fi
  TIER_PIDS=() GATEWAYS=()
  for index in $(seq 0 $(($2 - 1))); do
    { cat "$DIR/shared.toml"
      ADMIN=${WORKER_ADMIN:-127.0.0.1:0} worker_section "$index" "${ports[$index]}" "${WORKER_MEMORY:-1GiB}" "shm = { enabled = $shm, socket = \"$DIR/worker-$index.sock\" }" \
        "${WORKER_LINE:-}" "${leases[@]}"
    } >"$DIR/worker-$index.toml"
    launch "worker-$index" "${ports[$index]}" worker; TIER_PIDS+=("$!")
  done
  for index in $(seq 0 $(($1 - 1))); do
    port=$(free_port)
    { cat "$DIR/shared.toml"
      gateway_section "$port" 256MiB "${GATEWAY_LINE:-}"
    } >"$DIR/gateway-$index.toml"
    launch "gateway-$index" "$port" gateway; TIER_PIDS+=("$!"); GATEWAYS+=("127.0.0.1:$port")
  done
}

counts() { python3 -c 'import sys,urllib.request; print(urllib.request.urlopen("http://" + sys.argv[1]).read().decode())' "$1"; }
comma() { local IFS=,; echo "$*"; }
# without_reading_back SCENARIO FILE: the time of reading back is no part of a write's.
without_reading_back() { "$VERBS3" bench s3 "$1" --show | sed 's/^read_back = true/read_back = false/' >"$2"; }

# With leases from the start, as half a minute after the objects were written.
part_hot() {
  local size port; port=$(free_port)
  launch_dev dev "$port" --set worker.memory.capacity=512MiB --set worker.leases.quiet_for=0s
  for size in 4k 128k 1m 16m; do
    bench "hot-$size" "hot-$size" --target "verbs3=http://127.0.0.1:$port/demo" --against nginx --pid "${PIDS[0]}" ${TIME:+--time "$TIME"}
  done
}

# one_pair WAY: gateway and worker over shm or tcp, with leases, in front of a store that nothing shapes.
one_pair() {
  stop_cluster; PIDS=(); rm -rf -- "${DIR:?}"/*
  store; BEHIND=127.0.0.1:$STORE_PORT
  COORDINATED=true WAY=$1 tier 1 1
}

part_two() {
  local size way
  for way in shm tcp; do
    one_pair "$way"
    for size in 4k 128k 1m 16m; do
      bench "two-$way-$size" "hot-$size" --target "verbs3=http://${GATEWAYS[0]}/demo" --against nginx --pid "$(comma "${TIER_PIDS[@]}")" --time "${TIME:-2s}"
    done
  done
}

# Task switches of gateway and worker, and the gateway's system calls where strace is installed: of so many requests.
part_effort() {
  local pid pids gateway before after
  one_pair shm
  pids=("${TIER_PIDS[@]}") gateway=${TIER_PIDS[1]}
  switches() { for pid in "${pids[@]}"; do cat "/proc/$pid"/task/*/status; done | awk '/ctxt_switches/ { sum += $2 } END { print sum }'; }
  again() { bench "$1" hot-4k --target "verbs3=http://${GATEWAYS[0]}/demo" --rounds 1 "${@:2}"; }
  again effort-primed
  before=$(switches); again effort --prepare none --warm-up 0s; after=$(switches)
  echo "$((after - before))" >"$OUT/effort.switches"
  command -v strace >/dev/null || { say "no strace: system calls are not counted"; return; }
  strace -c -f -o "$OUT/effort.calls" -p "$gateway" 2>/dev/null & PIDS+=("$!")
  sleep 1; again effort-traced --prepare none --warm-up 0s; kill -INT "${PIDS[-1]}"; wait "${PIDS[-1]}" || true; unset 'PIDS[-1]'
}

part_head() {
  local absent
  one_pair shm
  # The part of them whose object is not there: none, half over twice the connections, all.
  for absent in 0.0 0.5 1.0; do
    "$VERBS3" bench s3 hot-4k --show | sed "s/^pattern = .*/pattern = \"head\"\nabsent = $absent/" >"$DIR/head.toml"
    bench "head-$absent" "$DIR/head.toml" --target "verbs3=http://${GATEWAYS[0]}/demo" --against nginx --pid "$(comma "${TIER_PIDS[@]}")" \
      --connections "$([ "$absent" = 0.5 ] && echo 16 || echo 8)"
  done
}

# At half of what it can: what a request waits for there is not its own queue.
part_half() {
  local rate
  one_pair shm
  bench half-all hot-4k --target "verbs3=http://${GATEWAYS[0]}/demo" --rounds 3
  rate=$(python3 -c 'import json,sys; print(int(json.load(open(sys.argv[1]))["sides"][0]["all"]["requests_per_second"] / 2))' "$OUT/half-all.json")
  bench half hot-4k --target "verbs3=http://${GATEWAYS[0]}/demo" --against nginx --connections 32 --rate "$rate"
}

part_crowd() {
  local connections
  one_pair shm
  for connections in 8 2000; do
    bench "crowd-$connections" hot-4k --target "verbs3=http://${GATEWAYS[0]}/demo" --against nginx --connections "$connections" --pid "$(comma "${TIER_PIDS[@]}")"
  done
}

# Small objects of which the gateway holds none: does their number matter? MANY: how many there are at most.
part_many() {
  local count admin worker
  admin=127.0.0.1:$(free_port)
  store; BEHIND=127.0.0.1:$STORE_PORT
  WORKER_ADMIN=$admin WORKER_MEMORY=2GiB tier 1 1
  worker=${TIER_PIDS[0]}
  held() { # one line: objects, what the process has besides the arena, what cells are wide, what was asked of them
    curl -sf "http://$admin/metrics" | awk -v objects="$1" -v heap="$(awk '/^RssAnon/ { print $2 * 1024 }' "/proc/$worker/status")" '
      /^verbs3_arena_bytes\{kind="loaned"\}/ { loaned = $2 } /^verbs3_arena_bytes\{kind="asked"\}/ { asked = $2 }
      END { printf "{\"objects\": %d, \"heap\": %d, \"loaned\": %d, \"asked\": %d}\n", objects, heap, loaned, asked }'
  }
  held 0 >"$OUT/many.held"
  for count in 10000 "${MANY:-200000}"; do
    "$VERBS3" bench s3 hot-4k --show | sed "s/^name = .*/name = \"many\"/; s/^count = 64$/count = $count/" >"$DIR/many.toml"
    "$VERBS3" bench s3 "$DIR/many.toml" --target "http://127.0.0.1:$STORE_PORT/demo" --prepare-only
    bench "many-$count" "$DIR/many.toml" --target "verbs3=http://${GATEWAYS[0]}/demo" --against nginx --prepare none --pid "$(comma "${TIER_PIDS[@]}")"
    held "$count" >>"$OUT/many.held"
  done
}

part_ranges() {
  local port; port=$(free_port)
  launch_dev dev "$port" --set worker.memory.capacity=1GiB
  bench ranges-hot random-ranges --target "verbs3=http://127.0.0.1:$port/demo" --against nginx --pid "${PIDS[0]}"
  stop_cluster; PIDS=()
  local name part
  for part in 0B 4KiB; do
    case $part in 0B) name=ranges-cold ;; *) name=ranges-cold-parts ;; esac
    stop_cluster; PIDS=(); rm -rf -- "${DIR:?}"/*
    store; shaped BEHIND "$STORE_PORT"; shaped DIRECT "$STORE_PORT"; WORKER_LINE="fill = { part = \"$part\" }" tier 1 1
    # Many pages, few reads: nearly every one is the first of its page.
    "$VERBS3" bench s3 random-ranges --show | sed 's/^count = 8$/count = 32/; s/^prime = true/prime = false/; s/^connections = 16/connections = 16\noperations = 300/' >"$DIR/ranges.toml"
    "$VERBS3" bench s3 "$DIR/ranges.toml" --target "http://127.0.0.1:$STORE_PORT/demo" --prepare-only
    bench "$name" "$DIR/ranges.toml" --target "verbs3=http://${GATEWAYS[0]}/demo" --against "direct=http://$DIRECT/demo" --prepare none --warm-up 0s --time 60s
    { counts "$BEHIND_COUNTS"; counts "$DIRECT_COUNTS"; } >"$OUT/$name.counts"
  done
}

part_cold() {
  local scenario
  store; shaped BEHIND "$STORE_PORT"; shaped DIRECT "$STORE_PORT"; tier 1 1
  "$VERBS3" bench s3 cold --show >"$DIR/cold"
  "$VERBS3" bench s3 cold-first-byte --show >"$DIR/cold-first-byte"
  # One of 1 GiB a round, by one connection.
  sed 's/^name = .*/name = "cold-stream"/; s/^count = 32/count = 1/; s/^bytes = .*/bytes = "1GiB"/; s/^connections = 8/connections = 1/; s/^count = 5/count = 3/; s/^warm_up = .*/warm_up = "0s"/' "$DIR/cold" >"$DIR/cold-stream"
  for scenario in cold cold-first-byte cold-stream; do
    "$VERBS3" bench s3 "$DIR/$scenario" --target "http://127.0.0.1:$STORE_PORT/demo" --prepare-only
    bench "$scenario" "$DIR/$scenario" --target "verbs3=http://${GATEWAYS[0]}/demo" --against "direct=http://$DIRECT/demo" \
      --prepare none --pid "$(comma "${TIER_PIDS[@]}")" --against-pid "${PIDS[0]}"
  done
}

# What a cold read of a whole object is in requests at the store: eight objects of each size, each once.
part_requests() {
  local size
  store; shaped BEHIND "$STORE_PORT"; shaped DIRECT "$STORE_PORT"; tier 1 2
  for size in 1MiB 18MiB 64MiB; do
    "$VERBS3" bench s3 cold --show | sed "s/^name = .*/name = \"requests\"/; s/^count = 32$/count = 8/; s/^bytes = .*/bytes = \"$size\"/; s/^fresh = true/fresh = false/
      s/^connections = 8/connections = 1\noperations = 8/" >"$DIR/requests.toml"
    "$VERBS3" bench s3 "$DIR/requests.toml" --target "http://127.0.0.1:$STORE_PORT/demo" --prepare-only
    { counts "$BEHIND_COUNTS"; counts "$DIRECT_COUNTS"; } >"$OUT/requests-$size.before"
    bench "requests-$size" "$DIR/requests.toml" --target "verbs3=http://${GATEWAYS[0]}/demo" --against "direct=http://$DIRECT/demo" --prepare none --rounds 1 --warm-up 0s
    { counts "$BEHIND_COUNTS"; counts "$DIRECT_COUNTS"; } >"$OUT/requests-$size.after"
  done
}

part_write() {
  local scenario
  store; shaped BEHIND "$STORE_PORT"; shaped DIRECT "$STORE_PORT"; tier 1 1
  for scenario in checkpoint checkpoint-multipart; do
    without_reading_back "$scenario" "$DIR/$scenario.toml"
    bench "$scenario" "$DIR/$scenario.toml" --target "verbs3=http://${GATEWAYS[0]}/demo" --against "direct=http://$DIRECT/demo" \
      --pid "$(comma "${TIER_PIDS[@]}")" --against-pid "${PIDS[0]}" ${TIME:+--time "$TIME"}
  done
  # And once with reading back, for the bytes.
  bench checkpoint-read-back checkpoint --target "verbs3=http://${GATEWAYS[0]}/demo" --rounds 1 --warm-up 0s
}

part_amplification() {
  local index running=() bytes=$((1 << 30)) before after
  store; shaped BEHIND "$STORE_PORT"; tier 3 2
  cat >"$DIR/start.toml" <<END
name = "cold-start"
description = "one object, read once through each of three gateways at once"
[objects]
count = 1
bytes = $bytes
[access]
pattern = "uniform"
[load]
connections = 1
operations = 1
timeout = "2m"
[rounds]
count = 1
time = "2m"
warm_up = "0s"
END
  "$VERBS3" bench s3 "$DIR/start.toml" --target "http://127.0.0.1:$STORE_PORT/demo" --prepare-only
  before=$(counts "$BEHIND_COUNTS")
  for index in 0 1 2; do
    bench "cold-start-$index" "$DIR/start.toml" --target "gateway-$index=http://${GATEWAYS[$index]}/demo" --prepare none & running+=("$!")
  done
  for index in "${running[@]}"; do wait "$index"; done
  after=$(counts "$BEHIND_COUNTS")
  printf '{"object_bytes": %d, "gateways": 3, "before": %s, "after": %s}\n' "$bytes" "$before" "$after" >"$OUT/amplification.json"
}

part_memory() {
  local way
  for way in shm tcp; do
    say "memory over $way"
    WAY=$way "$ROOT/loadtest/two-processes.sh" memory --objects 2 --seconds 20 >"$OUT/memory-$way.txt"
  done
}

part_lent() {
  local socket=$OUT/gateway.sock
  "$ROOT/tests/testbed/wheel.sh" "$OUT/wheel" >"$OUT/wheel.log" 2>&1
  rm -f "$socket"
  GATEWAY_LINE="lending = { socket = \"$socket\", pages_total = \"256MiB\" }" one_pair shm
  create_bucket "${GATEWAYS[0]##*:}" lent
  PYTHONPATH=$OUT/wheel/site AWS_DEFAULT_REGION=us-east-1 "$("$ROOT/tests/testbed/venv.sh" python)/bin/python" "$ROOT/python/bench/lent_reads.py" \
    "http://${GATEWAYS[0]}" "$socket" lent --rounds 1000 >"$OUT/lent.txt"
}

# Scripts that stand by themselves. What they print is the record.
by_script() {
  local name=$1 script=$2; shift 2
  say "$name"
  "$ROOT/loadtest/$script" "$@" >"$OUT/$name.txt"
}

part_preload() { by_script preload preload.sh "$DIR/preload" rate far; }
part_fabric() { by_script fabric fabric.sh tcp "$DIR/fabric"; }
part_failover() { by_script failover failover.sh; }
part_tenants() { by_script tenants tenants.sh --load 0.25; }
part_populate() {
  by_script populate populate.sh checkpoint --json
  by_script populate-multipart populate.sh checkpoint-multipart --json
}

# Of the last run: whoever measures parts again does so of the same build.
python3 - "$OUT/machine.json" "$BANDWIDTH" "$CONNECTION_BANDWIDTH" "$FIRST_BYTE" "$(git -C "$ROOT" describe --always --dirty 2>/dev/null || true)" "$VERBS3_PROFILE" <<'END'
import json, os, platform, sys, time
model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
json.dump({"cpus": os.cpu_count(), "model": model, "kernel": platform.release(), "date": time.strftime("%Y-%m-%d"), "bandwidth": sys.argv[2],
           "connection_bandwidth": sys.argv[3], "first_byte": sys.argv[4], "revision": sys.argv[5], "profile": sys.argv[6]}, open(sys.argv[1], "w"))
END

for part in "$@"; do
  stop_cluster; PIDS=(); rm -rf -- "${DIR:?}"/*
  "part_$part"
done
