#!/usr/bin/env bash
# Builds the image (and with --tools the one with the tools) from base images by their digests, and writes its list of parts.
#
#   build.sh [--tools] IMAGE      IMAGE: such as registry.example/verbs3:1.2
#
# The digests are asked of the registry once and kept in images.lock beside this file, to be committed: who builds again gets the
# same. Removing the file asks anew. Needs podman (or docker, by ENGINE=docker) and skopeo.
set -euo pipefail
HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/../..")
ENGINE=${ENGINE:-podman}
target=()
if [ "${1:-}" = --tools ]; then target=(--target tools); shift; fi
[ $# -eq 1 ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }

if [ ! -e "$HERE/images.lock" ]; then
    sed -n 's/^ARG \([A-Z]*_IMAGE\)=\(.*\)$/\1 \2/p' "$HERE/Containerfile" | while read -r name image; do
        echo "$name=${image%:*}@$(skopeo inspect --format '{{.Digest}}' "docker://$image")"
    done >"$HERE/images.lock.new"
    mv "$HERE/images.lock.new" "$HERE/images.lock"
fi
arguments=()
while read -r line; do arguments+=(--build-arg "$line"); done <"$HERE/images.lock"
"$ENGINE" build "${arguments[@]}" "${target[@]}" -f "$HERE/Containerfile" -t "$1" "$ROOT"
"$ROOT/deploy/sbom.py" >"$ROOT/target/verbs3.cdx.json"
echo "built $1; its parts: target/verbs3.cdx.json"
