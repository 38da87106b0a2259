#!/usr/bin/env bash
#! Owns the root file systems of the images that tests put into pods: Debian bookworm and what a command makes of it, as an archive
#! in the cache, one for each command. Prints its path. Knows no image.
#
#   debian-root.sh COMMAND     COMMAND: the shell's, run inside
set -euo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
CACHE=${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}
SUITE=bookworm
# shellcheck source=tests/testbed/mirror.sh
. "$HERE/mirror.sh"
[ $# -eq 1 ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }

root=$CACHE/debian-root-$(echo "1 $SUITE $1" | sha256sum | cut -c1-12).tar
mkdir -p "$CACHE"
exec 8>"$CACHE/debian-root.lock"; flock 8
if [ ! -e "$root" ]; then
  [ "$(id -u)" = 0 ] || { echo "debian-root: must run as root: it makes a chroot" >&2; exit 1; }
  command -v mmdebstrap >/dev/null || { echo "debian-root: mmdebstrap is missing: tests/testbed/packages.sh installs it" >&2; exit 1; }
  url=$(mirror)
  mapfile -t options < <(mirror_options)
  echo "debian-root: making $root" >&2
  # As Debian's slim images: without documents. The hook's own shell gives the command as it is.
  # shellcheck disable=SC2016
  COMMAND=$1 nice -n 15 mmdebstrap --mode=root --variant=minbase --quiet --aptopt='Acquire::Retries "5"' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' "${options[@]}" \
    --customize-hook='DEBIAN_FRONTEND=noninteractive chroot "$1" sh -c "$COMMAND" >&2' --customize-hook='rm -rf "$1"/tmp/* "$1"/var/cache/apt/*' \
    "$SUITE" "$root.partial" --format=tar "deb $url $SUITE main" >&2 8>&-
  mv "$root.partial" "$root"
fi
echo "$root"
