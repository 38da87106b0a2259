#!/usr/bin/env bash
#! Runs a scenario of verbs3-loadtest against a gateway and a worker that are processes of their own, over
#! shared memory, or with WAY=tcp over TCP on loopback.
#
#   loadtest/two-processes.sh hot [ARGUMENTS]       server CPU of gateway and worker together, against nginx
#   loadtest/two-processes.sh memory [ARGUMENTS]    resident memory of gateway and worker together, against their bound
#
# A third process, `verbs3 dev`, is the store behind them; neither its CPU nor its memory is counted. GATEWAY_MIB and WORKER_MIB
# are the sizes of the arenas (defaults by scenario). With COORDINATED=true a coordinator gives the map, so that homes grant
# attribute leases and the gateway holds small objects; its CPU is not counted either. Needs a release build. Ends what it has started, by pid.
set -euo pipefail

ROOT=$(readlink -f "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/..")
# shellcheck source=../tests/testbed/cluster.sh
. "$ROOT/tests/testbed/cluster.sh"
case ${1:-} in
  hot) scenario=hot GATEWAY_MIB=${GATEWAY_MIB:-256} WORKER_MIB=${WORKER_MIB:-512} ;;
  memory) scenario=memory GATEWAY_MIB=${GATEWAY_MIB:-64} WORKER_MIB=${WORKER_MIB:-256} ;;
  *) usage ;;
esac
shift
case ${WAY:-shm} in shm) SHM=true ;; tcp) SHM=false ;; *) echo "WAY is shm or tcp" >&2; exit 2 ;; esac
VERBS3=$(binary)
PIDS=()
DIR=$(mktemp -d "${TMPDIR:-/tmp}/verbs3-two.XXXXXX")
trap 'stop_cluster || true; rm -rf -- "$DIR"' EXIT

store_port=$(free_port) worker_port=$(free_port) gateway_port=$(free_port)
launch_store "$store_port"
shared=("http://127.0.0.1:$store_port" "$CLUSTER_ACCESS_KEY" "$CLUSTER_SECRET_KEY")
leases=()
if [ "${COORDINATED:-false}" = true ]; then
  launch_coordinator "${shared[@]}"
  leases=("$LEASED_AT_ONCE")
else
  shared_config "${shared[@]}" "$worker_port" >"$DIR/shared.toml"
fi
{ cat "$DIR/shared.toml"
  worker_section 0 "$worker_port" "${WORKER_MIB}MiB" "shm = { enabled = $SHM, socket = \"$DIR/worker.sock\" }" "${leases[@]}"
} >"$DIR/worker.toml"
launch worker "$worker_port" worker
{ cat "$DIR/shared.toml"
  gateway_section "$gateway_port" "${GATEWAY_MIB}MiB"
} >"$DIR/gateway.toml"
launch gateway "$gateway_port" gateway

# The promise holds for each process: its arena, its index, and 256 MiB.
[ "$scenario" = hot ] || set -- --bound-mib $((GATEWAY_MIB + WORKER_MIB + 2 * 256)) "$@"
"$(dirname "$VERBS3")/verbs3-loadtest" "$scenario" --endpoint "127.0.0.1:$gateway_port" --pids "${PIDS[-2]},${PIDS[-1]}" \
  --access-key "$CLUSTER_ACCESS_KEY" --secret-key "$CLUSTER_SECRET_KEY" "$@" ||
  { tail -n 20 "$DIR"/*.log >&2; exit 1; }
