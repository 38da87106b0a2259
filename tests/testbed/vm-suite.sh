#!/usr/bin/env bash
#! Owns what is proven on real kernel verbs, as a table: which devices and MTUs, on one host or two, and which steps. A row
#! is a boot; its steps (vm-steps.sh) run inside, each with a line of its own, with the binaries of this build.
#!
#!   vm-suite.sh DIR [PATTERN]     only rows whose text contains PATTERN, e.g. `vm-suite.sh /tmp/v 'siw'`
#!
#! Prints `PASS …`, `FAIL …` and `NOT PROVEN: …` lines; the latter are also in DIR/not-proven. A step that did not run
#! because its VM ended is a failure. Exits 0 only if nothing failed. Rows run two at a time, since their guests wait a great
#! deal; what a row printed comes whole, when it has ended.
set -uo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/../..")
DIR=$1
PATTERN=${2:-}
mkdir -p "$DIR"; DIR=$(readlink -f "$DIR")
cd "$ROOT" || exit 1

row=0
pass() { echo "PASS $*"; echo "PASS $*" >>"$DIR/verdicts"; }
fail() { echo "FAIL $*"; echo "FAIL $*" >>"$DIR/verdicts"; }
not_proven() { echo "NOT PROVEN: $*"; echo "$*" >>"$DIR/not-proven"; }
rm -f "$DIR/not-proven" "$DIR/verdicts"

# ---- rows ----------------------------------------------------------------------------------------------------------

# one RAILS SECONDS STEP…: the steps in one VM.
one() {
  wanted "$1" "one host, $1: ${*:3}" || return 0
  whole in_one "$@"
}
in_one() {
  local rails=$1 seconds=$2; shift 2
  local began=$SECONDS folder=$DIR/$row status=0
  "$HERE/vm.sh" run --timeout "$seconds" --memory 3072 --share "$folder" "${OPTIONS[@]}" -- "$HERE/vm-steps.sh" "$@" || status=$?
  conclude "one host, $rails" "$folder" "$status" $((SECONDS - began)) "$@"
}

# two RAILS SECONDS STEP…: the steps on both hosts of a pair; each knows its side by VM_SIDE.
two() {
  wanted "$1" "two hosts, $1: ${*:3}" || return 0
  whole in_two "$@"
}
in_two() {
  local rails=$1 seconds=$2; shift 2
  local began=$SECONDS folder=$DIR/$row status=0 side
  "$HERE/vm.sh" pair --cpus 2 --timeout "$seconds" --memory 3072 --share "$folder" "${OPTIONS[@]}" -- "$HERE/vm-steps.sh" "$@" ::: "$HERE/vm-steps.sh" "$@" || status=$?
  for side in a b; do conclude "two hosts, $rails, $side" "$folder/$side" "$status" $((SECONDS - began)) "$@"; done
}

# whole COMMAND…: what it prints, not mixed with what another row prints meanwhile.
whole() {
  echo "--- begins: $TEXT"
  "$@" >"$DIR/$row.out" 2>&1
  flock "$DIR/printing" sh -c 'echo; echo "--- $1"; cat "$2"' sh "$TEXT" "$DIR/$row.out"
}

# Sets OPTIONS from the row's rails, and counts the row; 1 if nobody asked for it.
wanted() { # RAILS TEXT
  local rail
  row=$((row + 1)) TEXT=$2
  [[ $TEXT = *"$PATTERN"* ]] || return 1
  OPTIONS=(); for rail in $1; do OPTIONS+=(--rail "$rail"); done
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

# shellcheck source=built.sh
. "$HERE/built.sh"
"$HERE/vm.sh" install || { not_proven "anything on real kernel verbs: the VM can't be made here"; exit 1; }
VERBS3=$(binary) && CONFORMANCE=$(test_binary conformance) && UNIT=$(test_binary verbs3_rdma) ||
  { echo "vm-suite: the binaries that it runs are not there" >&2; exit 1; }
VM_PYTHON=$(python3 -c 'import sys; print(sys.executable)') || exit 1
export VERBS3 CONFORMANCE UNIT VM_PYTHON

# Not here, for their time: perftest's figures (loadtest/fabric.sh), and the proof that each fault does what it says
# (`vm.sh pair --rail rxe:4096 --rail siw -- tests/testbed/vm-steps.sh faults ::: tests/testbed/vm-steps.sh faults`).

# ---- the table -----------------------------------------------------------------------------------------------------

# Two columns of rows that run side by side, of about one length; then the pair, which has two machines by itself. The
# seconds are for a machine that is several times slower.
#   rails (0, 1, …)              seconds  steps
left() {
  row=0
  one 'rxe rxe:4096'               1800 conformance_verbs_plain:0 conformance_verbs_windows:1 path_mtu:1 hostile:1 client_memory:0 client_memory:1 s3_over_rdma device_late:0 device_removal:0
  one 'rxe:4096'                   1500 system system_memlock system_certified
}
right() {
  row=10
  one 'rxe rxe:4096 siw siw:4096'  900  devices doctor rdma_ping conformance_tcp
  one 'siw siw:4096'               1800 conformance_verbs_plain:0 conformance_verbs:1 path_mtu:1 hostile:1 device_late:0 device_removal:0
  one 'siw'                        1200 system
}
sides=()
trap 'kill "${sides[@]}" 2>/dev/null' EXIT
left & sides+=("$!")
right & sides+=("$!")
wait "${sides[@]}"; sides=()
row=20
two 'none rxe:4096 rxe:4096'       1200 system_pair
two 'rxe:4096'                     900  s3_over_rdma

not_proven "RoCE v1, InfiniBand's link layer, bonding, and any hardware: nothing here emulates them"

passed=$(grep -c '^PASS ' "$DIR/verdicts") failed=$(grep -c '^FAIL ' "$DIR/verdicts")
echo; echo "vm-suite: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
