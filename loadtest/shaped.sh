#!/usr/bin/env bash
#! Owns shaped ways to a store, for scripts that measure: a proxy that makes a store of this machine as slow as one far away.
#! Sourced, with LOADTEST, DIR, PIDS, BANDWIDTH, CONNECTION_BANDWIDTH and FIRST_BYTE set, behind cluster.sh.

# shaped NAME STORE_PORT [ARGUMENT...]: a shaped way to the store; sets NAME and NAME_COUNTS, its address and that of its counters.
shaped() {
  local name=$1 store_port=$2 ready="$DIR/$1.ready"; shift 2
  "$LOADTEST" proxy --store "127.0.0.1:$store_port" --bandwidth "$BANDWIDTH" --connection-bandwidth "$CONNECTION_BANDWIDTH" \
    --first-byte "$FIRST_BYTE" --ready-file "$ready" "$@" >"$DIR/$name.log" 2>&1 </dev/null &
  PIDS+=("$!")
  for _ in $(seq 100); do [ -s "$ready" ] && break; sleep 0.1; done
  [ -s "$ready" ] || { say "the proxy did not start:"; cat "$DIR/$name.log" >&2; return 1; }
  # shellcheck disable=SC2034  # read by name
  read -r "${name?}" "${name}_COUNTS" < <(python3 -c 'import json,sys; d=json.load(open(sys.argv[1])); print(d["listen"], d["counts"])' "$ready")
}
