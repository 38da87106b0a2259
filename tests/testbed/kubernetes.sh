#!/usr/bin/env bash
# Builds programs of Kubernetes, of one version and one checksum, from the Go module proxy; prints the folder that has them. No
# registry of packages has them ready made. Takes 3 minutes of two idle cores for the API server, once, and 7 for all of them.
#
#   kubernetes.sh PROGRAM...             builds those that are not there yet: kube-apiserver, kubelet, kubectl, pause and others
#   kubernetes.sh --cached PROGRAM...    fails where one is not there yet
set -euo pipefail
module=k8s.io/kubernetes version=v1.34.4 sum=h1:Yy6R4QB8C9kJPp25GFqEvX5XQwY5qzKeqD0Xx6oAcmk=
staging=v0.34.4
# shellcheck source=tests/testbed/go.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/go.sh"

cached=; if [ "${1:-}" = --cached ]; then cached=1; shift; fi
[ $# -gt 0 ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }
folder="${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}/kubernetes-$version"
mkdir -p "$folder"

missing() {
    local name
    for name; do [ -x "$folder/$name" ] || echo "$name"; done
}

# The module's source in $folder/source, held against its checksum before anything of it is built.
download() {
    local told found replaced
    told=$(cd / && go mod download -json "$module@$version")
    found=$(sed -n 's/^\t"Sum": "\(.*\)",$/\1/p' <<<"$told")
    [ "$found" = "$sum" ] || { echo "kubernetes: $module@$version has the checksum $found, and not $sum" >&2; return 1; }
    rm -rf "$folder/source"
    cp -r "$(sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' <<<"$told")" "$folder/source"
    chmod -R u+w "$folder/source"
    cd "$folder/source"
    # The module names its parts by folders that are not in it: their modules of the same release. go.sum, which the checksum
    # covers, does not know these; the checksum database does.
    rm -rf go.work go.work.sum vendor staging
    mapfile -t replaced < <(sed -nE "s|^\s+(k8s.io/[a-z-]+) => ./staging.*|-replace=\1=\1@$staging|p" go.mod)
    go mod edit "${replaced[@]}"
}

build() { # PROGRAM
    local names flags=(-s -w)
    if [ "$1" = pause ]; then
        # The first process of every pod, which is C.
        gcc -Os -static -s -DVERSION="$version" -o "$folder/pause.built" build/pause/linux/pause.c
    else
        for names in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
            flags+=(-X "$names.gitVersion=$version" -X "$names.gitMajor=1" -X "$names.gitMinor=34")
        done
        CGO_ENABLED=0 GOFLAGS="-mod=mod -buildvcs=false" nice -n 15 go build -p 2 -trimpath -ldflags "${flags[*]}" -o "$folder/$1.built" "./cmd/$1"
    fi
    mv "$folder/$1.built" "$folder/$1"
}

if [ -n "$cached" ]; then [ -z "$(missing "$@")" ] && echo "$folder"; exit; fi
exec 8>"$folder/lock"; flock 8
mapfile -t wanted < <(missing "$@")
if [ ${#wanted[@]} -gt 0 ]; then
    (
        find_go kubernetes "$folder"
        download
        for name in "${wanted[@]}"; do
            echo "kubernetes: building $name of $module@$version"
            build "$name"
        done
    ) >&2
    rm -rf "$folder/source"
fi
echo "$folder"
