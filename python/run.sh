#!/usr/bin/env bash
#! Builds the wheel of the package `verbs3`, and runs its tests against `verbs3 dev`.
#
#   run.sh DIR [PYTEST ARGUMENT...]     DIR takes the wheel, logs and data
#
# PYTHON_BINARY: the verbs3 to read from, else the one that is built.
set -euo pipefail
HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/..")
# shellcheck disable=SC1091  # ../tests/testbed/built.sh
. "$ROOT/tests/testbed/built.sh"

[ $# -ge 1 ] || { sed -n 's/^#   //p' "${BASH_SOURCE[0]}" >&2; exit 2; }
PYTHON_BINARY=${PYTHON_BINARY:-$(binary)}
export PYTHON_BINARY PYTHONDONTWRITEBYTECODE=1
VENV=$("$ROOT/tests/testbed/venv.sh" python)
mkdir -p "$1"
PYTHON_DIR=$(readlink -f "$1"); export PYTHON_DIR
shift
export PYO3_PYTHON=$VENV/bin/python
(
  cd "$HERE"
  cargo fmt --check
  cargo clippy --release --locked -- -D warnings
)
rm -rf -- "$PYTHON_DIR/wheels" "$PYTHON_DIR/site"
"$VENV/bin/maturin" build --release --locked --manifest-path "$HERE/Cargo.toml" --out "$PYTHON_DIR/wheels" --compatibility linux
# A folder of its own: the environment is shared, and the package is this build's.
"$VENV/bin/pip" install --quiet --disable-pip-version-check --no-deps --target "$PYTHON_DIR/site" "$PYTHON_DIR"/wheels/*.whl
cd "$PYTHON_DIR"
PYTHONPATH=$PYTHON_DIR/site exec "$VENV/bin/python" -m pytest -c "$HERE/tests/pytest.ini" --rootdir "$HERE/tests" "$HERE/tests" "$@"
