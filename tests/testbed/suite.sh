#!/usr/bin/env bash
#! Runs the S3 suite and the real clients (tests/s3suite) against verbs3, and compares with the store behind it.
#
#   suite.sh dev DIR    against `verbs3 dev` on its embedded store
#   suite.sh rgw DIR    against Ceph RGW directly, then through two gateways and two workers; compared case by case
#
# DIR takes logs, configurations and records. Exit status 0 only if every case passed and no difference was unexpected.
set -uo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/../..")
# shellcheck source=cluster.sh
. "$HERE/cluster.sh"
[ $# -eq 2 ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }
ROLE=$1 DIR=$2
mkdir -p "$DIR"
VERBS3=$(binary) || exit 1
VENV=$("$HERE/venv.sh") || exit 1
PIDS=()

# pytest_against RECORD ARGUMENT...: with the S3_… variables of the caller.
pytest_against() {
  local record=$1; shift
  rm -f "$record"
  S3_RECORD=$record "$VENV/bin/python" -m pytest -c "$ROOT/tests/s3suite/pytest.ini" "$@"
}

dev() {
  local port status=0; port=$(free_port)
  write_identities
  cat >"$DIR/dev.toml" <<END
[dev]
dir = "$DIR/data"
demo = false

[gateway]
listen = "127.0.0.1:$port"
admin_listen = "127.0.0.1:0"
identities = "$DIR/identities.toml"
sigv2 = true
END
  launch dev "$port" dev || return 1
  export S3_ENDPOINT=http://127.0.0.1:$port S3_ACCESS_KEY=$CLUSTER_ACCESS_KEY S3_SECRET_KEY=$CLUSTER_SECRET_KEY
  S3_STORE=dev S3_WITHOUT="${S3_WITHOUT_DEV-versioning,object_lock}" pytest_against "$DIR/dev.jsonl" "$ROOT/tests/s3suite" || status=1
  stop_cluster || status=1
  return "$status"
}

rgw() {
  local port status=0; port=$(free_port)
  "$HERE/rgw.sh" install && "$HERE/rgw.sh" start "$DIR/store" "$port" || return 1
  # shellcheck disable=SC1091
  . "$DIR/store/env"
  local store=(S3_STORE=rgw "S3_VHOST_DOMAIN=${VHOST_DOMAIN:-}")
  say "directly at the store"
  env "${store[@]}" S3_ENDPOINT="$ENDPOINT" S3_ACCESS_KEY="$ACCESS_KEY" S3_SECRET_KEY="$SECRET_KEY" S3_BUCKET_PREFIX=onstore \
    S3_RECORD="$DIR/direct.jsonl" "$VENV/bin/python" -m pytest -c "$ROOT/tests/s3suite/pytest.ini" \
    --ignore="$ROOT/tests/s3suite/clients" "$ROOT/tests/s3suite" || status=1
  say "through two gateways: written through one, read through the other"
  if start_cluster "$ENDPOINT" "$ACCESS_KEY" "$SECRET_KEY" "${VHOST_DOMAIN:-s3.rgw.test}"; then
    env "${store[@]}" S3_VIA=gateway S3_ENDPOINT="$GATEWAY_0" S3_READER_ENDPOINT="$GATEWAY_1" S3_ACCESS_KEY="$CLUSTER_ACCESS_KEY" \
      S3_SECRET_KEY="$CLUSTER_SECRET_KEY" S3_BUCKET_PREFIX=through S3_RECORD="$DIR/through.jsonl" \
      "$VENV/bin/python" -m pytest -c "$ROOT/tests/s3suite/pytest.ini" "$ROOT/tests/s3suite" || status=1
    "$VENV/bin/python" "$ROOT/tests/s3suite/compare.py" "$DIR/direct.jsonl" "$DIR/through.jsonl" || status=1
    stop_cluster || status=1
  else
    status=1
  fi
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
