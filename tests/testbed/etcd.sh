#!/usr/bin/env bash
# Unpacks Debian's etcd-server, without its service, for tests that start it by themselves, and etcdctl beside it; prints the
# path of the server.
set -euo pipefail
# shellcheck source=tests/testbed/debian-packages.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/debian-packages.sh"
unpack_packages etcdctl usr/bin/etcdctl etcd-client >/dev/null
folder=$(unpack_packages etcd usr/bin/etcd etcd-server)
echo "$folder/usr/bin/etcd"
