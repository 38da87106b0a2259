#!/usr/bin/env bash
#! Owns the environment of clients that need torch: Debian trixie with its CPU build of torch in a chroot, and the
#! clients of tests/requirements-torch.txt beside it. Knows no test. PyPI's torch would bring 5.9 GB of CUDA.
#
#   torch.sh install                 make it (about a minute, 1.2 GB, once; a cut-off run is simply run again)
#   torch.sh run DIR PROGRAM ...     runs PROGRAM inside, with DIR at /job and the caller's environment
set -euo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
CACHE=${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}
REQUIREMENTS=$HERE/../requirements-torch.txt
SUITE=trixie
PACKAGES=python3-torch,python3-torchvision,python3-zstd
# Pure Python, and published as source only: its wheel is made by pip on the way.
FROM_SOURCE=s3torchconnector==1.5.0
# Raise when the recipe changes, so that cached ones are not taken for it.
KEY=$({ echo "2 $SUITE $PACKAGES $FROM_SOURCE"; cat "$REQUIREMENTS"; } | sha256sum | cut -c1-12)
CHROOT=$CACHE/torch-$SUITE-$KEY

# shellcheck source=tests/testbed/mirror.sh
. "$HERE/mirror.sh"

say() { echo "torch: $*" >&2; }
die() { say "$*"; exit 1; }

install() {
  [ "$(id -u)" = 0 ] || die "must run as root: it makes a chroot"
  mkdir -p "$CACHE"
  # Two installs at once would build into one folder.
  exec 8>"$CACHE/torch-install.lock"; flock 8
  if [ -e "$CHROOT/.complete" ]; then return; fi
  command -v mmdebstrap >/dev/null || die "mmdebstrap is missing: tests/testbed/packages.sh installs it"
  local url venv options platforms=() name
  url=$(mirror)
  mapfile -t options < <(mirror_options)
  say "making the chroot of $SUITE with $PACKAGES in $CHROOT"
  rm -rf --one-file-system "$CHROOT.partial" "$CHROOT"
  mmdebstrap --mode=root --variant=minbase --include="$PACKAGES" --quiet --aptopt='Acquire::Retries "5"' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/include/*' \
    "${options[@]}" "$SUITE" "$CHROOT.partial" "deb $url $SUITE main" >&2 8>&-
  # From outside: pip inside would know neither the machine's settings nor its certificates.
  venv=$("$HERE/venv.sh")
  for name in 2_17 2_24 2_28 2_30; do platforms+=(--platform "manylinux_${name}_x86_64"); done
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-compile --no-deps --target "$CHROOT.partial/opt/clients" \
    --python-version 3.13 --implementation cp --abi cp313 --abi abi3 --abi none --platform manylinux2014_x86_64 "${platforms[@]}" \
    --only-binary=:all: -r "$REQUIREMENTS" >&2 8>&-
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-compile --no-deps --target "$CHROOT.partial/opt/clients" "$FROM_SOURCE" >&2 8>&-
  mkdir -p "$CHROOT.partial/job" "$CHROOT.partial/pycache"
  touch "$CHROOT.partial/.complete"
  mv "$CHROOT.partial" "$CHROOT"
  say "done: $(du -sh "$CHROOT" | cut -f1)"
}

# In a mount namespace of its own, with the chroot read-only: nothing is left mounted, and jobs can't change it.
run() {
  local dir; dir=$(readlink -f "$1"); shift
  [ -e "$CHROOT/.complete" ] || die "no chroot in $CHROOT: run '${BASH_SOURCE[0]} install' first"
  exec unshare --mount --propagation private -- bash -c '
    set -e
    chroot=$1 dir=$2; shift 2
    mount --bind "$chroot" "$chroot"
    for m in proc sys dev; do mount --rbind "/$m" "$chroot/$m"; done
    for m in run tmp; do mount -t tmpfs tmpfs "$chroot/$m"; done
    mount --bind "$dir" "$chroot/job"
    # What an import compiles is kept for the next: thousands of modules, and pip could not compile for this Python.
    mount --bind "$chroot/pycache" "$chroot/pycache"
    mount -o remount,bind,ro "$chroot"
    exec env PYTHONPYCACHEPREFIX=/pycache PYTHONPATH=/opt/clients HOME=/job TMPDIR=/tmp PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$chroot" "$@"
  ' bash "$CHROOT" "$dir" "$@"
}

case ${1:-} in
  install) install ;;
  run) shift; run "$@" ;;
  *) sed -n 's/^#   //p' "$0" >&2; exit 2 ;;
esac
