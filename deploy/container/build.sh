#!/usr/bin/env bash
# Builds the image as an archive that needs no registry: Debian's packages by packages.lock, and the binary by Cargo.lock.
#
#   build.sh [--tools] [--binary FILE] ARCHIVE      ARCHIVE: such as verbs3.tar; its parts go to verbs3.cdx.json beside it
#
# --tools: with perftest and others. --binary: packs that one, and builds none.
# Two builds of one commit give the same image by the same C compiler; by the same binary on any host. IMAGE_FOLDER (target/image)
# keeps packages and root file systems. IMAGE_SOURCE is said to be the address of the sources. Needs cargo, mmdebstrap and binutils,
# and what root.sh reads.
set -euo pipefail
HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/../..")
# Whoever raises it builds the image by another compiler.
RUST=1.95.0
variant=base binary=
while [ $# -gt 1 ]; do
    case $1 in
    --tools) variant=tools; shift ;;
    --binary) binary=$2; shift 2 ;;
    *) break ;;
    esac
done
[[ $# -eq 1 && $1 != -* ]] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }
archive=$1
fail() { echo "ERROR: build: $*" >&2; exit 1; }
export LC_ALL=C PYTHONDONTWRITEBYTECODE=1
umask 022
FOLDER=${IMAGE_FOLDER:-$ROOT/target/image}
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml")
revision=$(git -C "$ROOT" rev-parse HEAD)
[ -z "$(git -C "$ROOT" status --porcelain)" ] || revision+=-dirty
created=$(git -C "$ROOT" log -1 --format=%ct)

if [ -z "$binary" ]; then
    if command -v rustup >/dev/null; then export RUSTUP_TOOLCHAIN=$RUST; fi
    [[ $(rustc --version) == "rustc $RUST "* ]] || fail "rustc is not $RUST: rustup has it"
    # As deploy/debian/build.sh does: one build serves both. Where the sources lie on this machine must not be in the binary.
    RUSTFLAGS="--remap-path-prefix=$ROOT=/verbs3 --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo" \
        cargo build --manifest-path "$ROOT/Cargo.toml" --profile dist --locked -p verbs3-cli --target-dir "$ROOT/target/debian"
    binary=$ROOT/target/debian/dist/verbs3
fi
[ "$("$binary" --version)" = "verbs3 $version" ] || fail "$binary is $("$binary" --version), and the sources are $version"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
strip --strip-unneeded --remove-section=.comment --remove-section=.note -o "$work/verbs3" "$binary"
wanted=$(objdump -T "$work/verbs3" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
library=$("$HERE/packages.py" list "$variant" | sed -n 's/^libc6 \([^ ]*\) .*/\1/p')
dpkg --compare-versions "${wanted#GLIBC_}" le "$library" || fail "$binary asks for $wanted, and the image has libc6 $library: build on Debian bookworm"

layer=$("$HERE/root.sh" "$variant" "$FOLDER")
"$ROOT/deploy/sbom.py" --image "$variant" >"${archive%.tar}.cdx.json"
digest=$("$HERE/assemble_image.py" --root "$layer" --binary "$work/verbs3" --version "$version" --revision "$revision" \
    --created "$created" --variant "$variant" "$archive")
name=verbs3; [ $variant = base ] || name=verbs3-tools
cat >&2 <<END
built $archive: $name $version, $digest
  podman load -i $archive
  skopeo copy --preserve-digests oci-archive:$archive docker://REGISTRY/$name:$version
END
echo "$digest"
