#!/usr/bin/env bash
# Unpacks Debian's prometheus, without its service, for tests that start it by themselves; prints the folder of prometheus and promtool.
set -euo pipefail
# shellcheck source=tests/testbed/debian-packages.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/debian-packages.sh"
folder=$(unpack_packages prometheus usr/bin/promtool prometheus)
echo "$folder/usr/bin"
