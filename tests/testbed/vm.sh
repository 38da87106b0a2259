#!/usr/bin/env bash
#! Owns a small VM with real RDMA verbs (soft-RoCE), under plain emulation: no KVM, no NIC, no root image.
#! The guest's root is the host's, read-only with a tmpfs above, so it runs the very binaries that were built outside;
#! /run/vm in the guest is a folder of the host's, writable. Deliberately not here: what runs inside.
set -euo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
CACHE=${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}
# The kernel that the recipe was tried with. When the mirror no longer has it, the newest 6.1 is taken instead.
# Not the cloud flavour: it has no rxe.
KERNEL=6.1.0-56-amd64
PACKAGES=(qemu-system-x86 busybox-static cpio kmod rdma-core ibverbs-utils ibverbs-providers rdmacm-utils perftest iproute2)
# Without crc32_generic, rxe fails with ENOENT and only says "failed to add eth0". veth is for second devices.
MODULES=(virtio_pci 9pnet_virtio 9p overlay virtio_net ib_uverbs rdma_ucm rdma_rxe crc32_generic veth)
TIMEOUT_SECONDS=300
BOOT_SECONDS=90
MEMORY_MIB=2048
CPUS=2
# Exit statuses of vm.sh itself, as timeout(1) and env(1) have them.
TIMED_OUT=124
NO_VM=125

say() { echo "vm: $*" >&2; }
die() { say "$*"; exit $NO_VM; }

usage() {
  cat <<USAGE
usage: vm.sh install                                  packages, kernel and initramfs, once
       vm.sh run [OPTIONS] -- COMMAND [ARGUMENT…]     COMMAND in the guest, in this folder and with this environment
  --timeout S    the whole run, default $TIMEOUT_SECONDS s (exit $TIMED_OUT)
  --share DIR    the folder that is /run/vm in the guest (\$VM_SHARE there), default a temporary one
  --memory MIB   default $MEMORY_MIB; the guest's writes live there as well
  --cpus N       default $CPUS
stdout, stderr and the exit status are COMMAND's; $NO_VM means that the VM did not come up, and why is on stderr.
In the guest: eth0 with 10.77.0.2/24 and the RDMA device rxe0 on it (GID index 1 is RoCE v2 over IPv4).
USAGE
}

# ---- install -------------------------------------------------------------------------------------------------------

install_packages() {
  local missing=() package
  for package in "${PACKAGES[@]}"; do
    dpkg-query -W -f='${Status}\n' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing ${missing[*]} with apt-get"
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$CACHE/vm-apt.log" 2>&1 ||
    { apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$CACHE/vm-apt.log" 2>&1; } ||
    { tail -n 5 "$CACHE/vm-apt.log" >&2; die "could not install ${missing[*]}: install them by hand and run this again"; }
}

# The version to take: the one named, else the newest of the 6.1 series that apt knows.
kernel_version() {
  if apt-cache show "linux-image-$KERNEL" >/dev/null 2>&1; then echo "$KERNEL"; return; fi
  apt-cache pkgnames linux-image-6.1.0- | sed -n -E 's/^linux-image-(6\.1\.0-[0-9]+-amd64)$/\1/p' | sort -V | tail -n 1
}

# Prints the folder of an unpacked kernel, VERSION in its file `version`.
kernel() {
  local folder=$CACHE/vm-kernel version work
  if [ -e "$folder/version" ]; then echo "$folder"; return; fi
  version=$(kernel_version)
  if [ -z "$version" ]; then apt-get update -qq >&2; version=$(kernel_version); fi
  [ -n "$version" ] || die "apt knows no linux-image-6.1.0-*-amd64: add Debian bookworm to its sources"
  if [ "$version" = "$KERNEL" ]; then say "kernel $version"; else say "kernel $KERNEL is gone from the mirror: taking $version"; fi
  work=$(mktemp -d "$CACHE/vm-kernel.XXXXXX")
  # apt drops its privileges to write there, and warns when it can't.
  (cd "$work" && apt-get download -qq -o APT::Sandbox::User=root "linux-image-$version" >&2) || die "linux-image-$version can't be downloaded: apt-get update, then again"
  dpkg-deb -x "$work"/linux-image-*.deb "$work/root"
  rm "$work"/linux-image-*.deb
  depmod -b "$work/root" "$version"
  echo "$version" >"$work/version"
  rm -rf -- "$folder"; mv "$work" "$folder"
  echo "$folder"
}

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

install() {
  [ "$(id -u)" = 0 ] || die "must run as root: it installs packages and reads the host's root"
  mkdir -p "$CACHE"
  exec 8>"$CACHE/vm.lock"; flock 8
  install_packages
  local folder; folder=$(kernel)
  initramfs "$folder" >/dev/null
  exec 8>&-
}

# ---- run -----------------------------------------------------------------------------------------------------------

# The wires, one line of qemu arguments each, and what the guest makes of them: change both together. A second VM on
# the wire would take `-netdev socket,…` instead of the hub, a second rail one more of each.
nic_arguments() {
  printf '%s\n' -netdev hubport,hubid=0,id=n0 -device virtio-net-pci,netdev=n0,romfile=
}

network_script() {
  cat <<'GUEST'
set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
ip link set lo up
ip address add 10.77.0.2/24 dev eth0
ip link set eth0 up
rdma link add rxe0 type rxe netdev eth0
for _ in $(seq 50); do
  if rdma link show rxe0/1 2>/dev/null | grep -q 'state ACTIVE'; then exit 0; fi
  sleep 0.1
done
echo "rxe0 does not become active: $(rdma link show)"
exit 1
GUEST
}

job_script() { # COMMAND…
  export -p
  printf 'cd %q || exit %s\n' "$PWD" "$NO_VM"
  echo 'export VM_SHARE=/run/vm'
  echo 'ulimit -l unlimited'
  printf '%q ' "$@"
  echo
}

run() {
  local share='' timeout=$TIMEOUT_SECONDS temporary='' folder image argument
  while [ $# -gt 0 ]; do
    case $1 in
      --timeout) timeout=$2; shift 2 ;;
      --share) share=$2; shift 2 ;;
      --memory) MEMORY_MIB=$2; shift 2 ;;
      --cpus) CPUS=$2; shift 2 ;;
      --) shift; break ;;
      *) usage >&2; exit 2 ;;
    esac
  done
  [ $# -gt 0 ] || { usage >&2; exit 2; }
  install
  folder=$(kernel); image=$(initramfs "$folder")
  if [ -z "$share" ]; then share=$(mktemp -d); temporary=$share; else mkdir -p "$share"; share=$(readlink -f "$share"); fi
  (cd "$share" && rm -f booted failed status stdout stderr network.log console)
  network_script >"$share/network"
  job_script "$@" >"$share/job"
  : >"$share/stdout"; : >"$share/stderr"
  local qemu=(qemu-system-x86_64 -accel "tcg,thread=multi" -cpu max -smp "$CPUS" -m "$MEMORY_MIB" -nographic -no-reboot
    -kernel "$folder/root/boot/vmlinuz-$(cat "$folder/version")" -initrd "$image" -append "console=ttyS0 quiet panic=-1"
    -virtfs "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"
    -virtfs "local,path=$share,mount_tag=share,security_model=none,multidevs=remap")
  while read -r argument; do qemu+=("$argument"); done < <(nic_arguments)
  timeout --kill-after=5 "$timeout" "${qemu[@]}" </dev/null >"$share/console" 2>&1 &
  local machine=$! status=0
  # shellcheck disable=SC2064 # these values, now
  trap "kill $machine 2>/dev/null || true" INT TERM EXIT
  await_boot "$machine" "$share" || status=$NO_VM
  if [ "$status" = 0 ]; then follow "$machine" "$share" || status=$?; fi
  trap - INT TERM EXIT
  if [ -n "$temporary" ]; then rm -rf -- "$temporary"; fi
  exit "$status"
}

await_boot() { # PID SHARE
  local deadline=$((SECONDS + BOOT_SECONDS))
  while [ ! -e "$2/booted" ]; do
    if [ -e "$2/failed" ]; then cat "$2/failed" >&2; wait "$1" || true; return 1; fi
    if ! kill -0 "$1" 2>/dev/null || [ $SECONDS -ge $deadline ]; then
      say "no boot after $((SECONDS - deadline + BOOT_SECONDS)) s; the console's last lines:"
      tail -n 15 "$2/console" >&2
      kill "$1" 2>/dev/null || true
      return 1
    fi
    sleep 0.1
  done
}

# Passes the command's output on while it comes, then its exit status.
follow() { # PID SHARE
  local ended=0
  tail --pid="$1" -s 0.1 -n +1 -f "$2/stdout" & local out=$!
  tail --pid="$1" -s 0.1 -n +1 -f "$2/stderr" >&2 & local err=$!
  wait "$1" || ended=$?
  wait "$out" "$err" || true
  if [ "$ended" = "$TIMED_OUT" ]; then say "timed out"; return "$TIMED_OUT"; fi
  if [ ! -s "$2/status" ]; then
    say "the VM ended without an exit status; the console's last lines:"
    tail -n 15 "$2/console" >&2
    return "$NO_VM"
  fi
  return "$(cat "$2/status")"
}

case ${1:-} in
  install) install; say "ready: kernel $(cat "$(kernel)/version")" ;;
  run) shift; run "$@" ;;
  *) usage >&2; exit 2 ;;
esac
