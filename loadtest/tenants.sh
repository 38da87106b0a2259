#!/usr/bin/env bash
#! Measures what one tenant notices of another, at two gateways over one worker: at one they are two tenants, at the
#! other they are one.
#
#   loadtest/tenants.sh [ARGUMENTS]    see verbs3-loadtest tenants --help
#
# A further process, `verbs3 dev` behind the shaped proxy, is the store. READ_MIB is gateway.read.bytes_in_flight_max: what
# all reads of a gateway hold at once, and so what a read waits for; RESERVE is gateway.limits.tenant_reserve_percent. SERVER_CPUS (gateway and worker) and CLIENT_CPUS (clients and
# the store), lists as of taskset, keep them apart, like hosts do. The store and its proxy compute last: one on hosts of its
# own takes no CPU from a gateway. Needs a release build. Ends what it has started, by pid.
set -euo pipefail

ROOT=$(readlink -f "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/..")
# shellcheck source=../tests/testbed/cluster.sh
. "$ROOT/tests/testbed/cluster.sh"
READ_MIB=${READ_MIB:-4} REQUESTS=${REQUESTS:-32} STORE_REQUESTS=${STORE_REQUESTS:-3} WORKER_MIB=${WORKER_MIB:-256} RESERVE=${RESERVE:-10}
VERBS3=$(binary)
LOADTEST=$(dirname "$VERBS3")/verbs3-loadtest
# Children inherit it.
stay_on() { [ -z "$1" ] || taskset -pc "$1" "$$" >/dev/null; }
PIDS=()
DIR=$(mktemp -d "${TMPDIR:-/tmp}/verbs3-tenants.XXXXXX")
trap 'stop_cluster || true; rm -rf -- "$DIR"' EXIT

stay_on "${CLIENT_CPUS:-}"
store_port=$(free_port) proxy_port=$(free_port) worker_port=$(free_port)
launch_store "$store_port" --set dev.demo=true
"$LOADTEST" proxy --listen "127.0.0.1:$proxy_port" --store "127.0.0.1:$store_port" --first-byte 10ms --bandwidth 400MiB \
  >"$DIR/proxy.log" 2>&1 &
PIDS+=("$!")
wait_for "$proxy_port" proxy "$!"
for pid in "${PIDS[@]}"; do renice -n 15 -p "$pid" >/dev/null; for task in /proc/"$pid"/task/*; do renice -n 15 -p "${task##*/}" >/dev/null; done; done
stay_on "${SERVER_CPUS:-}"
shared_config "http://127.0.0.1:$proxy_port" "$CLUSTER_ACCESS_KEY" "$CLUSTER_SECRET_KEY" "$worker_port" >"$DIR/shared.toml"
{ cat "$DIR/shared.toml"
  worker_section 0 "$worker_port" "${WORKER_MIB}MiB" "shm = { socket = \"$DIR/worker.sock\" }"
} >"$DIR/worker.toml"
launch worker "$worker_port" worker

# identities_of FAIR_TENANT_OF_VICTIM FAIR_TENANT_OF_AGGRESSOR
identities_of() {
  local key tenant
  for key in VICTIM:$1 AGGRESSOR:$2; do
    tenant=${key#*:}
    cat <<END
[[identity]]
access_key = "${key%:*}"
secret_key = "$CLUSTER_SECRET_KEY"
tenant = "$tenant"
allow = [{ mount = "*", rights = ["read", "write", "list", "delete"] }]

END
  done
}

identities_of victim aggressor >"$DIR/fair-identities.toml"
identities_of both both >"$DIR/one-identities.toml"
for side in fair one; do
  port=$(free_port)
  { cat "$DIR/shared.toml"
    IDENTITIES=$DIR/$side-identities.toml gateway_section "$port" 128MiB \
      "limits = { requests_in_flight_max = $REQUESTS, store_requests_max = $STORE_REQUESTS, tenant_reserve_percent = $RESERVE }" \
      "read = { bytes_in_flight_max = \"${READ_MIB}MiB\", window = \"${READ_MIB}MiB\" }"
  } >"$DIR/$side.toml"
  launch "$side" "$port" gateway
  declare "$side=http://127.0.0.1:$port/demo"
done

stay_on "${CLIENT_CPUS:-}"
# shellcheck disable=SC2154  # declared above
"$LOADTEST" tenants --fair "$fair" --shared "$one" --victim-key VICTIM --aggressor-key AGGRESSOR \
  --secret-key "$CLUSTER_SECRET_KEY" "$@" || { tail -n 20 "$DIR"/*.log >&2; exit 1; }
