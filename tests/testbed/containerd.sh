#!/usr/bin/env bash
# Unpacks Debian's containerd, runc and CNI plugins, without their services, for kubelets of tests; prints the folder, whose usr/
# has them. runc is linked with libseccomp2, which the machine itself has.
set -euo pipefail
# shellcheck source=tests/testbed/debian-packages.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/debian-packages.sh"
unpack_packages containerd usr/sbin/runc containerd runc containernetworking-plugins
