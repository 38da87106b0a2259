#!/usr/bin/env bash
#! Runs the transport suite inside the VM, with the test binary and the `verbs3` binary of this build.
#
#   vm-suite.sh DIR
#
# Proves that the VM boots with real kernel verbs (soft-RoCE), that the binary starts there, and that the tcp transport
# moves bytes over the guest's network stack. What verbs themselves do is proven by part of the suite that needs verbs.
set -uo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/../..")
DIR=$1
mkdir -p "$DIR"
VERBS3=${CARGO_TARGET_DIR:-$ROOT/target}/release/verbs3
cd "$ROOT" || exit 1

"$HERE/vm.sh" install || exit 1
# Cargo names the test binary with a hash; ask it rather than guess.
suite=$(cargo test --release --locked --workspace --test conformance --no-run --message-format=json 2>"$DIR/cargo.log" |
  python3 -c 'import json, sys
paths = [m["executable"] for m in map(json.loads, sys.stdin) if m.get("reason") == "compiler-artifact" and m.get("executable") and m["target"]["name"] == "conformance"]
print(paths[-1] if paths else "")')
[ -n "$suite" ] || { cat "$DIR/cargo.log"; echo "vm-suite: the conformance suite did not build" >&2; exit 1; }

"$HERE/vm.sh" run --timeout 900 --memory 3072 -- sh -c '
  set -e
  echo "vm: kernel $(uname -r)"; rdma link; ibv_devices
  "$1" doctor || test $? -le 1
  VERBS3_TEST_ADDRESS=10.77.0.2 "$2" --test-threads=2' sh "$VERBS3" "$suite"
