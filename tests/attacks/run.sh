#!/usr/bin/env bash
#! Attacks the real processes from outside, with an honest client beside every attack (README.md).
#
#   run.sh DIR [PYTEST ARGUMENT...]     the suite; DIR takes logs, configurations and data
#   run.sh soak MINUTES [DIR]           all attacks at once beside honest clients
#
# ATTACKS_BINARY: the verbs3 to attack, else the one that is built. SEED and ATTACKS_REQUESTS: see test_signatures_oracle.py.
set -euo pipefail
HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/../..")
# shellcheck disable=SC1091  # ../testbed/built.sh
. "$ROOT/tests/testbed/built.sh"

[ $# -ge 1 ] || usage
ATTACKS_BINARY=${ATTACKS_BINARY:-$(binary)}
export ATTACKS_BINARY PYTHONDONTWRITEBYTECODE=1
VENV=$("$ROOT/tests/testbed/venv.sh" attacks)
if [ "$1" = soak ]; then shift; exec "$VENV/bin/python" "$HERE/hostile_soak.py" "$@"; fi
mkdir -p "$1"
ATTACKS_DIR=$(readlink -f "$1"); export ATTACKS_DIR
shift
# Without a file of its own, the whole suite.
what=$HERE
for argument; do [ ! -e "${argument%%::*}" ] || what=; done
exec "$VENV/bin/python" -m pytest -c "$HERE/pytest.ini" --rootdir "$HERE" ${what:+"$what"} "$@"
