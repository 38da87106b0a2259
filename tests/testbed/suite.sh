#!/usr/bin/env bash
#! Runs the S3 suite and the real clients (tests/s3suite) against verbs3, and compares with the store behind it.
#
#   suite.sh dev DIR    against `verbs3 dev` on its embedded store
#   suite.sh rgw DIR    against Ceph RGW directly, then through two gateways and two workers; compared case by case
#                       (18.2; by hand 20.2, with VERBS3_RGW=20.2: rgw-20.2.toml says what it does otherwise than S3)
#
# DIR takes logs, configurations and records. Exit status 0 only if every case passed and no difference was unexpected.
set -uo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/../..")
# shellcheck source=cluster.sh
. "$HERE/cluster.sh"
[ $# -eq 2 ] || usage
ROLE=$1 DIR=$2
mkdir -p "$DIR"
VERBS3=$(binary) || exit 1
VENV=$("$HERE/venv.sh") || exit 1
export S3_NOT_PROVEN=$DIR/not-proven; rm -f "$S3_NOT_PROVEN"
SUITE=$ROOT/tests/s3suite
PIDS=()

# gateway_env ENDPOINT ADMINS [DOMAIN]: an endpoint of the cluster, as run.sh reads one.
gateway_env() {
  printf 'ENDPOINT=%s\nADMIN=%s\nACCESS_KEY=%s\nSECRET_KEY=%s\nVHOST_DOMAIN=%s\n' "$1" "$2" "$CLUSTER_ACCESS_KEY" "$CLUSTER_SECRET_KEY" "${3:-}"
}

# What clients need that do not live in the suite's own environment. Side by side, since each waits for its registry;
# here, since a case has no time for it. What this machine can't have is said by the cases themselves, as NOT PROVEN.
prepare_clients() {
  local pids=() pid status=0
  "$HERE/venv.sh" s3fs >/dev/null & pids+=("$!")
  "$HERE/venv.sh" api >/dev/null & pids+=("$!")
  if [ "$(id -u)" -eq 0 ]; then "$HERE/torch.sh" install & pids+=("$!"); fi
  { "$HERE/node.sh" >/dev/null || [ $? -eq 3 ]; } & pids+=("$!")
  for pid in "${pids[@]}"; do wait "$pid" || status=1; done
  [ "$status" -eq 0 ] || say "not everything that clients need could be installed"
  return "$status"
}

# shown ROWS: what the clients' jobs have shown is what docs/clients.md says.
shown() { "$VENV/bin/python" "$SUITE/matrix.py" "$ROOT/docs/clients.md" "$1"; }

# suite ENV RECORD ARGUMENT...: what is not said here is said by the S3_… variables of the caller.
suite() {
  local env=$1 record=$2; shift 2
  rm -f "$record"
  "$SUITE/run.sh" "$env" --record "$record" "$@"
}

# An OpenTelemetry receiver in a process of its own; ended after the process that tells it, so first in the list.
receiver() { # PORT
  "$VENV/bin/python" "$HERE/otlp_receiver.py" serve "$1" "$DIR/otlp.jsonl" >"$DIR/receiver.log" 2>&1 </dev/null &
  PIDS+=("$!")
  wait_for "$1" receiver "$!"
}

# save_metrics ADMIN...: what each process shows at /metrics when no request is left; sets METRICS, the files.
save_metrics() {
  local admin file
  METRICS=()
  for admin in "$@"; do
    file=$DIR/metrics-${admin##*:}.txt; METRICS+=("$file")
    for _ in {1..100}; do
      curl -sf --noproxy '*' -o "$file" "http://$admin/metrics" || return 1
      grep -qE '^verbs3_gateway_requests_in_flight [1-9]' "$file" || break
      sleep 0.1
    done
  done
}

# A collector before the receiver: it decodes what it is told, batches it, and tells it again by its own means.
collector() { # PORT, PORT OF THE RECEIVER
  "$VENV/bin/python" -c 'import os, rotel; print(os.path.join(os.path.dirname(rotel.__file__), "rotel-agent"))' >"$DIR/collector.path" || return 1
  "$(cat "$DIR/collector.path")" start --otlp-http-endpoint "127.0.0.1:$1" --otlp-grpc-endpoint "127.0.0.1:$(free_port)" \
    --exporter otlp --otlp-exporter-protocol http --otlp-exporter-endpoint "http://127.0.0.1:$2" >"$DIR/collector.log" 2>&1 </dev/null &
  PIDS+=("$!")
  wait_for "$1" collector "$!"
}

dev() {
  local port admin told taken status=0; port=$(free_port) admin=$(free_port) told=$(free_port) taken=$(free_port)
  prepare_clients || return 1
  write_identities
  receiver "$taken" && collector "$told" "$taken" || return 1
  cat >"$DIR/dev.toml" <<END
[dev]
dir = "$DIR/data"
demo = false

[gateway]
listen = "127.0.0.1:$port"
admin_listen = "127.0.0.1:$admin"
identities = "$DIR/identities.toml"
sigv2 = true
tier = { hedge_after = "19s", first_progress = "20s" }

[telemetry.otlp]
endpoint = "http://127.0.0.1:$told"
sample_ratio = 1.0
queue_max = 65536
END
  launch dev "$port" dev || return 1
  gateway_env "http://127.0.0.1:$port" "127.0.0.1:$admin" >"$DIR/dev.env"
  S3_MATRIX=$DIR/dev.matrix S3_WITHOUT="${S3_WITHOUT_DEV-versioning,object_lock,cors}" suite "$DIR/dev.env" "$DIR/dev.jsonl" --store dev "$SUITE" || status=1
  shown "$DIR/dev.matrix" || status=1
  say "the coordinator's API, by its own document"
  "$ROOT/tests/api/run.sh" "$DIR/data/cluster.toml" "$DIR/dev.env" "$DIR/api" || status=1
  save_metrics "127.0.0.1:$admin" || status=1
  stop_cluster || status=1
  "$VENV/bin/python" "$HERE/otlp_receiver.py" check "$DIR/otlp.jsonl" "${METRICS[@]}" || status=1
  return "$status"
}

# faults: what clients see when RGW fails, by the proxy of tests/src/proxy in front of it. The one case that stops radosgw itself
# runs after the others, which share it.
faults() {
  local stops=hits_are_served_while_the_store_is_stopped status=0 only binary
  binary=$(test_binary store_faults) || return 1
  for only in "--skip $stops" "$stops"; do
    # shellcheck disable=SC2086 # two words
    (cd "$ROOT/tests" && S3_ENDPOINT=$ENDPOINT S3_ACCESS_KEY=$ACCESS_KEY S3_SECRET_KEY=$SECRET_KEY \
      S3_STORE_PID=$(awk '$3 == "radosgw" { print $1 }' "$DIR/store/pids") \
      timeout 300 "$binary" $only --test-threads=4 2>&1 | tee "$DIR/faults.out") || status=1
    grep -qE '^test result: ok\. [1-9]' "$DIR/faults.out" || { say "ERROR: no case of store_faults ran ($only)"; status=1; }
  done
  return "$status"
}

rgw() {
  local port told direct status=0 store=rgw; port=$(free_port) told=$(free_port)
  [ "${VERBS3_RGW:-18.2}" = 18.2 ] || store=rgw-$VERBS3_RGW
  prepare_clients || return 1
  "$HERE/rgw.sh" install && "$HERE/rgw.sh" start "$DIR/store" "$port" || return 1
  # shellcheck disable=SC1091
  . "$DIR/store/env"
  # Beside the other, which waits a great deal; told when that has ended. form_max: the bound of the gateway, which the store has not.
  S3_WITHOUT=form_max S3_BUCKET_PREFIX=onstore suite "$DIR/store/env" "$DIR/direct.jsonl" --store "$store" --ignore="$SUITE/clients" "$SUITE" \
    >"$DIR/direct.out" 2>&1 & direct=$!
  say "through two gateways: written through one, read through the other"
  # Every request to the store carries a trace, which its check of signatures must not mind.
  if receiver "$told" && VERBS3_TELEMETRY__OTLP__ENDPOINT=http://127.0.0.1:$told VERBS3_TELEMETRY__OTLP__SAMPLE_RATIO=1.0 \
    VERBS3_TELEMETRY__OTLP__QUEUE_MAX=65536 start_cluster "$ENDPOINT" "$ACCESS_KEY" "$SECRET_KEY" "${VHOST_DOMAIN:-s3.rgw.test}"; then
    gateway_env "$GATEWAY_0" "$ADMINS" "${VHOST_DOMAIN:-}" >"$DIR/writer.env"
    gateway_env "$GATEWAY_1" "$ADMINS" "${VHOST_DOMAIN:-}" >"$DIR/reader.env"
    S3_MATRIX=$DIR/through.matrix S3_BUCKET_PREFIX=through suite "$DIR/writer.env" "$DIR/through.jsonl" --store "$store" --via gateway --reader "$DIR/reader.env" \
      "$SUITE" || status=1
    wait "$direct" || status=1
    say "directly at the store"; cat "$DIR/direct.out"
    shown "$DIR/through.matrix" || status=1
    "$VENV/bin/python" "$SUITE/compare.py" --store "$store" "$DIR/direct.jsonl" "$DIR/through.jsonl" || status=1
    # The table of operations is made of this one's.
    [ "$store" != rgw ] || "$VENV/bin/python" "$SUITE/results.py" "$DIR/direct.jsonl" "$DIR/through.jsonl" || status=1
    # shellcheck disable=SC2086 # four words
    save_metrics ${ADMINS//,/ } || status=1
    stop_cluster || status=1
    "$VENV/bin/python" "$HERE/otlp_receiver.py" check "$DIR/otlp.jsonl" "${METRICS[@]}" || status=1
  else
    stop_cluster
    wait "$direct"; cat "$DIR/direct.out"
    status=1
  fi
  say "behind a proxy that fails"
  faults || status=1
  "$HERE/rgw.sh" stop "$DIR/store" || status=1
  return "$status"
}

case $ROLE in
  dev) dev ;;
  rgw) rgw ;;
  *) say "no role $ROLE"; exit 2 ;;
esac
status=$?
[ "$status" -eq 0 ] || tail -n 5 "$DIR"/*.log >&2 2>/dev/null
exit "$status"
