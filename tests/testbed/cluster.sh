#!/usr/bin/env bash
#! Owns a small cluster of verbs3 processes for the shell's tests, in front of a store that is there already.
#! Sourced by suite.sh. Deliberately not here: what is asked of the cluster. The Rust tests have tests/src/cluster.rs.

# shellcheck disable=SC2034  # read by whoever sources this
CLUSTER_ACCESS_KEY=VERBS3SUITE
CLUSTER_SECRET_KEY=verbs3-suite-secret-key

say() { echo "suite: $*" >&2; }

# shellcheck source=built.sh
. "$ROOT/tests/testbed/built.sh"

free_port() { "$ROOT/tests/testbed/free_ports.py"; }

# wait_for PORT NAME PID: until something listens there, or the process is gone.
wait_for() {
  for _ in $(seq 600); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return 0; fi
    kill -0 "$3" 2>/dev/null || { say "$2 ended at its start:"; tail -n 20 "$DIR/$2.log" >&2; return 1; }
    sleep 0.1
  done
  say "$2 does not listen on port $1"; return 1
}

# launch NAME PORT ROLE [ARGUMENT...]: starts a role with DIR/NAME.toml and waits until it listens.
launch() {
  local name=$1 port=$2 role=$3; shift 3
  "$VERBS3" "$role" --config "$DIR/$name.toml" "$@" >"$DIR/$name.log" 2>&1 </dev/null &
  PIDS+=("$!")
  wait_for "$port" "$name" "$!"
}

write_identities() {
  cat >"$DIR/identities.toml" <<END
[[identity]]
name = "suite"
access_key = "$CLUSTER_ACCESS_KEY"
secret_key = "$CLUSTER_SECRET_KEY"
allow = [{ mount = "*", rights = ["read", "write", "list", "delete", "warm", "admin"] }]
END
}

# launch_dev NAME PORT [ARGUMENT...]: `verbs3 dev` over the folder DIR/NAME, with the identities of write_identities.
launch_dev() {
  local name=$1 port=$2; shift 2
  write_identities
  printf '[dev]\ndir = "%s"\ndemo = false\n[gateway]\nlisten = "127.0.0.1:%d"\nadmin_listen = "127.0.0.1:0"\nidentities = "%s"\n' \
    "$DIR/$name" "$port" "$DIR/identities.toml" >"$DIR/$name.toml"
  launch "$name" "$port" dev "$@"
}

# launch_store PORT [ARGUMENT...]: such a store for a tier in front of it; its own cache is too small to matter.
launch_store() {
  local port=$1; shift
  launch_dev store "$port" --set worker.memory.capacity=64MiB --set gateway.memory.capacity=64MiB "$@"
}

# launch_uncached_store PORT [ARGUMENT...]: a store that reads and writes its files each time, in DIR/objects, without waiting for disks.
launch_uncached_store() {
  local port=$1; shift
  write_identities
  cat >"$DIR/store.toml" <<END
[dev]
dir = "$DIR/store"
demo = false
[gateway]
listen = "127.0.0.1:$port"
admin_listen = "127.0.0.1:0"
identities = "$DIR/identities.toml"
[[ufs]]
name = "local"
kind = "local"
path = "$DIR/objects"
sync = false
[[mount]]
name = "*"
ufs = "local"
cached = false
END
  launch store "$port" dev --set worker.memory.capacity=32MiB "$@"
}

# shared_config ENDPOINT ACCESS_KEY SECRET_KEY WORKER_PORT...: what all processes agree on.
shared_config() {
  local endpoint=$1 access=$2 secret=$3 index=0 port; shift 3
  cat <<END
[cluster]
name = "suite"
secret = "a secret of the test suite, long enough"
workers_fixed = true

[[ufs]]
name = "store"
endpoint = "$endpoint"
credentials = { kind = "static", access_key_id = "$access", secret_access_key = "$secret" }

# An hour: whatever the cache gets wrong stays wrong long enough to be seen.
[[mount]]
name = "*"
ufs = "store"
attributes_ttl = "1h"
absence_ttl = "1h"

END
  for port in "$@"; do
    printf '[[cluster.workers]]\nid = "worker-%d"\naddress = "127.0.0.1:%d"\n\n' "$index" "$port"
    index=$((index + 1))
  done
}

# launch_coordinator ENDPOINT ACCESS_KEY SECRET_KEY: one coordinator, with its store in DIR. Writes DIR/shared.toml, which members begin with.
launch_coordinator() {
  local port; port=$(free_port)
  shared_config "$@" | sed "s|^workers_fixed = true|coordinators = [\"http://127.0.0.1:$port\"]|" >"$DIR/shared.toml"
  { cat "$DIR/shared.toml"
    printf '[coordinator]\nlisten = "127.0.0.1:%d"\nadmin_listen = "127.0.0.1:0"\nstore = { path = "%s/coordinator" }\n' "$port" "$DIR"
  } >"$DIR/coordinator.toml"
  launch coordinator "$port" coordinator
}

# Lines of a worker's [worker] with which it leases what was just written as well: otherwise after half a minute.
# shellcheck disable=SC2034  # read by whoever sources this
LEASED_AT_ONCE='leases = { quiet_for = "0s" }'

# worker_section INDEX PORT MEMORY [LINE...]: the [worker] of worker-INDEX, with more of its settings; ADMIN: where it says how it is.
worker_section() {
  printf '[worker]\nid = "worker-%d"\nlisten = "127.0.0.1:%d"\nmemory = { capacity = "%s" }\nadmin_listen = "%s"\n' "$1" "$2" "$3" "${ADMIN:-127.0.0.1:0}"
  printf '%s\n' "${@:4}"
}

# gateway_section PORT MEMORY [LINE...]: the [gateway], likewise. IDENTITIES: another file than write_identities makes.
gateway_section() {
  printf '[gateway]\nlisten = "127.0.0.1:%d"\nmemory = { capacity = "%s" }\nadmin_listen = "%s"\n' "$1" "$2" "${ADMIN:-127.0.0.1:0}"
  printf 'identities = "%s"\n' "${IDENTITIES:-$DIR/identities.toml}"
  printf '%s\n' "${@:3}"
}

# create_bucket PORT BUCKET: through the gateway at the port.
create_bucket() {
  curl -fsS -o /dev/null -X PUT --aws-sigv4 aws:amz:us-east-1:s3 -u "$CLUSTER_ACCESS_KEY:$CLUSTER_SECRET_KEY" \
    -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' "http://127.0.0.1:$1/$2"
}

# start_cluster ENDPOINT ACCESS_KEY SECRET_KEY DOMAIN: two workers and two gateways; sets GATEWAY_0, GATEWAY_1 and ADMINS,
# the admin addresses of all four.
start_cluster() {
  local workers gateway_ports index admin
  ADMINS=
  workers=("$(free_port)" "$(free_port)"); gateway_ports=("$(free_port)" "$(free_port)")
  write_identities
  for index in 0 1; do
    admin=127.0.0.1:$(free_port) ADMINS=$ADMINS${ADMINS:+,}$admin
    { shared_config "$1" "$2" "$3" "${workers[@]}"
      # Room for all that the clients read: a full cache lets go of what was read once, and then hot isn't.
      ADMIN=$admin worker_section "$index" "${workers[$index]}" 1GiB
    } >"$DIR/worker-$index.toml"
    launch "worker-$index" "${workers[$index]}" worker || return 1
  done
  for index in 0 1; do
    admin=127.0.0.1:$(free_port) ADMINS=$ADMINS${ADMINS:+,}$admin
    { shared_config "$1" "$2" "$3" "${workers[@]}"
      ADMIN=$admin gateway_section "${gateway_ports[$index]}" 256MiB 'sigv2 = true' "domains = [\"$4\"]" \
        'tier = { hedge_after = "19s", first_progress = "20s" }'
    } >"$DIR/gateway-$index.toml"
    launch "gateway-$index" "${gateway_ports[$index]}" gateway || return 1
  done
  GATEWAY_0=http://127.0.0.1:${gateway_ports[0]} GATEWAY_1=http://127.0.0.1:${gateway_ports[1]}
}

# Ends the processes by pid, the last started first, and says how each ended if not well.
stop_cluster() {
  local index pid status ended=0
  for ((index = ${#PIDS[@]} - 1; index >= 0; index--)); do
    pid=${PIDS[$index]}
    kill -TERM "$pid" 2>/dev/null || true
    wait "$pid"; status=$?
    [ "$status" -eq 0 ] || { say "process $pid ended with $status"; ended=1; }
  done
  PIDS=()
  return "$ended"
}
