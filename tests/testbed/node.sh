#!/usr/bin/env bash
#! Owns the npm packages of the tests: one folder for each content of a package-lock.json, kept in the cache. Prints the
#! folder on stdout and nothing else there. Knows no test. Exits 3 where Node.js is older than they need.
#
#   node.sh [FOLDER]     the packages of tests/s3suite/clients/node, or of that folder of tests/
set -euo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
CACHE=${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}
FROM=$HERE/../${1:-s3suite/clients/node}
# What version 3 of the AWS SDK asks for.
MAJOR_MIN=20

major=$(node -p 'process.versions.node.split(".")[0]' 2>/dev/null || echo 0)
[ "$major" -ge "$MAJOR_MIN" ] || { echo "node: Node.js $major is older than $MAJOR_MIN" >&2; exit 3; }
KEY=$({ node --version; cat "$FROM/package-lock.json"; } | sha256sum | cut -c1-12)
FOLDER=$CACHE/node-$KEY
mkdir -p "$CACHE"
exec 8>"$CACHE/node.lock"; flock 8
if [ ! -e "$FOLDER/.complete" ]; then
  rm -rf -- "$FOLDER"; mkdir -p "$FOLDER"
  cp "$FROM/package.json" "$FROM/package-lock.json" "$FOLDER/"
  npm ci --prefix "$FOLDER" --ignore-scripts --no-audit --no-fund --loglevel=error >&2 8>&-
  touch "$FOLDER/.complete"
fi
echo "$FOLDER"
