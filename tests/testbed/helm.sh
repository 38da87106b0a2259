#!/usr/bin/env bash
# Builds helm, of one version and one checksum, from the Go module proxy; prints the path of the program. No registry of packages
# has it ready made. Its own go.sum, which the checksum covers, holds all that it is built from.
set -euo pipefail
module=helm.sh/helm/v3 version=v3.22.0 sum=h1:n1if5iQgHYsujPAcO5oonH/KiSNUmqmUF0iGVjSF3AU=
# shellcheck source=tests/testbed/go.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/go.sh"

# The release of Kubernetes that charts are rendered for where no server is asked. Helm's own builds are given one, too; without, it is 1.20.
major=1 minor=34
folder="${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}/helm-$version-$major.$minor"
program="$folder/helm"
mkdir -p "$folder"
exec 8>"$folder/lock"; flock 8
if [ ! -x "$program" ]; then
    find_go helm "$folder"
    # What was downloaded, before anything of it is built.
    found=$(cd / && go mod download -json "$module@$version" | sed -n 's/^\t"Sum": "\(.*\)",$/\1/p')
    [ "$found" = "$sum" ] || { echo "helm: $module@$version has the checksum $found, and not $sum" >&2; exit 1; }
    echo "helm: building $module@$version" >&2
    (cd / && CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOBIN="$folder/built" \
        nice -n 10 go install -trimpath -ldflags "-s -w $(printf -- "-X $module/pkg/%s=%s " \
        chartutil.k8sVersionMajor $major chartutil.k8sVersionMinor $minor \
        lint/rules.k8sVersionMajor $major lint/rules.k8sVersionMinor $minor)" "$module/cmd/helm@$version") >&2
    mv "$folder/built/helm" "$program"
fi
echo "$program"
