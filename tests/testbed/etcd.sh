#!/usr/bin/env bash
# Unpacks Debian's etcd-server, without its service, for tests that start it by themselves; prints the path of the program.
set -euo pipefail
# shellcheck source=tests/testbed/debian-packages.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/debian-packages.sh"
folder=$(unpack_packages etcd usr/bin/etcd etcd-server)
echo "$folder/usr/bin/etcd"
