#!/usr/bin/env bash
# Makes the image's root file system: the packages of packages.lock, the user verbs3, and nothing that depends on who builds or when.
#
#   root.sh base|tools FOLDER      FOLDER keeps packages and what is made of them
#
# Prints the path of a layer, which is made once for each packages.lock. Needs mmdebstrap, and root or user namespaces; what
# packages.py reads of the environment.
set -euo pipefail
HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
[[ $#${1:-} =~ ^2(base|tools)$ ]] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }
[ "$(dpkg --print-architecture)" = amd64 ] || { echo "ERROR: root: packages.lock is for amd64 alone" >&2; exit 1; }
command -v mmdebstrap >/dev/null || { echo "ERROR: root: mmdebstrap is missing: apt-get install mmdebstrap" >&2; exit 1; }
mkdir -p "$2"; FOLDER=$(readlink -f "$2")
umask 022
# When the packages were chosen: a new version of verbs3 alone leaves this layer as it is, and nodes have it already.
SOURCE_DATE_EPOCH=$("$HERE/packages.py" taken)
export SOURCE_DATE_EPOCH LC_ALL=C

layer=$FOLDER/root-$1-$({ cat "$0"; echo "$SOURCE_DATE_EPOCH"; cat "${DEBIAN_LOCK:-$HERE/packages.lock}"; } | sha256sum | cut -c1-16).tar
exec 8>"$FOLDER/root.lock"; flock 8
trap 'rm -f "$layer.partial"' EXIT
if [ ! -e "$layer" ]; then
    export WANTED=$FOLDER/root-$1.list
    "$HERE/packages.py" list "$1" >"$WANTED"
    "$HERE/packages.py" fetch "$1" "$FOLDER/packages"
    # Debian's own hook makes more of them where debootstrap is installed.
    # shellcheck disable=SC2016
    merge='for name in bin sbin lib lib64; do mkdir -p "$1/usr/$name" && ln -s "usr/$name" "$1/$name"; done'
    # Run by the shell of mmdebstrap, whose first argument is the root. Licences stay; of /dev a runtime makes its own.
    # shellcheck disable=SC2016
    finish='set -e
        chroot "$1" dpkg-query -W -f "\${Package} \${Version} \${Architecture}\n" | sort | diff "$WANTED" - >&2 ||
            { echo "ERROR: root: what is installed (>) is not what packages.lock says (<)" >&2; exit 1; }
        echo "verbs3:x:9000:9000::/nonexistent:/usr/sbin/nologin" >>"$1/etc/passwd"
        echo "verbs3:x:9000:" >>"$1/etc/group"
        find "$1" -xdev -type f -perm /6000 -exec chmod a-s {} +
        cd "$1"
        rm -rf etc/apt/sources.list* etc/dpkg/dpkg.cfg.d/99mmdebstrap etc/hostname etc/resolv.conf \
            var/log/* var/cache/* var/lib/apt var/lib/dpkg/*-old tmp/* root/.[a-z]*'
    asked=$("$HERE/packages.py" asked "$1")
    nice mmdebstrap --quiet --variant=essential --architectures=amd64 --include="$asked" --skip=output/dev,output/mknod --setup-hook="$merge" \
        --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/share/lintian/*' --customize-hook="$finish" --format=tar \
        '' "$layer.partial" "deb [trusted=yes] copy:$FOLDER/packages ./" >&2 8>&-
    mv "$layer.partial" "$layer"
fi
echo "$layer"
