#!/usr/bin/env bash
#! Owns the steps in which whole processes of verbs3 run over the guest's rails: one host, and two on one wire. Sourced by
#! vm-steps.sh. The clients' view is vm_client.py's: every byte compared, no failed request, whatever happens to workers
#! and rails. Deliberately not here: what a transport promises (conformance_verbs).

ROOT=$(readlink -f "$HERE/../..")
CLUSTER_ACCESS_KEY=VERBS3VM CLUSTER_SECRET_KEY=verbs3-vm-secret-key
STORE_PORT=9100 GATEWAY_PORT=9200
declare -A PROCESS=()

# launch NAME ROLE [COMMAND…]: a role with $WORK/NAME.toml, perhaps under COMMAND.
launch() {
  local name=$1 role=$2; shift 2
  rm -f "$WORK/$name.ready"
  "$@" "$VERBS3" "$role" --config "$WORK/$name.toml" --ready-file "$WORK/$name.ready" >>"$WORK/$name.log" 2>&1 </dev/null &
  PROCESS[$name]=$!
}

# ready NAME…: waits until each has said that it is ready. A start takes 10 s under emulation: best several at once.
ready() {
  local name
  for name; do
    for _ in $(seq 1800); do
      [ ! -e "$WORK/$name.ready" ] || break
      kill -0 "${PROCESS[$name]}" 2>/dev/null || break
      sleep 0.1
    done
    [ -e "$WORK/$name.ready" ] || { echo "$name did not start:" >&2; tail -n 20 "$WORK/$name.log" >&2; return 1; }
  done
}
start() { launch "$@" && ready "$1"; }

# finish NAME…: ends them as an administrator would; each must end well.
finish() {
  local name status all=0
  for name; do
    kill -TERM "${PROCESS[$name]}" 2>/dev/null
    wait "${PROCESS[$name]}"; status=$?
    [ "$status" = 0 ] || { echo "$name ended with $status:" >&2; tail -n 10 "$WORK/$name.log" >&2; all=1; }
    unset "PROCESS[$name]"
  done
  return "$all"
}

# Nothing of a failed step is left to the next.
abandon_all() {
  local name
  for name in "${!PROCESS[@]}"; do kill -CONT "${PROCESS[$name]}"; kill -KILL "${PROCESS[$name]}"; wait "${PROCESS[$name]}"; done 2>/dev/null
  PROCESS=()
}

write_configs() { # ADDRESS: where store and workers listen for tcp
  cat >"$WORK/identities.toml" <<END
[[identity]]
name = "vm"
access_key = "$CLUSTER_ACCESS_KEY"
secret_key = "$CLUSTER_SECRET_KEY"
allow = [{ mount = "*", rights = ["read", "write", "list", "delete", "admin"] }]
END
  cat >"$WORK/store.toml" <<END
[dev]
dir = "$WORK/store"
demo = false
[gateway]
listen = "$1:$STORE_PORT"
admin_listen = "127.0.0.1:0"
identities = "$WORK/identities.toml"
[worker]
memory = { capacity = "64MiB" }
END
  local id
  for id in 0 1; do
    { shared "$1"; cat <<END
[worker]
id = "worker-$id"
listen = "$1:930$id"
admin_listen = "127.0.0.1:931$id"
memory = { capacity = "128MiB" }
shm = { enabled = false }
[verbs]
mode = "on"
port = 940$id
END
    } >"$WORK/worker-$id.toml"
  done
  { shared "$1"; cat <<END
[gateway]
listen = "127.0.0.1:$GATEWAY_PORT"
admin_listen = "127.0.0.1:9201"
identities = "$WORK/identities.toml"
memory = { capacity = "64MiB" }
[gateway.peers]
# Short, so that what returns is seen to return.
rest_min = "2s"
rest_max = "4s"
upgrade_wait = "5s"
[verbs]
mode = "on"
END
  } >"$WORK/gateway.toml"
}
shared() {
  cat <<END
[cluster]
name = "vm"
secret = "a secret of the VM's tests, long enough"
workers_fixed = true
workers = [
  { id = "worker-0", address = "$1:9300" },
  { id = "worker-1", address = "$1:9301" },
]
[[ufs]]
name = "store"
endpoint = "http://$1:$STORE_PORT"
credentials = { kind = "static", access_key_id = "$CLUSTER_ACCESS_KEY", secret_access_key = "$CLUSTER_SECRET_KEY" }
# Long: under emulation everything takes its time.
deadlines = { connect = "40s" }
[[mount]]
name = "*"
ufs = "store"
END
}

client() { local what=$1; shift; "${PYTHON[@]}" "$HERE/vm_client.py" "$what" "http://127.0.0.1:$GATEWAY_PORT" $CLUSTER_ACCESS_KEY $CLUSTER_SECRET_KEY "$@"; }

# Reads in the background until read_ends; the log is $WORK/reads.
read_begins() {
  rm -f "$WORK/enough"; : >"$WORK/reads"
  client read "$WORK/reads" 1800 --until "$WORK/enough" & READER=$!
}
read_ends() { touch "$WORK/enough"; wait "$READER" || { echo "a read was not answered right; the last ones:" >&2; tail -n 5 "$WORK/reads" >&2; what_was_said; return 1; }; }
# What the processes of this host complained of, for whoever looks for the reason.
what_was_said() { grep -hE '"(WARN|ERROR)"' "$WORK"/{gateway,worker-0,worker-1}.log 2>/dev/null | cut -c1-600 | tail -n 20 >&2; }

# answers TRANSPORT [SECONDS]: until five answers in a row, from now on, came over it; the reads must go on meanwhile.
answers() {
  local deadline=$((SECONDS + ${2:-180})) from; from=$(wc -l <"$WORK/reads")
  while [ $SECONDS -lt $deadline ]; do
    kill -0 "$READER" 2>/dev/null || { echo "the reads ended" >&2; return 1; }
    if tail -n "+$((from + 1))" "$WORK/reads" | awk -v want="$1" '{ run = $2 == want ? run + 1 : 0; if (run >= 5) found = 1 } END { exit !found }'; then return 0; fi
    sleep 0.3
  done
  echo "no five answers in a row over $1 in ${2:-180} s; the last ones:" >&2; tail -n 8 "$WORK/reads" >&2
  what_was_said
  return 1
}

metric() { "${PYTHON[@]}" -c 'import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())' "http://127.0.0.1:$1/metrics" | grep -E "^$2" ; }

# ---- one host ------------------------------------------------------------------------------------------------------

# A gateway, two workers and a store; every byte is right and says verbs; then workers are killed, restarted, stopped.
system() {
  resources >"$WORK/system-before"
  write_configs "${RAIL_ADDRESS[0]}"
  system_runs; local status=$?
  abandon_all
  [ "$status" = 0 ] && resources_return_to "$WORK/system-before" 90
}
# All four processes serve, and reads that have begun come over verbs.
system_begins() {
  launch store dev; launch worker-0 worker; launch worker-1 worker; launch gateway gateway
  ready store worker-0 worker-1 gateway || return 1
  client put || return 1
  read_begins
  answers verbs
}
system_runs() {
  system_begins || return 1
  kill -KILL "${PROCESS[worker-1]}"; wait "${PROCESS[worker-1]}" 2>/dev/null
  answers ufs 60 || answers verbs || return 1
  start worker-1 worker || return 1
  answers verbs || return 1
  # Stopped with replies on their way, while the gateway hedges; then it goes on, and its late WRITEs must hit nothing.
  kill -STOP "${PROCESS[worker-0]}"; sleep 12
  kill -CONT "${PROCESS[worker-0]}"
  answers verbs || return 1
  read_ends || return 1
  metric 9201 'verbs3_verbs_(registered_bytes|queue_pairs)' || return 1
  finish gateway worker-0 worker-1 store
}

# A client of another party gets payloads of a gateway by RDMA, and puts them: every byte, and none once it was told that
# all is over. What it has put is compared at the store; of what it did not put, there is nothing.
s3_over_rdma() {
  resources >"$WORK/payloads-before"
  write_configs "${RAIL_ADDRESS[0]}"
  cat >"$WORK/payloads.toml" <<END
[gateway]
listen = "${RAIL_ADDRESS[0]}:$GATEWAY_PORT"
admin_listen = "${RAIL_ADDRESS[0]}:$((GATEWAY_PORT + 1))"
identities = "$WORK/identities.toml"
[gateway.memory]
capacity = "64MiB"
[gateway.s3_over_rdma]
enabled = true
transfers_max = 2
ready_wait = "1m"
transfer_time = "3m"
[worker.memory]
capacity = "160MiB"
[dev]
dir = "$WORK/payloads"
demo = false
END
  payloads_go; local status=$?
  abandon_all
  [ "$status" = 0 ] && resources_return_to "$WORK/payloads-before" 90
}
# On two hosts, a has the gateway and b the client.
payloads_go() {
  local object=${VM_COMMON:-$WORK}/object uploads=${VM_COMMON:-$WORK}/uploads status=0
  if [ "$VM_SIDE" = a ]; then
    head -c 67108900 /dev/urandom >"$object"; rm -f "$uploads"
    start payloads dev &&
      "${PYTHON[@]}" "$HERE/vm_client.py" store "http://${RAIL_ADDRESS[0]}:$GATEWAY_PORT" "$CLUSTER_ACCESS_KEY" "$CLUSTER_SECRET_KEY" "$object" || return 1
  fi
  both_reach payloads-stored 300 || return 1
  if [ "$VM_SIDE" = b ] || [ -z "${VM_COMMON:-}" ]; then payloads_compare "$object" "$uploads" || status=1; fi
  both_reach payloads-compared 600 || return 1
  if [ "$VM_SIDE" = a ]; then
    uploads_compare "$uploads" || status=1
    [ "$status" = 0 ] || tail -n 20 "$WORK/payloads.log" >&2
    finish payloads || return 1
  fi
  return "$status"
}
payloads_compare() { # OBJECT UPLOADS
  local gateway=${RAIL_ADDRESS[0]}
  [ -z "${VM_COMMON:-}" ] || gateway=${RAIL_PEER[0]}
  VERBS3_TEST_ADDRESS=${RAIL_ADDRESS[0]} VERBS3_TEST_GATEWAY=$gateway:$GATEWAY_PORT VERBS3_TEST_OBJECT=$1 \
    VERBS3_TEST_UPLOADS=$2 VERBS3_TEST_KEY=$CLUSTER_ACCESS_KEY:$CLUSTER_SECRET_KEY \
    timeout 560 "$UNIT" --ignored verbs::tests::gateway_ --test-threads=1 | tee "$WORK/payloads-told"
  grep -qE '^test result: ok\. [1-9]' "$WORK/payloads-told"
}
# By key through the gateway, and each content as a file of the store.
uploads_compare() { # UPLOADS
  local key sum
  "${PYTHON[@]}" "$HERE/vm_client.py" compare "http://${RAIL_ADDRESS[0]}:$GATEWAY_PORT" "$CLUSTER_ACCESS_KEY" "$CLUSTER_SECRET_KEY" "$1" || return 1
  find "$WORK/payloads/objects/data" -type f -exec sha256sum {} + >"$WORK/uploads-stored"
  while read -r key sum; do
    [ "$sum" = absent ] || grep -q "^$sum " "$WORK/uploads-stored" || { echo "the store has no file with the bytes of $key" >&2; return 1; }
  done <"$1"
  echo "compared at the store: $(grep -vc absent "$1") objects that are there, $(grep -c absent "$1") that are not"
}

# The same with node certificates: workers and gateway take TLS alone over tcp, and a session over verbs begins by the ticket
# that tcp gave. Then certificates, their authority and the secret change under reads, and new sessions begin by the new ones.
CERTIFIED=(worker-0 worker-1 gateway)
system_certified() {
  resources >"$WORK/certified-before"
  write_configs "${RAIL_ADDRESS[0]}"
  make_authority old; make_authority new
  local name
  for name in "${CERTIFIED[@]}"; do
    certify "$name" old; believe "$name" old
    printf %s "$(secret_of old)" >"$WORK/$name.secret"; : >"$WORK/$name.accepted"
    sed -i "s|^secret = .*|secret_file = \"$WORK/$name.secret\"\nsecret_accepted_file = \"$WORK/$name.accepted\"\n\
tls = { certificate = \"$WORK/$name.crt\", key = \"$WORK/$name.key\", ca_file = \"$WORK/$name-ca.crt\", mode = \"require\" }|" "$WORK/$name.toml"
  done
  certified_runs; local status=$?
  abandon_all
  [ "$status" = 0 ] && resources_return_to "$WORK/certified-before" 90
}
certified_runs() {
  system_begins || return 1
  say "all believe both authorities and both secrets"
  changed certificates believe_both || return 1
  changed secret accept_new || return 1
  say "all prove themselves by the new ones"
  changed certificates certify_new || return 1
  changed secret take_new || return 1
  say "all believe the new ones alone"
  changed certificates believe_new || return 1
  changed secret accept_none || return 1
  answers verbs || return 1
  local name
  for name in worker-0 worker-1; do
    kill -KILL "${PROCESS[$name]}"; wait "${PROCESS[$name]}" 2>/dev/null
    start "$name" worker && answers verbs || return 1
  done
  metric 9201 'verbs3_verbs_queue_pairs' || return 1
  read_ends && finish gateway worker-0 worker-1 store
}
secret_of() { printf 'the %s secret of the VM, which is long enough' "$1"; }
believe_both() { believe "$1" old new; }
believe_new() { believe "$1" new; }
certify_new() { certify "$1" new; }
accept_new() { replace "$1.accepted" "$(secret_of new)"; }
take_new() { replace "$1.accepted" "$(secret_of old)"; replace "$1.secret" "$(secret_of new)"; }
accept_none() { replace "$1.accepted" ""; }

# changed WHAT CHANGE: changes one process after the other, each once the one before has taken it.
changed() {
  local name before said="the cluster's secret is in force"
  [ "$1" = secret ] || said="the node.s certificate is in force"
  for name in "${CERTIFIED[@]}"; do
    before=$(grep -c "$said" "$WORK/$name.log")
    "$2" "$name"
    for _ in $(seq 600); do
      [ "$(grep -c "$said" "$WORK/$name.log")" = "$before" ] || break
      sleep 0.2
    done
    [ "$(grep -c "$said" "$WORK/$name.log")" != "$before" ] || { echo "$name does not take what $2 changed" >&2; what_was_said; return 1; }
  done
}
# replace NAME TEXT: as a whole, by its name.
replace() { printf %s "$2" >"$WORK/next" && mv "$WORK/next" "$WORK/$1"; }
openssl_key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
make_authority() { openssl req -x509 "${openssl_key[@]}" -days 30 -subj "/CN=$1" -keyout "$WORK/$1-ca.key" -out "$WORK/$1-ca.crt" 2>/dev/null; }
# believe PROCESS AUTHORITY…
believe() {
  local name=$1 all; shift
  all=$(for authority; do cat "$WORK/$authority-ca.crt"; done)
  replace "$name-ca.crt" "$all"
}
# certify PROCESS AUTHORITY: the process has the certificate of its role and name.
certify() {
  local role=${1%-*}
  openssl req -new "${openssl_key[@]}" -subj "/CN=$1" -keyout "$WORK/$1.next-key" -out "$WORK/$1.csr" 2>/dev/null
  openssl x509 -req -in "$WORK/$1.csr" -CA "$WORK/$2-ca.crt" -CAkey "$WORK/$2-ca.key" -CAcreateserial -days 30 -out "$WORK/$1.next-crt" \
    -extfile <(printf 'subjectAltName=URI:verbs3://vm/%s/%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$role" "$1") 2>/dev/null
  mv "$WORK/$1.next-crt" "$WORK/$1.crt"; mv "$WORK/$1.next-key" "$WORK/$1.key"
}

# No memory may be locked: the worker says why it has no verbs and serves by tcp.
system_memlock() {
  write_configs "${RAIL_ADDRESS[0]}"
  sed -i 's/^mode = "on"/mode = "auto"/' "$WORK"/worker-*.toml "$WORK/gateway.toml"
  memlock_runs; local status=$?
  abandon_all
  return "$status"
}
memlock_runs() {
  # shellcheck disable=SC2016
  local bounded=(sh -c 'ulimit -l 64; exec setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock "$@"' sh)
  launch store dev; launch worker-0 worker "${bounded[@]}"; launch worker-1 worker "${bounded[@]}"; launch gateway gateway
  ready store worker-0 worker-1 gateway || return 1
  grep -q 'ulimit -l' "$WORK/worker-0.log" || { echo "the worker does not say that memory can't be locked:" >&2; cat "$WORK/worker-0.log" >&2; return 1; }
  client put || return 1
  read_begins
  answers tcp && read_ends && finish gateway worker-0 worker-1 store
}

# ---- two hosts -----------------------------------------------------------------------------------------------------

# Host a has store and workers, host b the gateway and the client. Rail 0 carries tcp alone, rails 1 and 2 have devices.
system_pair() {
  resources >"$WORK/pair-before"
  write_configs "10.77.0.2"
  if [ "$VM_SIDE" = a ]; then pair_serves; else pair_reads; fi; local status=$?
  abandon_all
  [ "$status" = 0 ] && resources_return_to "$WORK/pair-before" 90
}
pair_serves() {
  launch store dev; launch worker-0 worker; launch worker-1 worker
  ready store worker-0 worker-1 || return 1
  meet_signal pair-serving
  meet_await pair-done 1000 >/dev/null || return 1
  finish worker-0 worker-1 store
}
pair_reads() {
  meet_await pair-serving 400 >/dev/null || return 1
  start gateway gateway && client put || return 1
  read_begins
  rails_fail_and_return; local status=$?
  read_ends || status=1
  cut -d' ' -f2 "$WORK/reads" | sort | uniq -c
  sort -n -k5 "$WORK/reads" | tail -n 1 | awk '{ print "longest answer: " $5 " ms over " $2 }'
  metric 9201 'verbs3_rdma_fallbacks_total' || { echo "no fallback was counted" >&2; status=1; }
  finish gateway || status=1
  meet_signal pair-done
  return "$status"
}
# A wire is cut by losing every packet. A network device that is set down would be nearer to the fact, but soft-RoCE does
# not survive it: it repeats in the kernel until nothing else runs, and after the link is up again its connection manager
# is dead for every process (seen with rping).
rails_fail_and_return() {
  answers verbs || return 1
  say "rail 1 is cut"; drop_packets 1 100 both
  answers verbs || return 1
  say "rail 2 is cut"; drop_packets 2 100 both
  answers tcp || return 1
  say "both are whole again"; heal 1; heal 2
  answers verbs
}
