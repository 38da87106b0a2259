#!/usr/bin/env bash
#! Uses the console in a real Chromium as operators do, over a real cluster on loopback (README.md).
#
#   run.sh DIR [PYTEST ARGUMENT...]     the tests; DIR takes logs, configurations, data, and screenshots in DIR/screenshots
#
# CONSOLE_BINARY: the verbs3 to test, else the one that is built.
set -euo pipefail
HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/../..")
# shellcheck disable=SC1091  # ../testbed/built.sh
. "$ROOT/tests/testbed/built.sh"

[ $# -ge 1 ] || usage
CONSOLE_BINARY=${CONSOLE_BINARY:-$(binary)}
export CONSOLE_BINARY PYTHONDONTWRITEBYTECODE=1
command -v chromium-headless-shell >/dev/null || "$ROOT/tests/testbed/packages.sh" >&2
VENV=$("$ROOT/tests/testbed/venv.sh" console)
CONSOLE_NODE=$("$ROOT/tests/testbed/node.sh" console/node)
mkdir -p "$1/screenshots"
CONSOLE_DIR=$(readlink -f "$1")
export CONSOLE_NODE CONSOLE_DIR
shift
exec "$VENV/bin/python" -m pytest -c "$HERE/pytest.ini" --rootdir "$HERE" "$HERE" "$@"
