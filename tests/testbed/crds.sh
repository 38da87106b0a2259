#!/usr/bin/env bash
# Takes definitions of custom resources from the Go module proxy: modules of one version and one checksum, which covers the files.
# Prints the folder that has them. Those of the network operator, SR-IOV, Multus and NFD could not be had from it.
set -euo pipefail
HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=tests/testbed/go.sh
. "$HERE/go.sh"

# MODULE VERSION CHECKSUM FOLDER FILE...
modules=(
    "github.com/cert-manager/cert-manager v1.21.2 h1:UWgoYM+KLNtRlqmoWOKjKBOBUPVHeepQ6/ac3ERJW68= deploy/crds cert-manager.io_certificaterequests.yaml cert-manager.io_certificates.yaml cert-manager.io_clusterissuers.yaml cert-manager.io_issuers.yaml acme.cert-manager.io_challenges.yaml acme.cert-manager.io_orders.yaml"
    "github.com/prometheus-operator/prometheus-operator v0.85.0 h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s= example/prometheus-operator-crd monitoring.coreos.com_podmonitors.yaml monitoring.coreos.com_prometheusrules.yaml"
    "github.com/k8snetworkplumbingwg/whereabouts v0.9.2 h1:M/LhO2FwXN4C3WPkD0FoT6JACraSW4XrU7mxX9xZd8o= doc/crds whereabouts.cni.cncf.io_overlappingrangeipreservations.yaml"
)

folder="${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}/crds-$(printf '%s\n' "${modules[@]}" | sha256sum | cut -c1-12)"
mkdir -p "$folder"
exec 8>"$folder/lock"; flock 8
if [ ! -d "$folder/files" ]; then
    (
        find_go crds "$folder"
        rm -rf "$folder/partial"
        mkdir "$folder/partial"
        for module in "${modules[@]}"; do
            read -r name version sum place files <<<"$module"
            told=$(cd / && go mod download -json "$name@$version")
            found=$(sed -n 's/^\t"Sum": "\(.*\)",$/\1/p' <<<"$told")
            [ "$found" = "$sum" ] || { echo "crds: $name@$version has the checksum $found, and not $sum"; exit 1; }
            source=$(sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' <<<"$told")
            for file in $files; do cp --no-preserve=mode "$source/$place/$file" "$folder/partial/"; done
        done
        mv "$folder/partial" "$folder/files"
    ) >&2
fi
echo "$folder/files"
