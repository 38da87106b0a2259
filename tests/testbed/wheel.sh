#!/usr/bin/env bash
#! Owns the building of the Python package's wheel, and a folder with what it installs.
#
#   wheel.sh DIR     DIR/wheels has the wheel, DIR/site the package, for PYTHONPATH; both are made anew
set -euo pipefail
HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/../..")
mkdir -p "$1"; DIR=$(readlink -f "$1")
VENV=$("$HERE/venv.sh" python)
export PYO3_PYTHON=$VENV/bin/python
rm -rf -- "$DIR/wheels" "$DIR/site"
"$VENV/bin/maturin" build --release --locked --manifest-path "$ROOT/python/Cargo.toml" --out "$DIR/wheels" --compatibility linux
# A folder of its own: the environment is shared, and the package is this build's.
"$VENV/bin/pip" install --quiet --disable-pip-version-check --no-deps --target "$DIR/site" "$DIR"/wheels/*.whl
