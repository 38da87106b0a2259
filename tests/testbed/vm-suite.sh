#!/usr/bin/env bash
#! Owns what is proven on real kernel verbs, as a table: which devices and MTUs, on one host or two, and which steps. A row
#! is a boot; its steps (vm-steps.sh) run inside, each with a line of its own, with the binaries of this build.
#!
#!   vm-suite.sh DIR [PATTERN]     only rows whose text contains PATTERN, e.g. `vm-suite.sh /tmp/v 'siw'`
#!
#! Prints `PASS …`, `FAIL …` and `NOT PROVEN: …` lines; the latter are also in DIR/not-proven. A step that did not run
#! because its VM ended is a failure. Exits 0 only if nothing failed.
set -uo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/../..")
DIR=$1
PATTERN=${2:-}
mkdir -p "$DIR"; DIR=$(readlink -f "$DIR")
cd "$ROOT" || exit 1

passed=0 failed=0 row=0
pass() { echo "PASS $*"; passed=$((passed + 1)); }
fail() { echo "FAIL $*"; failed=$((failed + 1)); }
not_proven() { echo "NOT PROVEN: $*"; echo "$*" >>"$DIR/not-proven"; }
rm -f "$DIR/not-proven"

# ---- rows ----------------------------------------------------------------------------------------------------------

# one RAILS SECONDS STEP…: the steps in one VM.
one() {
  local rails=$1 seconds=$2; shift 2
  wanted "one host, $rails: $*" || return 0
  local began=$SECONDS folder=$DIR/$row status=0
  "$HERE/vm.sh" run --timeout "$seconds" --memory 3072 --share "$folder" "${OPTIONS[@]}" -- "$HERE/vm-steps.sh" "$@" || status=$?
  conclude "one host, $rails" "$folder" "$status" $((SECONDS - began)) "$@"
}

# two RAILS SECONDS STEP…: the steps on both hosts of a pair; each knows its side by VM_SIDE.
two() {
  local rails=$1 seconds=$2; shift 2
  wanted "two hosts, $rails: $*" || return 0
  local began=$SECONDS folder=$DIR/$row status=0 side
  "$HERE/vm.sh" pair --cpus 2 --timeout "$seconds" --memory 3072 --share "$folder" "${OPTIONS[@]}" -- "$HERE/vm-steps.sh" "$@" ::: "$HERE/vm-steps.sh" "$@" || status=$?
  for side in a b; do conclude "two hosts, $rails, $side" "$folder/$side" "$status" $((SECONDS - began)) "$@"; done
}

# Sets OPTIONS from the row's rails, counts and announces the row; 1 if nobody asked for it.
wanted() { # TEXT
  local rail
  row=$((row + 1))
  [[ $1 = *"$PATTERN"* ]] || return 1
  echo; echo "--- $1"
  OPTIONS=(); for rail in $rails; do OPTIONS+=(--rail "$rail"); done
}

# A line for each step, from what the guest wrote down.
conclude() { # TEXT FOLDER STATUS SECONDS STEP…
  local text=$1 folder=$2 status=$3 seconds=$4 step result all=0; shift 4
  for step; do
    result=$(sed -n "s/^$step //p" "$folder/results" 2>/dev/null)
    case $result in
      "0 "*) pass "$text: $step (${result#* } s)" ;;
      '') fail "$text: $step did not run (the VM's status is $status)"; all=1 ;;
      *) fail "$text: $step ended with ${result% *}"; all=1 ;;
    esac
  done
  [ "$status" = 0 ] || [ "$all" = 1 ] || fail "$text: the VM ended with $status"
  echo "     $text: $seconds s with its boot"
  [ ! -s "$folder/perftest.jsonl" ] || "$HERE/perftest_table.py" "$folder/perftest.jsonl" --json "$folder/perftest.json" || fail "$text: no table"
}

# ---- what is run ---------------------------------------------------------------------------------------------------

# Cargo names a test binary with a hash; ask it rather than guess.
test_binary() { # NAME SELECTION…
  cargo test --release --locked --workspace "${@:2}" --no-run --message-format=json 2>"$DIR/cargo.log" |
    python3 -c 'import json, sys
paths = [m["executable"] for m in map(json.loads, sys.stdin) if m.get("reason") == "compiler-artifact" and m.get("executable") and m["target"]["name"] == sys.argv[1]]
print(paths[-1] if paths else "")' "$1"
}

"$HERE/vm.sh" install || { not_proven "anything on real kernel verbs: the VM can't be made here"; exit 1; }
export VERBS3=${CARGO_TARGET_DIR:-$ROOT/target}/release/verbs3
CONFORMANCE=$(test_binary conformance --test conformance); export CONFORMANCE
UNIT=$(test_binary verbs3_rdma --lib); export UNIT
[ -n "$CONFORMANCE" ] && [ -n "$UNIT" ] || { cat "$DIR/cargo.log"; echo "vm-suite: the tests of rdma did not build" >&2; exit 1; }
[ -x "$VERBS3" ] || { echo "vm-suite: $VERBS3 is missing: ./verbs3-test build" >&2; exit 1; }

# Not here, for their time: perftest's figures (loadtest/fabric.sh), and the proof that each fault does what it says
# (`vm.sh pair --rail rxe:4096 --rail siw -- tests/testbed/vm-steps.sh faults ::: tests/testbed/vm-steps.sh faults`).

# ---- the table -----------------------------------------------------------------------------------------------------

#   rails (0, 1, …)              seconds  steps
one 'rxe rxe:4096 siw siw:4096'  300      devices doctor rdma_ping conformance_tcp
one 'rxe rxe:4096'               900      conformance_verbs_plain:0 conformance_verbs_windows:1 path_mtu:1 hostile:1 device_late:0 device_removal:0
one 'siw siw:4096'               900      conformance_verbs_plain:0 conformance_verbs:1 path_mtu:1 hostile:1 device_late:0 device_removal:0
one 'rxe:4096'                   300      system system_memlock
one 'siw'                        300      system
two 'none rxe:4096 rxe:4096'     500      system_pair

not_proven "RoCE v1, InfiniBand's link layer, bonding, and any hardware: nothing here emulates them"

echo; echo "vm-suite: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
