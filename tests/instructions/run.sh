#!/usr/bin/env bash
#! Counts the instructions of the hot path under an emulated CPU, the same whatever the host's is, and holds them against
#! tests/instructions/expected.json: what a GET costs is seen to change before anybody measures it. Counts of another compiler,
#! emulator, C library or profile are shown and not held.
#
#   run.sh DIR           DIR takes counts.json, logs and data; exits 1 where a count is 5 % off what is expected
#   BLESS=1 run.sh DIR   writes expected.json anew
set -euo pipefail
HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/../..")
# shellcheck disable=SC1091  # ../testbed/built.sh
. "$ROOT/tests/testbed/built.sh"

[ $# -eq 1 ] || usage
mkdir -p "$1"
DIR=$(readlink -f "$1")
command -v qemu-x86_64 >/dev/null || "$ROOT/tests/testbed/packages.sh" >&2
gcc -shared -fPIC -O1 -Wall -Werror -o "$DIR/count_plugin.so" "$HERE/count_plugin.c"
VERBS3=$(binary)
TESTS=()
for name in verbs3_protocol verbs3_cache_worker verbs3_gateway; do TESTS+=("$(test_binary "$name")"); done
# Not expected.json's: another compiler makes other instructions.
RUSTC=$(cd "$ROOT" && rustc --version) exec python3 "$HERE/count.py" "$DIR" "$VERBS3_PROFILE" "$VERBS3" "${TESTS[@]}"
