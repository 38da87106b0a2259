#!/usr/bin/env bash
# Builds the cert-manager of tests/kubernetes/cert-manager from the Go module proxy, by the checksums of its go.sum; prints the path of
# the program. Takes 3 minutes of two idle cores, once.
#
#   cert-manager.sh              builds it where it is not there yet
#   cert-manager.sh --cached     fails where it is not
set -euo pipefail
HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=tests/testbed/go.sh
. "$HERE/go.sh"
source="$HERE/../kubernetes/cert-manager"
folder="${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}/cert-manager-$(cat "$source"/go.* "$source"/main.go | sha256sum | cut -c1-12)"
if [ "${1:-}" = --cached ]; then [ -x "$folder/cert-manager" ] && echo "$folder/cert-manager"; exit; fi
mkdir -p "$folder"
exec 8>"$folder/lock"; flock 8
if [ ! -x "$folder/cert-manager" ]; then
    find_go cert-manager "$folder"
    echo "cert-manager: building it" >&2
    (cd "$source" && CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false" nice -n 15 go build -p 2 -trimpath -ldflags "-s -w" -o "$folder/built" .) >&2
    mv "$folder/built" "$folder/cert-manager"
fi
echo "$folder/cert-manager"
