#!/usr/bin/env bash
#! Builds the wheel of the package `verbs3`, and runs its tests against `verbs3 dev`.
#
#   run.sh DIR [PYTEST ARGUMENT...]     DIR takes the wheel, logs and data
#
# PYTHON_BINARY: the verbs3 to read from, else the one that is built. What needs torch runs in its chroot (torch.sh), as root.
set -euo pipefail
HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/..")
# shellcheck disable=SC1091  # ../tests/testbed/built.sh
. "$ROOT/tests/testbed/built.sh"

[ $# -ge 1 ] || usage
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
  cargo clippy --release --locked --features pyo3/abi3-py311 -- -D warnings
)
rm -rf -- "$PYTHON_DIR/not-proven"
"$ROOT/tests/testbed/wheel.sh" "$PYTHON_DIR"

# The chroot that has torch gets the gateway as well: clients sign the path of its socket, which is another one there.
JOB=$PYTHON_DIR/with-torch
rm -rf -- "$JOB"
mkdir -p "$JOB/repository/python" "$JOB/repository/tests/testbed" "$JOB/repository/docs"
cp -r "$PYTHON_DIR/site" "$JOB/site"
cp -r "$HERE/tests" "$JOB/repository/python/tests"
cp "$ROOT/tests/testbed/free_ports.py" "$JOB/repository/tests/testbed/"
cp "$ROOT"/docs/{python,clients,client-tuning}.md "$JOB/repository/docs/"
ln "$PYTHON_BINARY" "$JOB/verbs3" 2>/dev/null || cp "$PYTHON_BINARY" "$JOB/verbs3"

cd "$PYTHON_DIR"
status=0
# note_status STATUS ARGUMENT...: of one of the runs. With arguments, a selection may leave one without a test: pytest says so by 5.
note_status() { [ "$1" -eq 5 ] && [ $# -gt 1 ] || status=$((status | $1)); }
# test_package SITE PYTHON PYTEST_ARGUMENT...: the tests that need no torch, of the package in SITE.
test_package() {
  local site=$1 python=$2; shift 2
  PYTHONPATH=$site "$python" -m pytest -c "$HERE/tests/pytest.ini" --rootdir "$HERE/tests" "$HERE/tests" --ignore "$HERE/tests/with_torch" "$@"
}
ended=0; test_package "$PYTHON_DIR/site" "$VENV/bin/python" "$@" || ended=$?
note_status "$ended" "$@"

# The oldest Python has a wheel of its own (pyproject.toml). zarr's interface is another there, and servers are killed alike.
oldest() {
  local python
  for python in python3.10 "$HOME"/.pyenv/versions/3.10.*/bin/python3.10; do
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then command -v "$python"; return; fi
  done
  return 1
}
if OLDEST=$(oldest); then
  OLDEST_VENV=$("$ROOT/tests/testbed/venv.sh" python-oldest "$OLDEST")
  "$ROOT/tests/testbed/wheel.sh" "$PYTHON_DIR/oldest" "$OLDEST_VENV/bin/python"
  ended=0; test_package "$PYTHON_DIR/oldest/site" "$OLDEST_VENV/bin/python" \
    --ignore "$HERE/tests/test_killed_servers.py" --deselect test_fsspec.py::test_zarr_reads_and_writes "$@" || ended=$?
  note_status "$ended" "$@"
else
  echo "the Python package by Python 3.10: this machine has none that makes environments" | tee "$PYTHON_DIR/not-proven" >&2
fi

if [ "$(id -u)" -ne 0 ]; then
  echo "the Python package with torch: its chroot needs root" | tee -a "$PYTHON_DIR/not-proven" >&2
  exit "$status"
fi
"$ROOT/tests/testbed/torch.sh" install
ended=0
PYTHON_BINARY=/job/verbs3 "$ROOT/tests/testbed/torch.sh" run "$JOB" \
  env -u PYTHONDONTWRITEBYTECODE PYTHONPATH=/job/site:/opt/clients bash -c 'cd /job && exec python3 -m pytest "$@"' bash \
  -c /job/repository/python/tests/pytest.ini --rootdir /job/repository/python/tests /job/repository/python/tests/with_torch "$@" ||
  ended=$?
note_status "$ended" "$@"
exit "$status"
