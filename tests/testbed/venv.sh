#!/usr/bin/env bash
#! Owns the Python environments of the tests: one venv for each content of a list of requirements, kept in the cache.
#! Prints the venv's path on stdout and nothing else there; what it does goes to stderr. Knows no test.
#
#   venv.sh [NAME [PYTHON]]     the venv of tests/requirements.txt, or of tests/requirements-NAME.txt; PYTHON: another than is found
set -euo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
CACHE=${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}
REQUIREMENTS=$HERE/../requirements${1:+-$1}.txt

say() { echo "venv: $*" >&2; }
die() { say "$*"; exit 1; }

# tomllib came with 3.11. The first that qualifies: the caller's own python3, then the system's.
python() {
  local p
  for p in "$(command -v python3 || true)" /usr/bin/python3; do
    if [ -x "$p" ] && "$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      "$p" -c 'import os, sys; print(os.path.realpath(sys.executable))'; return
    fi
  done
  die "no python3 of version 3.11 or newer: install one (apt-get install python3 python3-venv)"
}

make_venv() { # PYTHON FOLDER
  if "$1" -c 'import ensurepip, venv' 2>/dev/null; then "$1" -m venv "$2" >&2; return; fi
  say "python3-venv is missing: installing it with apt-get"
  apt-get install -y -qq --no-install-recommends python3-venv >&2 ||
    { apt-get update -qq >&2 && apt-get install -y -qq --no-install-recommends python3-venv >&2; } ||
    die "python3-venv could not be installed: install it by hand and run this again"
  "$1" -m venv "$2" >&2
}

PYTHON=${2:-$(python)}
KEY=$({ "$PYTHON" -VV; echo "$PYTHON"; cat "$REQUIREMENTS"; } | sha256sum | cut -c1-12)
VENV=$CACHE/venv-$KEY
mkdir -p "$CACHE"
exec 8>"$CACHE/venv.lock"; flock 8
if [ ! -e "$VENV/.complete" ]; then
  # A venv holds its own path, so it is made in place; without .complete it is a cut-off run and is made anew.
  say "making $VENV from $(readlink -f "$REQUIREMENTS") with $PYTHON"
  rm -rf -- "$VENV"
  make_venv "$PYTHON" "$VENV"
  "$VENV/bin/pip" install --quiet --disable-pip-version-check -r "$REQUIREMENTS" >&2
  "$VENV/bin/pip" check --disable-pip-version-check >&2 || die "the new venv lacks what its packages need"
  touch "$VENV/.complete"
fi
echo "$VENV"
