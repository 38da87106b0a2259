#!/usr/bin/env bash
#! Upgrades a cluster under load: from an earlier version, which it builds, to this build, and back.
#
#   upgrade.sh [COMMIT]      COMMIT: where the earlier version is, else the last tag before HEAD
set -euo pipefail
ROOT=$(readlink -f "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../..")
# shellcheck disable=SC1091  # ./built.sh
. "$ROOT/tests/testbed/built.sh"

[ $# -le 1 ] || usage
commit=${1:-$(git -C "$ROOT" describe --tags --abbrev=0 2>/dev/null)} ||
    { echo "upgrade: nothing has been released: name the commit of an earlier version" >&2; exit 2; }
commit=$(git -C "$ROOT" rev-parse --verify --quiet "$commit^{commit}") || { echo "upgrade: no commit $1 here" >&2; exit 2; }

folder=${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}/former
former=$folder/$commit
mkdir -p "$folder"
exec 8>"$folder/lock"; flock 8
if [ ! -x "$former" ]; then
    echo "upgrade: building $commit" >&2
    sources=$folder/sources
    rm -rf "$sources"; mkdir "$sources"
    git -C "$ROOT" archive "$commit" | tar -x -C "$sources"
    (cd "$sources" && CARGO_TARGET_DIR=$folder/target cargo build --profile ci --locked -p verbs3-cli >&2)
    mv "$folder/target/ci/verbs3" "$former"
    rm -rf "$sources"
fi
test=$(test_binary upgrade)
VERBS3_FORMER=$former "$test" --ignored --nocapture
