#!/usr/bin/env bash
#! Runs MLPerf Storage's engine (MLCommons' DLIO) over S3 against a store behind the shaped proxy: directly, and through a gateway and
#! a worker. unet3d training, then checkpoints. Writes DIR/mlperf.json and prints the tables; an aim that is missed is said to be.
#
#   loadtest/mlperf/run.sh DIR [--scale small|full]     measures into DIR: small takes 12 minutes and 12 GiB of memory
#   loadtest/mlperf/run.sh tables DIR                   prints the tables of what is in DIR
#
# small: 168 samples of 18.3 MB, an eighth of the benchmark's. full: 3500 samples of 147 MB, 513 GB, as many steps as the benchmark asks
# for; for a machine with 640 GiB of memory and a store of that size. Both: one accelerator. Needs root, for a chroot with torch
# (tests/testbed/torch.sh), and once the engine's source: DLIO_SOURCE (environment.sh). Wants an idle machine: what others take of it is said.
# ROUNDS (3) of the sides in turn; PARTS="train checkpoint". BANDWIDTH, CONNECTION_BANDWIDTH and FIRST_BYTE shape the store (256MiB,
# 64MiB, 10ms). FILES: how many samples; WINDOW: what each of the engine's four processes asks for ahead. GATEWAY_MEMORY (1GiB, the
# default of gateways). PATIENCE: seconds to wait for a calm machine before each run (0). VERBS3_PROFILE names another build than release; VERBS3 and LOADTEST name binaries. Ends what it has started, by pid.
set -euo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/../..")
# shellcheck source=../../tests/testbed/cluster.sh
. "$ROOT/tests/testbed/cluster.sh"
# shellcheck source=../shaped.sh
. "$ROOT/loadtest/shaped.sh"
case ${1:-} in
  '' | -*) usage ;;
  tables) exec python3 "$HERE/mlperf_report.py" "${2:?DIR}" ;;
esac
OUT=$(mkdir -p "$1" && readlink -f "$1"); shift
SCALE=small
while [ $# -gt 0 ]; do
  case $1 in --scale) SCALE=${2:-}; shift 2 || usage ;; *) usage ;; esac
done
case $SCALE in
  # The engine asks for 64 samples and two batches ahead in each process. Of 168 samples that is all of them before the first step,
  # which utilisation leaves out: it would be 99 % at any speed. A few keep the share of an epoch that is asked for ahead.
  small) SAMPLE=18325078 RESIZED=262144 MEMORY=5GiB FILES=${FILES:-168} WINDOW=${WINDOW:-4} BATCHES=1 ;;
  full) SAMPLE=146600628 RESIZED=2097152 MEMORY=560GiB FILES=${FILES:-3500} WINDOW=${WINDOW:-64} BATCHES=2 ;;
  *) usage ;;
esac
[ "$(id -u)" = 0 ] || { say "must run as root: torch is in a chroot"; exit 1; }
VERBS3=${VERBS3:-$(binary)}
LOADTEST=${LOADTEST:-$(dirname "$VERBS3")/verbs3-loadtest}
[ -x "$LOADTEST" ] || { say "$LOADTEST is missing: cargo build --profile $VERBS3_PROFILE --workspace"; exit 1; }
ROUNDS=${ROUNDS:-3} PARTS=${PARTS:-train checkpoint}
BANDWIDTH=${BANDWIDTH:-256MiB} CONNECTION_BANDWIDTH=${CONNECTION_BANDWIDTH:-64MiB} FIRST_BYTE=${FIRST_BYTE:-10ms}
GATEWAY_MEMORY=${GATEWAY_MEMORY:-1GiB} EPOCHS=3 RANKS=2 BUCKET=mlperf
# Four processes of the engine with 64 requests each, and as many again of it to come.
CONNECTIONS_MAX=1024
JOB=$("$HERE/environment.sh")
PATIENCE=${PATIENCE:-0}
PIDS=() TIER_PIDS=()
DIR=$(mktemp -d "${TMPDIR:-/tmp}/verbs3-mlperf.XXXXXX")
RUN=$JOB/runs/$$
trap 'stop_cluster || true; rm -rf -- "$DIR" "$RUN"' EXIT
mkdir -p "$RUN"
cp -r "$HERE/workload" "$HERE"/{mlperf_engine,cpu_ledger,streaming_checkpoint}.py "$RUN"
rm -rf -- "$OUT"/run-* "$OUT/data.xml"; : >"$OUT/runs.jsonl"

store() {
  STORE=$(free_port)
  launch_uncached_store "$STORE" --set gateway.memory.capacity=64MiB
  create_bucket "$STORE" "$BUCKET"
}

# tier POPULATE: an empty worker and a gateway behind the shaped way BEHIND; sets GATEWAY, ADMIN_PAGE and WORKER_PAGE.
tier() {
  local worker; worker=$(free_port) GATEWAY=$(free_port) ADMIN_PAGE=127.0.0.1:$(free_port) WORKER_PAGE=127.0.0.1:$(free_port)
  shared_config "http://$BEHIND" "$CLUSTER_ACCESS_KEY" "$CLUSTER_SECRET_KEY" "$worker" |
    sed "s|^absence_ttl = .*|&\npopulate_on_write = \"$1\"|" >"$DIR/shared.toml"
  { cat "$DIR/shared.toml"
    ADMIN=$WORKER_PAGE worker_section 0 "$worker" "$MEMORY" "shm = { socket = \"$DIR/worker.sock\" }" 'populate = { staged_max = "1GiB" }'
  } >"$DIR/worker.toml"
  { cat "$DIR/shared.toml"
    ADMIN=$ADMIN_PAGE gateway_section "$GATEWAY" "$GATEWAY_MEMORY"
  } >"$DIR/gateway.toml"
  # Its cache is empty, its memory is not new: a worker that has run for a day pays for no first touch of a page.
  launch worker "$worker" worker --set worker.memory.populate=true; TIER_PIDS+=("${PIDS[-1]}")
  launch gateway "$GATEWAY" gateway --set gateway.memory.populate=true; TIER_PIDS+=("${PIDS[-1]}")
}

# They were started last.
stop_tier() {
  local pid
  for pid in "${TIER_PIDS[@]}"; do kill -TERM "$pid"; wait "$pid" || say "process $pid ended with $?"; unset 'PIDS[-1]'; done
  TIER_PIDS=()
}

# engine NAME RANKS WORKLOAD ENDPOINT OVERRIDE...: one run; what the engine and the notes say is in OUT/run-NAME. NOTED: what
# mlperf_engine.py is told of the servers.
engine() {
  local name=$1 ranks=$2 workload=$3 endpoint=$4 inside=/job/runs/$$; shift 4
  mkdir -p "$RUN/out"
  AWS_ACCESS_KEY_ID=$CLUSTER_ACCESS_KEY AWS_SECRET_ACCESS_KEY=$CLUSTER_SECRET_KEY AWS_REGION=us-east-1 AWS_EC2_METADATA_DISABLED=true \
    AWS_ENDPOINT_URL=http://$endpoint "$ROOT/tests/testbed/torch.sh" run "$JOB" \
    env "PYTHONPATH=$inside:/job/site:/job/engine" LD_LIBRARY_PATH=/job/mpi/lib OPAL_PREFIX=/job/mpi \
    /job/mpi/bin/mpirun --allow-run-as-root --map-by :OVERSUBSCRIBE -n "$ranks" \
    python3 "$inside/mlperf_engine.py" "$inside/out/notes.json" "${NOTED[@]}" \
    "--config-dir=$inside" "workload=$workload" "hydra.run.dir=$inside/out" "++workload.output.folder=$inside/out" \
    "++workload.storage.storage_options.endpoint_url=http://$endpoint" "++workload.train.epochs=$EPOCHS" "$@" >"$OUT/run-$name.log" 2>&1 </dev/null ||
    { say "the engine failed; the end of $OUT/run-$name.log:"; tail -n 20 "$OUT/run-$name.log" >&2; return 1; }
  mv "$RUN/out" "$OUT/run-$name"
}

# What others take of the CPUs, in the second before a run, when nothing of ours is busy.
busy_percent() {
  python3 -c '
import time
def ticks():
    fields = [int(field) for field in open("/proc/stat").readline().split()[1:9]]
    return sum(fields), fields[3] + fields[4]
total, idle = ticks()
time.sleep(1)
total_then, idle_then = ticks()
print(round(100 - 100 * (idle_then - idle) / max(total_then - total, 1)))'
}

# Waits up to PATIENCE seconds until others take less than a tenth of the CPUs.
calm() {
  local end=$((SECONDS + PATIENCE))
  while [ "$SECONDS" -lt "$end" ] && [ "$(busy_percent)" -ge 10 ]; do sleep 2; done
}

# measured PART SIDE ROUND RANKS WORKLOAD OVERRIDE...: one run of a side, with a tier of its own where it has one.
measured() {
  local part=$1 side=$2 round=$3 ranks=$4 workload=$5 name=$1-$2-$3 busy; shift 5
  [ "$side" = direct ] || { if [ "$side" = populated ]; then tier on; else tier off; fi; }
  calm
  busy=$(busy_percent)
  say "$part, round $round, $side; others take $busy % of the CPUs"
  if [ "$side" = direct ]; then
    # shellcheck disable=SC2153  # by `shaped`
    NOTED=("$DIRECT_COUNTS" "$BEHIND_COUNTS" none "store=$STORE_PID,proxy=$DIRECT_PID")
    engine "$name" "$ranks" "$workload" "$DIRECT" "$@"
  else
    NOTED=("$BEHIND_COUNTS" "$DIRECT_COUNTS" "$ADMIN_PAGE" "store=$STORE_PID,proxy=$BEHIND_PID,worker=${TIER_PIDS[0]},gateway=${TIER_PIDS[1]}")
    engine "$name" "$ranks" "$workload" "127.0.0.1:$GATEWAY" "$@"
    curl -sf "http://$ADMIN_PAGE/metrics" >"$OUT/run-$name/gateway.metrics"
    curl -sf "http://$WORKER_PAGE/metrics" >"$OUT/run-$name/worker.metrics"
    stop_tier
  fi
  printf '{"part": "%s", "side": "%s", "round": %d, "folder": "run-%s", "busy_percent": %d, "loadavg": "%s"}\n' "$part" "$side" "$round" "$name" "$busy" \
    "$(cut -d' ' -f1-3 /proc/loadavg)" >>"$OUT/runs.jsonl"
}

# in_turn PART RANKS WORKLOAD SIDES: the order of the sides turns around each round.
in_turn() {
  local part=$1 ranks=$2 workload=$3 sides=$4 round side order
  for round in $(seq "$ROUNDS"); do
    order=$sides
    [ $((round % 2)) = 1 ] || order=$(tr ' ' '\n' <<<"$sides" | tac)
    for side in $order; do measured "$part" "$side" "$round" "$ranks" "$workload" "${SIZES[@]}"; done
  done
}

store; STORE_PID=${PIDS[-1]}
shaped DIRECT "$STORE" --connections-max "$CONNECTIONS_MAX"; DIRECT_PID=${PIDS[-1]}
shaped BEHIND "$STORE" --connections-max "$CONNECTIONS_MAX"; BEHIND_PID=${PIDS[-1]}
# shellcheck disable=SC2153  # by `shaped`
for part in $PARTS; do
  case $part in
    train)
      SIZES=("++workload.dataset.num_files_train=$FILES" "++workload.dataset.record_length_bytes=$SAMPLE" "++workload.dataset.record_length_bytes_resize=$RESIZED"
        "++workload.storage.storage_options.prefetch_window=$WINDOW" "++workload.reader.prefetch_size=$BATCHES")
      say "making $FILES samples of $SAMPLE bytes"
      NOTED=("$DIRECT_COUNTS" "$BEHIND_COUNTS" none "store=$STORE_PID")
      engine data 1 unet3d "127.0.0.1:$STORE" "${SIZES[@]}" \
        ++workload.workflow.generate_data=true ++workload.workflow.train=false
      curl -fsS --aws-sigv4 aws:amz:us-east-1:s3 -u "$CLUSTER_ACCESS_KEY:$CLUSTER_SECRET_KEY" -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' \
        "http://127.0.0.1:$STORE/$BUCKET?list-type=2&prefix=unet3d%2Ftrain%2F" >"$OUT/data.xml"
      in_turn train 1 unet3d "direct through"
      ;;
    checkpoint) SIZES=(); in_turn checkpoint "$RANKS" checkpoint "direct plain populated" ;;
    *) say "no part $part"; exit 2 ;;
  esac
done
python3 - "$OUT/machine.json" "$BANDWIDTH" "$CONNECTION_BANDWIDTH" "$FIRST_BYTE" "$(git -C "$ROOT" describe --always --dirty 2>/dev/null || true)" "$VERBS3_PROFILE" "$SCALE" "$ROUNDS" "$WINDOW" <<'MACHINE_END'
import json, os, platform, sys, time
model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
names = ("bandwidth", "connection_bandwidth", "first_byte", "revision", "profile", "scale", "rounds", "window")
json.dump({"cpus": os.cpu_count(), "model": model, "kernel": platform.release(), "date": time.strftime("%Y-%m-%d"),
           **dict(zip(names, sys.argv[2:]))}, open(sys.argv[1], "w"))
MACHINE_END
python3 "$HERE/mlperf_report.py" "$OUT"
