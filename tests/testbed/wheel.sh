#!/usr/bin/env bash
#! Owns the building of the Python package's wheel, and a folder with what it installs.
#
#   wheel.sh DIR [PYTHON]     DIR/wheels has the wheel, DIR/site the package, for PYTHONPATH; both are made anew. PYTHON: of a venv
#                             that has pip, for which the wheel is; none: 3.11 and all later ones
set -euo pipefail
HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/../..")
mkdir -p "$1"; DIR=$(readlink -f "$1")
VENV=$("$HERE/venv.sh" python)
PYO3_PYTHON=${2:-$VENV/bin/python}
export PYO3_PYTHON
rm -rf -- "$DIR/wheels" "$DIR/site"
"$VENV/bin/maturin" build --release --locked --manifest-path "$ROOT/python/Cargo.toml" --out "$DIR/wheels" --compatibility linux \
  --interpreter "$PYO3_PYTHON"
# A folder of its own: the environment is shared, and the package is this build's.
"$PYO3_PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --target "$DIR/site" "$DIR"/wheels/*.whl
