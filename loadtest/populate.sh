#!/usr/bin/env bash
#! Measures populate on write: checkpoints are written and read back through a gateway that copies writes to its worker, held
#! against one that does not. Shows the latencies of both, the bytes that each worker took from the store, and the
#! pages of writes that were given up, by reason.
#
#   loadtest/populate.sh [SCENARIO [ARGUMENTS]]     SCENARIO: checkpoint (the default) or checkpoint-multipart
#
# Each side has a gateway and a worker of its own; `verbs3 dev` is the store behind both. ARGUMENTS go to `verbs3 bench s3`.
# WORKER_MIB is the worker's memory (1024), STAGED_MIB its part for writes under way (512). Needs a release build, or VERBS3, the
# binary. Ends what it has started, by pid.
set -euo pipefail

ROOT=$(readlink -f "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/..")
# shellcheck source=../tests/testbed/cluster.sh
. "$ROOT/tests/testbed/cluster.sh"
scenario=${1:-checkpoint}
case $scenario in checkpoint | checkpoint-multipart) ;; *) usage ;; esac
[ $# -eq 0 ] || shift
WORKER_MIB=${WORKER_MIB:-1024} STAGED_MIB=${STAGED_MIB:-512}
VERBS3=${VERBS3:-$(binary)}
# shellcheck disable=SC2034  # cluster.sh reads it
PIDS=()
DIR=$(mktemp -d "${TMPDIR:-/tmp}/verbs3-populate.XXXXXX")
trap 'stop_cluster || true; rm -rf -- "$DIR"' EXIT

store_port=$(free_port)
launch_uncached_store "$store_port" --set gateway.memory.capacity=32MiB
for bucket in populated plain; do create_bucket "$store_port" "$bucket"; done

# side NAME: a worker and a gateway; sets PORT, and leaves their admin addresses in DIR/NAME.worker and DIR/NAME.gateway.
side() {
  local name=$1 worker
  worker=$(free_port) PORT=$(free_port)
  echo "127.0.0.1:$(free_port)" >"$DIR/$name.worker"
  echo "127.0.0.1:$(free_port)" >"$DIR/$name.gateway"
  shared_config "http://127.0.0.1:$store_port" "$CLUSTER_ACCESS_KEY" "$CLUSTER_SECRET_KEY" "$worker" |
    sed "s|^absence_ttl = .*|&\npopulate_on_write = \"$name\"|" >"$DIR/$name-shared.toml"
  { cat "$DIR/$name-shared.toml"
    ADMIN=$(cat "$DIR/$name.worker") worker_section 0 "$worker" "${WORKER_MIB}MiB" "shm = { socket = \"$DIR/$name.sock\" }" \
      "populate = { staged_max = \"${STAGED_MIB}MiB\" }"
  } >"$DIR/worker-$name.toml"
  { cat "$DIR/$name-shared.toml"
    ADMIN=$(cat "$DIR/$name.gateway") gateway_section "$PORT" 256MiB
  } >"$DIR/gateway-$name.toml"
  launch "worker-$name" "$worker" worker
  launch "gateway-$name" "$PORT" gateway
}

side on; on=$PORT
side off; off=$PORT
"$VERBS3" bench s3 "$scenario" --target "on=http://127.0.0.1:$on/populated" --against "off=http://127.0.0.1:$off/plain" \
  --access-key "$CLUSTER_ACCESS_KEY" --secret-key "$CLUSTER_SECRET_KEY" "$@" ||
  { tail -n 20 "$DIR"/*.log >&2; exit 1; }
for name in on off; do
  curl -sf "http://$(cat "$DIR/$name.worker")/metrics" "http://$(cat "$DIR/$name.gateway")/metrics" | awk -v name="$name" '
    /^verbs3_worker_filled_bytes_total / { filled = $2 }
    /^verbs3_worker_staged_pages_total\{end="committed"\}/ { committed = $2 }
    /^verbs3_populate_given_up_pages_total/ && $2 > 0 { split($1, label, "\""); left = left ", " $2 " " label[2] }
    END { printf "%s: %.0f bytes from the store, %d pages from writes%s\n", name, filled, committed, left }'
done
