#!/usr/bin/env bash
#! Measures how long a reader waits when a rail fails: an open loop of hot GETs through a gateway in one VM and a worker in another, over two
#! rails of soft-RoCE, with a third wire for tcp. Emulated: the waits are those of timers and events, and the rest is slow.
#
#   loadtest/rail-failover.sh [RATE]     GETs of 256 KiB that are due each second; 5 unless said
#
# Four runs of 20 s: nothing happens; the gateway's port of rail 0 goes down in the middle; it is back; the worker's port goes down, of which
# the gateway hears nothing. Prints milliseconds and what the bytes came over, and fails on an error or a wrong byte. As root.
# VERBS3_PROFILE names the build, as everywhere.
set -euo pipefail

ROOT=$(readlink -f "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/..")
TESTBED=$ROOT/tests/testbed
STORE=9000 WORKER=9400 GATEWAY=9100 ADMIN=9101
export AWS_ACCESS_KEY_ID=VERBS3FAILOVER AWS_SECRET_ACCESS_KEY=verbs3-failover-secret-key

# What both processes read.
shared() {
  cat <<END
[cluster]
name = "failover"
secret = "a secret of the failover measure, long enough"
workers_fixed = true
[[cluster.workers]]
id = "worker-0"
address = "10.77.2.3:$WORKER"
[[ufs]]
name = "store"
endpoint = "http://10.77.2.3:$STORE"
credentials = { kind = "static", access_key_id = "$AWS_ACCESS_KEY_ID", secret_access_key = "$AWS_SECRET_ACCESS_KEY" }
[[mount]]
name = "*"
ufs = "store"
attributes_ttl = "1h"
[verbs]
rails = ["rxe0", "rxe1"]
END
}
identities() {
  printf '[[identity]]\nname = "failover"\naccess_key = "%s"\nsecret_key = "%s"\nallow = [{ mount = "*", rights = ["read", "write", "list", "delete", "admin"] }]\n' \
    "$AWS_ACCESS_KEY_ID" "$AWS_SECRET_ACCESS_KEY" >/tmp/identities.toml
}
listens() { (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; }
await_port() { for _ in $(seq 600); do if listens "$1" "$2"; then return 0; fi; sleep 0.2; done; echo "nobody listens at $1:$2" >&2; tail -n 20 /tmp/*.log >&2; return 1; }

# The worker and the store, until the other side is done.
worker_side() {
  identities
  printf '[dev]\ndir = "/tmp/store"\ndemo = false\n[gateway]\nlisten = "0.0.0.0:%d"\nadmin_listen = "127.0.0.1:0"\nidentities = "/tmp/identities.toml"\n[verbs]\nmode = "off"\n' "$STORE" >/tmp/store.toml
  "$VERBS3" dev --config /tmp/store.toml --set worker.memory.capacity=64MiB --set gateway.memory.capacity=64MiB >/tmp/store.log 2>&1 &
  await_port 127.0.0.1 "$STORE"
  { shared; printf '[worker]\nid = "worker-0"\nlisten = "0.0.0.0:%d"\nmemory = { capacity = "128MiB" }\n' "$WORKER"; } >/tmp/worker.toml
  "$VERBS3" worker --config /tmp/worker.toml >/tmp/worker.log 2>&1 &
  await_port 127.0.0.1 "$WORKER"
  meet_signal worker-is-there
  meet_await go-down 280 >/dev/null
  sleep 10
  link_down 0
  meet_await all-done 120 >/dev/null
}

# What came over verbs so far, in bytes.
over() { curl -sS "http://127.0.0.1:$ADMIN/metrics" | awk -v way="transport=\"$1\"" '/^verbs3_client_bytes_total/ && index($0, way) { print $NF; found = 1 } END { if (!found) print 0 }'; }

# run NAME COMMAND: the load, and in the middle of it the command.
run() {
  local name=$1 verbs tcp bench; shift
  verbs=$(over verbs) tcp=$(over tcp)
  "$VERBS3" bench s3 /tmp/scenario.toml --target "http://127.0.0.1:$GATEWAY/failover" --rate "$RATE" --json >"/tmp/$name.json" 2>"/tmp/$name.err" &
  bench=$!
  "$@"
  wait "$bench" || { cat "/tmp/$name.err" >&2; return 1; }
  printf '%-16s over verbs %3d MiB, tcp %3d MiB   ' "$name" $((($(over verbs) - verbs) >> 20)) $((($(over tcp) - tcp) >> 20))
  jq -r '.sides[0].all | "\(.requests) requests   p50 \(.latency.p50 / 1000 | floor)   p99 \(.latency.p99 / 1000 | floor)   max \(.latency.max / 1000 | floor) ms   errors \(.errors | add // 0)   wrong \(.wrong_answers)",
    (if (.errors | length) > 0 or .wrong_answers > 0 then error("it failed") else empty end)' "/tmp/$name.json"
}
down_in_the_middle() { sleep 12; link_down 0; }
other_in_the_middle() { sleep 2; meet_signal go-down; }

gateway_side() {
  identities
  meet_await worker-is-there 120 >/dev/null
  { shared; printf '[gateway]\nlisten = "127.0.0.1:%d"\nadmin_listen = "127.0.0.1:%d"\nidentities = "/tmp/identities.toml"\nmemory = { capacity = "64MiB" }\n' "$GATEWAY" "$ADMIN"; } >/tmp/gateway.toml
  "$VERBS3" gateway --config /tmp/gateway.toml >/tmp/gateway.log 2>&1 &
  await_port 127.0.0.1 "$GATEWAY"
  curl -fsS -o /dev/null -X PUT --aws-sigv4 aws:amz:us-east-1:s3 -u "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \
    -H "x-amz-content-sha256: $(printf '' | sha256sum | cut -d' ' -f1)" "http://127.0.0.1:$GATEWAY/failover"
  printf 'name = "rails"\n[objects]\ncount = 8\nbytes = "256KiB"\n[access]\npattern = "uniform"\n[load]\nconnections = 8\n[rounds]\ncount = 1\ntime = "20s"\nwarm_up = "2s"\nprime = true\n' >/tmp/scenario.toml
  "$VERBS3" bench s3 /tmp/scenario.toml --target "http://127.0.0.1:$GATEWAY/failover" --prepare-only >/dev/null
  run nothing true
  run gateway-port down_in_the_middle
  link_up 0
  # A way rests for 30 s after its errors.
  sleep 40
  run back true
  run worker-port other_in_the_middle
  grep -hoE '"?(calls to a peer fall back|a way to a peer failed|a rail can.t be used)[^"]*' /tmp/gateway.log | sort | uniq -c
  meet_signal all-done
}

case ${1:-} in
  gateway-side | worker-side)
    # shellcheck source=../tests/testbed/vm-faults.sh
    . "$TESTBED/vm-faults.sh"
    # shellcheck source=../tests/testbed/vm-meet.sh
    . "$TESTBED/vm-meet.sh"
    if [ "$1" = gateway-side ]; then gateway_side; else worker_side; fi ;;
  '' | [1-9]*)
    # shellcheck source=../tests/testbed/built.sh
    . "$TESTBED/built.sh"
    VERBS3=$(binary) RATE=${1:-5}
    export VERBS3 RATE
    "$TESTBED/vm.sh" pair --rail rxe:4096 --rail rxe:4096 --rail none --timeout 560 -- "$0" gateway-side ::: "$0" worker-side ;;
  *) sed -n 's/^#   //p' "$0" >&2; exit 2 ;;
esac
