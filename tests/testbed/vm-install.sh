#!/usr/bin/env bash
#! Owns what vm.sh needs on disk: packages, an unpacked kernel, the siw module built for it, and the initramfs, all in
#! the cache folder and each made once. Sourced by vm.sh. Deliberately not here: how a machine is started.

CACHE=${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}
# The kernel that the recipe was tried with. When the mirror no longer has it, the newest 6.1 is taken instead.
# Not the cloud flavour: it has no rxe.
KERNEL=6.1.0-56-amd64
PACKAGES=(qemu-system-x86 busybox-static cpio kmod rdma-core ibverbs-utils ibverbs-providers rdmacm-utils perftest iproute2)
# What builds siw, which Debian's kernel lacks. The kernel's own makefiles ask for the compiler it was built with.
BUILD_PACKAGES=(gcc-12 make xz-utils)
# Without crc32_generic, rxe fails with ENOENT and only says "failed to add eth0". Other modules (siw, veth, the
# traffic shapers) are loaded in the guest when they are needed, from the unpacked kernel: the guest sees it too.
MODULES=(virtio_pci 9pnet_virtio 9p overlay virtio_net ib_uverbs rdma_ucm rdma_rxe crc32_generic)

install_packages() { # PACKAGE…
  local missing=() package
  for package; do
    dpkg-query -W -f='${Status}\n' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing ${missing[*]} with apt-get"
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$CACHE/vm-apt.log" 2>&1 ||
    { apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$CACHE/vm-apt.log" 2>&1; } ||
    { tail -n 5 "$CACHE/vm-apt.log" >&2; die "could not install ${missing[*]}: install them by hand and run this again"; }
}

# Downloads a package (NAME or NAME=VERSION) into the folder, without installing it.
download() { # FOLDER PACKAGE
  # apt drops its privileges to write there, and warns when it can't.
  (cd "$1" && apt-get download -qq -o APT::Sandbox::User=root "$2" >&2)
}

# ---- kernel --------------------------------------------------------------------------------------------------------

# A kernel without its headers can't have siw: it does not count.
is_complete() { apt-cache show "linux-image-$1" >/dev/null 2>&1 && apt-cache show "linux-headers-$1" >/dev/null 2>&1; }

# The version to take: the one named, else the newest of the 6.1 series that apt knows with its headers.
kernel_version() {
  local version
  if is_complete "$KERNEL"; then echo "$KERNEL"; return; fi
  apt-cache pkgnames linux-image-6.1.0- | sed -n -E 's/^linux-image-(6\.1\.0-[0-9]+-amd64)$/\1/p' | sort -rV |
    while read -r version; do if is_complete "$version"; then echo "$version"; break; fi; done
}

# Prints the folder of an unpacked kernel, VERSION in its file `version`.
kernel() {
  local folder=$CACHE/vm-kernel version work
  if [ -e "$folder/version" ]; then echo "$folder"; return; fi
  version=$(kernel_version)
  if [ -z "$version" ]; then apt-get update -qq >&2; version=$(kernel_version); fi
  [ -n "$version" ] || die "apt knows no linux-image-6.1.0-*-amd64 with the linux-headers of the same version: add Debian bookworm to its sources"
  if [ "$version" = "$KERNEL" ]; then say "kernel $version"; else say "kernel $KERNEL is gone from the mirror: taking $version"; fi
  work=$(mktemp -d "$CACHE/vm-kernel.XXXXXX")
  download "$work" "linux-image-$version" || die "linux-image-$version can't be downloaded: apt-get update, then again"
  dpkg-deb -x "$work"/linux-image-*.deb "$work/root"
  rm "$work"/linux-image-*.deb
  depmod -b "$work/root" "$version"
  echo "$version" >"$work/version"
  rm -rf -- "$folder"; mv "$work" "$folder"
  echo "$folder"
}

# ---- siw -----------------------------------------------------------------------------------------------------------

# Puts siw.ko among the kernel's modules, where modprobe finds it. Built once for a kernel version.
siw() { # KERNEL_FOLDER
  local version module target work
  version=$(cat "$1/version"); module=$CACHE/vm-siw-$version.ko; target=$1/root/lib/modules/$version/extra/siw.ko
  if [ -e "$target" ]; then return; fi
  if [ ! -e "$module" ]; then
    install_packages "${BUILD_PACKAGES[@]}"
    say "building siw for $version"
    work=$(mktemp -d "$CACHE/vm-siw.XXXXXX")
    build_siw "$version" "$work" >"$CACHE/vm-siw.log" 2>&1 ||
      { tail -n 5 "$CACHE/vm-siw.log" >&2; rm -rf -- "$work"
        die "siw can't be built for kernel $version ($CACHE/vm-siw.log): nothing about iWARP can be proven with it;" \
          "when its linux-headers are gone from the mirror, remove $1 so that a newer kernel is taken"; }
    mv "$work/siw.ko" "$module"; rm -rf -- "$work"
  fi
  mkdir -p "$(dirname "$target")"; cp "$module" "$target"
  depmod -b "$1/root" "$version"
}

# Unpacked, not installed: the host's dpkg has no need to know of kernel headers.
build_siw() { # VERSION FOLDER
  local headers=linux-headers-$1 exact source=linux-source-6.1/drivers/infiniband/sw/siw package
  exact=$(apt-cache show "$headers" | sed -n 's/^Version: //p' | head -n 1)
  [ -n "$exact" ] || { echo "apt knows no $headers"; return 1; }
  for package in "$headers=$exact" "linux-headers-${1%-amd64}-common=$exact" "linux-kbuild-6.1=$exact" "linux-source-6.1=$exact"; do
    download "$2" "$package" || { echo "$package can't be downloaded"; return 1; }
  done
  for package in "$2"/*.deb; do dpkg-deb -x "$package" "$2/root" || return 1; done
  rm "$2"/*.deb
  # The one path in the headers that is not relative.
  sed -i "s#^include /usr/src#include $2/root/usr/src#" "$2/root/usr/src/$headers/Makefile"
  tar -C "$2" -xJf "$2/root/usr/src/linux-source-6.1.tar.xz" "$source" || return 1
  make -C "$2/root/usr/src/$headers" M="$2/$source" CONFIG_RDMA_SIW=m modules || return 1
  strip --strip-debug "$2/$source/siw.ko" && mv "$2/$source/siw.ko" "$2/siw.ko"
}

# ---- initramfs -----------------------------------------------------------------------------------------------------

# Prints the initramfs for the kernel in FOLDER, made when init, module list or kernel have changed.
initramfs() { # FOLDER
  local version key file work module path
  version=$(cat "$1/version")
  key=$({ cat "$HERE/vm-init.sh"; echo "$version ${MODULES[*]}"; } | sha256sum | cut -c1-12)
  file=$CACHE/vm-initramfs-$key.gz
  if [ -e "$file" ]; then echo "$file"; return; fi
  say "making the initramfs $file"
  work=$(mktemp -d "$CACHE/vm-initramfs.XXXXXX")
  mkdir -p "$work"/{bin,modules}
  cp "$(command -v busybox)" "$work/bin/busybox"
  cp "$HERE/vm-init.sh" "$work/init"; chmod +x "$work/init"
  for module in "${MODULES[@]}"; do
    modprobe -d "$1/root" -S "$version" --show-depends "$module" || die "kernel $version has no module $module"
  done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' >"$work/paths"
  while read -r path; do cp "$path" "$work/modules/"; basename "$path"; done <"$work/paths" >"$work/modules.list"
  rm "$work/paths"
  (cd "$work" && find . | cpio --quiet -o -H newc | gzip -1) >"$file.$$"
  rm -rf -- "$work"; mv "$file.$$" "$file"
  echo "$file"
}

# install: everything; sets KERNEL_FOLDER, KERNEL_VERSION and INITRAMFS.
# shellcheck disable=SC2034 # read by vm.sh
install() {
  [ "$(id -u)" = 0 ] || die "must run as root: it installs packages and reads the host's root"
  mkdir -p "$CACHE"
  exec 8>"$CACHE/vm.lock"; flock 8
  install_packages "${PACKAGES[@]}"
  KERNEL_FOLDER=$(kernel); KERNEL_VERSION=$(cat "$KERNEL_FOLDER/version")
  siw "$KERNEL_FOLDER"
  INITRAMFS=$(initramfs "$KERNEL_FOLDER")
  exec 8>&-
}
