#!/usr/bin/env bash
#! Measures preload jobs, and prints a table row for each part.
#
#   loadtest/preload.sh DIR [PART ...]     parts: rate files far small medium huge
#
# rate    COUNT objects of 1 MiB from one store behind the shaped proxy, warmed, and read plainly by as many GETs at once (curl),
#         ROUNDS times in turn: preload ÷ plain
# files   the same with FILES objects of 4 KiB, from a store that makes them up; far: that store behind the proxy
# small   SMALL objects of 4 KiB, medium MEDIUM objects of 100 KB, huge one object of HUGE: from a store that makes them up;
#         resident memory of coordinator and worker every second, requests of the store, bytes that it sent ÷ bytes of the objects
#
# Defaults: COUNT=256 FILES=20000 ROUNDS=3 BANDWIDTH=64MiB FIRST_BYTE=10ms SMALL=1000000 MEDIUM=100000 HUGE=100GiB MEMORY=512MiB.
# Ends what it has started, by pid. VERBS3 and LOADTEST name other binaries than the release build's.
set -euo pipefail

ROOT=$(readlink -f "$(dirname "$(readlink -f "$0")")/..")
# shellcheck source=../tests/testbed/cluster.sh
. "$ROOT/tests/testbed/cluster.sh"
[ $# -ge 1 ] || usage
DIR=$(mkdir -p "$1" && readlink -f "$1"); shift
[ $# -gt 0 ] || set -- rate files far small medium huge
VERBS3=${VERBS3:-$(binary)}
LOADTEST=${LOADTEST:-$(dirname "$VERBS3")/verbs3-loadtest}
COUNT=${COUNT:-256} FILES=${FILES:-20000} ROUNDS=${ROUNDS:-3} BANDWIDTH=${BANDWIDTH:-64MiB} FIRST_BYTE=${FIRST_BYTE:-10ms} MEMORY=${MEMORY:-512MiB}
SMALL=${SMALL:-1000000} MEDIUM=${MEDIUM:-100000} HUGE=${HUGE:-100GiB}
AT_ONCE=64
PIDS=()
trap 'stop_all' EXIT
export VERBS3_CLUSTER__SECRET=a-secret-of-the-load-tests-of-preload-jobs

stop_all() { local pid; for pid in "${PIDS[@]:-}"; do [ -z "$pid" ] || kill "$pid" 2>/dev/null || true; done; wait 2>/dev/null || true; PIDS=(); }
field() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$1" "$2"; }

# begun NAME COMMAND...: starts it, and waits until it says that it serves.
begun() {
  local name=$1; shift
  rm -f "$DIR/$name.ready"
  "$@" --ready-file "$DIR/$name.ready" >"$DIR/$name.log" 2>&1 </dev/null &
  PIDS+=("$!")
  for _ in $(seq 300); do [ -s "$DIR/$name.ready" ] && return; kill -0 "${PIDS[-1]}" 2>/dev/null || break; sleep 0.1; done
  say "$name does not serve:"; tail -n 5 "$DIR/$name.log" >&2; return 1
}

# tier STORE: a coordinator and a worker in front of it; COORDINATOR_PID, WORKER_PID.
tier() {
  local port; port=$(free_port)
  cat >"$DIR/tier.toml" <<END
[cluster]
coordinators = ["http://127.0.0.1:$port"]
replicas = 1
[[ufs]]
name = "store"
endpoint = "http://$1"
credentials = { kind = "static", access_key_id = "$CLUSTER_ACCESS_KEY", secret_access_key = "$CLUSTER_SECRET_KEY" }
[[mount]]
name = "*"
ufs = "store"
attributes_ttl = "immutable"
[worker]
id = "w0"
listen = "127.0.0.1:0"
admin_listen = "127.0.0.1:0"
memory = { capacity = "$MEMORY" }
fill = { warms_in_flight_max = $AT_ONCE }
[coordinator]
listen = "127.0.0.1:$port"
admin_listen = "127.0.0.1:0"
store = { path = "$DIR/coordinator" }
preload = { failures = "$DIR/failures", memory = "16MiB", blocks_per_ufs_max = $AT_ONCE }
END
  rm -rf "$DIR/coordinator"
  begun coordinator "$VERBS3" coordinator --config "$DIR/tier.toml"; COORDINATOR_PID=${PIDS[-1]}
  begun worker "$VERBS3" worker --config "$DIR/tier.toml"; WORKER_PID=${PIDS[-1]}
  for _ in $(seq 100); do "$VERBS3" status --config "$DIR/tier.toml" >"$DIR/status" 2>&1 && grep -q "1 of 1 workers serve" "$DIR/status" && return; sleep 0.2; done
  cat "$DIR/status" >&2; return 1
}

job() { "$VERBS3" preload "$@" --config "$DIR/tier.toml" --follow --json; }

now() { date +%s.%N; }
minus() { python3 -c 'import sys; print(float(sys.argv[1]) - float(sys.argv[2]))' "$1" "$2"; }

rate() {
  write_identities
  cat >"$DIR/store.toml" <<END
[dev]
dir = "$DIR/store"
demo = false
[gateway]
listen = "127.0.0.1:0"
admin_listen = "127.0.0.1:0"
identities = "$DIR/identities.toml"
memory = { capacity = "64MiB" }
[worker]
memory = { capacity = "64MiB" }
END
  begun store "$VERBS3" dev --config "$DIR/store.toml"
  local store; store=$(field "$DIR/store.ready" listen)
  head -c 1048576 /dev/urandom >"$DIR/object"
  local sign=(--aws-sigv4 aws:amz:us-east-1:s3 --user "$CLUSTER_ACCESS_KEY:$CLUSTER_SECRET_KEY" -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' -s --fail)
  seq -f "url = \"http://$store/demo/set/%06g\"" "$COUNT" | sed "s|.*|&\nupload-file = \"$DIR/object\"|" >"$DIR/puts"
  curl "${sign[@]}" -Z --parallel-max 8 -K "$DIR/puts" >/dev/null 2>&1
  begun proxy "$LOADTEST" proxy --store "$store" --bandwidth "$BANDWIDTH" --first-byte "$FIRST_BYTE"
  local behind; behind=$(field "$DIR/proxy.ready" listen)
  tier "$behind"
  seq -f "url = \"http://$behind/demo/set/%06g\"" "$COUNT" | sed 's|.*|&\noutput = "/dev/null"|' >"$DIR/gets"
  in_turn "rate: $COUNT objects of 1 MiB at $BANDWIDTH/s" "$COUNT" s3://demo/set/
}

files() {
  begun store "$LOADTEST" store --count "$FILES" --bytes 4KiB
  local store; store=$(field "$DIR/store.ready" listen)
  if [ "$1" = far ]; then
    begun proxy "$LOADTEST" proxy --store "$store" --bandwidth "$BANDWIDTH" --first-byte "$FIRST_BYTE"
    store=$(field "$DIR/proxy.ready" listen)
  fi
  tier "$store"
  seq -f "url = \"http://$store/synthetic/set/%09g\"" 0 $((FILES - 1)) | sed 's|.*|&\noutput = "/dev/null"|' >"$DIR/gets"
  in_turn "$1: $FILES objects of 4 KiB" "$FILES" s3://synthetic/set/
  requests
}

# in_turn WHAT OBJECTS PREFIX: ROUNDS of a job, and of the GETs in $DIR/gets.
in_turn() {
  local what=$1 objects=$2 prefix=$3 round began plain warmed; : >"$DIR/rounds"
  local sign=(--aws-sigv4 aws:amz:us-east-1:s3 --user "$CLUSTER_ACCESS_KEY:$CLUSTER_SECRET_KEY" -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' -s --fail)
  for round in $(seq "$ROUNDS"); do
    # Not before the first: who evicts learns attributes.
    [ "$round" -eq 1 ] || "$VERBS3" cache evict "$prefix" --config "$DIR/tier.toml" --follow >/dev/null
    job "$prefix" >"$DIR/job.json"
    # By the job's own clock: how often the command asks is not its speed.
    warmed=$(python3 -c 'import json, sys; job = json.loads(sys.stdin.readlines()[-1]); assert job["state"] == "done", job; print((job["ended_ms"] - job["created_ms"]) / 1000)' <"$DIR/job.json")
    began=$(now); curl "${sign[@]}" -Z --parallel-max "$AT_ONCE" -K "$DIR/gets" 2>/dev/null; plain=$(minus "$(now)" "$began")
    echo "$warmed $plain" >>"$DIR/rounds"
  done
  python3 - "$DIR/rounds" "$objects" "$what" <<'END'
import math, sys
rounds = [tuple(map(float, line.split())) for line in open(sys.argv[1])]
ratios = [plain / warmed for warmed, plain in rounds]
mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
rates = ", ".join(f"{int(sys.argv[2]) / w:.1f} against {int(sys.argv[2]) / p:.1f}" for w, p in rounds)
print(f"{sys.argv[3]}; objects/s warmed against plain: {rates}; preload / plain {mean:.2f} ({min(ratios):.2f}-{max(ratios):.2f})")
END
}

# requests: of the store so far, by who asked.
requests() {
  local who
  for who in coordinator worker; do
    curl -s "http://$(field "$DIR/$who.ready" admin)/metrics" >"$DIR/$who.metrics"
    echo "  $who asked the store: $(awk '/^verbs3_ufs_(requests|bytes_read)_total\{/ { sub(/^verbs3_ufs_/, ""); sub(/ufs="store",?/, ""); print }' "$DIR/$who.metrics" | paste -sd, | sed 's/,/, /g')"
  done
}

# synthetic NAME COUNT BYTES: one job over a store that makes objects up.
synthetic() {
  local name=$1 count=$2 bytes=$3 began sampler
  begun "$name-store" "$LOADTEST" store --count "$count" --bytes "$bytes"
  tier "$(field "$DIR/$name-store.ready" listen)"
  began=$(now)
  while :; do
    echo "$SECONDS $(awk '/VmRSS/{print $2}' "/proc/$COORDINATOR_PID/status") $(awk '/VmRSS/{print $2}' "/proc/$WORKER_PID/status") $(awk '{print $14 + $15}' "/proc/$COORDINATOR_PID/stat") $(awk '{print $14 + $15}' "/proc/$WORKER_PID/stat")"
    sleep 1
  done >"$DIR/$name.rss" 2>/dev/null & sampler=$!
  PIDS+=("$sampler")
  # What doesn't fit is said to be missing: status 1.
  job s3://synthetic/set/ >"$DIR/$name.json" || true
  kill "$sampler"
  requests
  python3 - "$name" "$DIR/$name.json" "$DIR/$name.rss" "$(minus "$(now)" "$began")" <<'END'
import json, sys
name, job, rss, seconds = sys.argv[1], json.loads(open(sys.argv[2]).readlines()[-1]), sys.argv[3], float(sys.argv[4])
samples = [tuple(map(float, line.split())) for line in open(rss) if len(line.split()) == 5]
counters = job["counters"]
print(f"{name}: {counters['objects']} objects, {counters['bytes'] / 2**20:.0f} MiB in {seconds:.0f} s ({counters['objects'] / seconds:.0f} objects/s, {counters['bytes'] / 2**20 / seconds:.0f} MiB/s); {job['state']}: {job['reason']}; loaded {counters['bytes_loaded']}, failed {counters['objects_failed']}")
begun = (job["ended_ms"] - job["created_ms"]) / 1000
print(f"  by its own clock {begun:.1f} s, {counters['objects'] / begun:.0f} objects/s; missing {counters['objects_missing']}, put again {counters['retries']}; CPU µs an object: coordinator {(samples[-1][3] - samples[0][3]) * 1e4 / counters['objects']:.0f}, worker {(samples[-1][4] - samples[0][4]) * 1e4 / counters['objects']:.0f}")
for at, column in (("coordinator", 1), ("worker", 2)):
    quarter = [samples[len(samples) * part // 4:][0][column] / 1024 for part in range(4)] + [samples[-1][column] / 1024]
    print(f"  RSS of the {at}, MiB, at 0, 25, 50, 75, 100 %: {', '.join(f'{value:.0f}' for value in quarter)}; most {max(s[column] for s in samples) / 1024:.0f}")
END
}

for part in "$@"; do
  say "$part"
  case $part in
    rate) rate ;;
    files | far) files "$part" ;;
    small) synthetic small "$SMALL" 4KiB ;;
    medium) synthetic medium "$MEDIUM" 100000 ;;
    huge) synthetic huge 1 "$HUGE" ;;
    *) say "no part $part"; exit 2 ;;
  esac
  stop_all
done
