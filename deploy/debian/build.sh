#!/usr/bin/env bash
# Builds the Debian package: the binary from Cargo.lock alone, units, one configuration file, and the list of parts.
#
#   build.sh FOLDER      FOLDER takes verbs3_VERSION_ARCH.deb
#
# The same sources and compiler give the same package, byte by byte. BINARY=FILE packs that one and builds none. VERSION=, by default
# the workspace's. COMPRESSION=xz, or zstd, gzip. Needs cargo, dpkg-deb, binutils.
set -euo pipefail
HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/../..")
[ $# -eq 1 ] || { sed -n 's/^# \{0,1\}//p' "$0" | sed -n 2,7p >&2; exit 2; }
mkdir -p "$1"; OUT=$(readlink -f "$1")
umask 022
# Of the last commit: no file is younger, whoever packs.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$ROOT" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH LC_ALL=C
version=${VERSION:-$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml")}
architecture=$(dpkg --print-architecture)

if [ -z "${BINARY:-}" ]; then
    # Where the sources lie on this machine must not be in the binary.
    RUSTFLAGS="--remap-path-prefix=$ROOT=/verbs3 --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo" \
        cargo build --manifest-path "$ROOT/Cargo.toml" --profile dist --locked -p verbs3-cli --target-dir "$ROOT/target/debian"
    BINARY=$ROOT/target/debian/dist/verbs3
fi

tree=$(mktemp -d); trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"
place() { install -D -m "${3:-644}" "$1" "$tree/$2"; }
units=usr/lib/systemd/system docs=usr/share/doc/verbs3

place "$BINARY" usr/bin/verbs3 755
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$tree/usr/bin/verbs3"
for unit in verbs3@.service verbs3-gateway.socket verbs3-etcd.service; do
    place "$ROOT/deploy/systemd/$unit" "$units/$unit"
    # What a package brings is not in /usr/local.
    sed -i 's|/usr/local/bin/verbs3|/usr/bin/verbs3|g' "$tree/$units/$unit"
done
place "$ROOT/deploy/systemd/verbs3.toml" etc/verbs3/verbs3.toml
for example in "$ROOT"/config/examples/*.toml "$ROOT"/deploy/systemd/etcd.env; do place "$example" "$docs/examples/$(basename "$example")"; done
for folder in "$ROOT"/deploy/systemd/*.service.d; do
    for part in "$folder"/*.conf; do
        place "$part" "$docs/examples/$(basename "$folder")/$(basename "$part")"
        sed -i 's|/usr/local/bin/verbs3|/usr/bin/verbs3|g' "$tree/$docs/examples/$(basename "$folder")/$(basename "$part")"
    done
done
place "$ROOT/deploy/certificates.sh" "$docs/examples/certificates.sh" 755
for script in "$ROOT"/deploy/host/*.sh; do place "$script" "$docs/examples/host/$(basename "$script")" 755; done
place "$ROOT/deploy/host/verbs3.nft" "$docs/examples/host/verbs3.nft"
place "$HERE/copyright" "$docs/copyright"
place "$HERE/README.Debian" "$docs/README.Debian"
place "$ROOT/CHANGELOG.md" "$docs/CHANGELOG.md"
gzip -9n "$tree/$docs/CHANGELOG.md"
printf 'verbs3 (%s) stable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- verbs3 <verbs3@localhost>  %s\n' "$version" "$(date -uRd "@$SOURCE_DATE_EPOCH")" >"$tree/$docs/changelog"
gzip -9n "$tree/$docs/changelog"
"$ROOT/deploy/sbom.py" >"$tree/$docs/verbs3.cdx.json"
gzip -9n "$tree/$docs/verbs3.cdx.json"
place "$HERE/verbs3.1" usr/share/man/man1/verbs3.1
gzip -9n "$tree/usr/share/man/man1/verbs3.1"
install -d -m 755 "$tree/usr/share/lintian/overrides"
place "$HERE/lintian-overrides" usr/share/lintian/overrides/verbs3

install -d -m 755 "$tree/DEBIAN"
for script in postinst prerm postrm; do place "$HERE/$script" "DEBIAN/$script" 755; done
echo /etc/verbs3/verbs3.toml >"$tree/DEBIAN/conffiles"
# The oldest C library that has all that the binary asks for.
glibc=$(objdump -T "$tree/usr/bin/verbs3" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
size=$(du -sk --apparent-size --exclude=DEBIAN "$tree" | cut -f1)
sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@GLIBC@/${glibc#GLIBC_}/" -e "s/@SIZE@/$size/" "$HERE/control" >"$tree/DEBIAN/control"
(cd "$tree" && find etc usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
find "$tree" -print0 | xargs -0 touch --no-dereference --date="@$SOURCE_DATE_EPOCH"

deb=$OUT/verbs3_${version}_$architecture.deb
dpkg-deb --root-owner-group "-Z${COMPRESSION:-xz}" --threads-max=1 --build "$tree" "$deb" >/dev/null
echo "$deb"
