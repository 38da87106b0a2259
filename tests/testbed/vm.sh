#!/usr/bin/env bash
#! Owns small VMs with real RDMA verbs (soft-RoCE, soft-iWARP), one or two on one wire, under plain emulation: no KVM,
#! no NIC, no root image. A guest's root is the host's, read-only with a tmpfs above, so it runs the very binaries that
#! were built outside; /run/vm in the guest is a folder of the host's, writable. Deliberately not here: what runs inside
#! (vm-suite.sh), and what is prepared once (vm-install.sh).
#!
#! By hand, from anywhere (as root; the first run installs and builds what is missing, about a minute):
#!   tests/testbed/vm.sh run -- ibv_devinfo
#!   tests/testbed/vm.sh run --rail rxe:4096 --rail siw -- bash -c 'rdma link; ip -br address'
#!   tests/testbed/vm.sh pair --rail rxe -- rping -s -a 10.77.0.2 -C 3 -v ::: sh -c 'sleep 1; rping -c -a 10.77.0.2 -C 3 -v'
#! In a guest's script, `. tests/testbed/vm-faults.sh` breaks rails and counts resources, `. tests/testbed/vm-meet.sh`
#! lets the two hosts of a pair wait for each other. After a run, --share DIR has stdout, stderr, console and dmesg.
set -euo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# Exit statuses of vm.sh itself, as timeout(1) and env(1) have them.
TIMED_OUT=124
NO_VM=125
BOOT_SECONDS=300
# When one host of a pair has failed, the other has this long to end by itself.
GRACE_SECONDS=10

say() { echo "vm: $*" >&2; }
die() { say "$*"; exit $NO_VM; }

# shellcheck source=vm-install.sh
. "$HERE/vm-install.sh"

TIMEOUT=300 SHARE='' MEMORY_MIB=2048 CPUS=2 RAILS=() TAP='' ADDRESS='' DISK=''

usage() {
  cat <<USAGE
usage: vm.sh install                                     packages, kernel, siw and initramfs, once
       vm.sh run [OPTIONS] -- COMMAND [ARGUMENT…]        COMMAND in a guest, in this folder and with this environment
       vm.sh pair [OPTIONS] -- COMMAND_A… ::: COMMAND_B… two guests, a and b, on one wire per rail; default --cpus 1
  --rail RAIL    the next wire, 0, 1, …; RAIL is KIND[:MTU][@veth]; default one, rxe
                 KIND  rxe, siw, or none (no RDMA on it)   MTU  of RDMA, 1024 (default), 2048 or 4096
                 @veth  on one end of a veth pair, not on a virtio NIC (one guest only)
  --timeout S    the whole run, default $TIMEOUT s (exit $TIMED_OUT)
  --share DIR    the folder that is /run/vm in the guest (\$VM_SHARE there), default a temporary one; for a pair DIR/a
                 and DIR/b, and DIR/common is \$VM_COMMON in both
  --memory MIB   of each guest, default $MEMORY_MIB; the guest's writes live there as well
  --cpus N       of each guest, default $CPUS
  --disk FILE    /dev/vda in the guest, which begins as FILE; what is written there is gone with the guest (run only)
  --tap NAME=ADDRESS  rail 0 is that tap device of this machine, and the guest has ADDRESS/24 there (run only)
run: stdout, stderr and the exit status are COMMAND's. pair: lines are marked a: and b:; 0 if both ended with 0, else
the status of the one that failed first; each host's own is in DIR/a/result and DIR/b/result.
$NO_VM means that a VM did not come up, and why is on stderr.
In the guest, rail i is eth<i> with 10.77.i.2/24 (host b: .3) and the RDMA device rxe<i> or siw<i> (GID index 1 of rxe is
RoCE v2 over IPv4). VM_SIDE is a or b, VM_RAILS the rails' descriptions.
USAGE
}

parse_options() {
  while [ $# -gt 0 ]; do
    case $1 in
      --timeout) TIMEOUT=$2; shift 2 ;;
      --share) SHARE=$2; shift 2 ;;
      --memory) MEMORY_MIB=$2; shift 2 ;;
      --cpus) CPUS=$2; shift 2 ;;
      --disk) DISK=$2; shift 2 ;;
      --tap) TAP=${2%%=*} ADDRESS=${2#*=}; shift 2 ;;
      --rail)
        [[ $2 =~ ^(rxe|siw|none)(:(1024|2048|4096))?(@veth)?$ ]] || { say "no such rail: '$2'"; usage >&2; exit 2; }
        RAILS+=("$2"); shift 2 ;;
      --) shift; break ;;
      *) usage >&2; exit 2 ;;
    esac
  done
  [ ${#RAILS[@]} -gt 0 ] || RAILS=(rxe)
  REST=("$@")
  [ ${#REST[@]} -gt 0 ] || { usage >&2; exit 2; }
}

# ---- a machine -----------------------------------------------------------------------------------------------------

PIDS=() TEMPORARY=()
cleanup() {
  local pid
  for pid in "${PIDS[@]}"; do kill "$pid" 2>/dev/null || true; done
  if [ ${#TEMPORARY[@]} -gt 0 ]; then rm -rf -- "${TEMPORARY[@]}"; fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The NICs, one qemu argument a line: of a lone VM on a hub each, of a pair on a socket in the folder WIRES, which host a
# listens on, or rail 0 on a tap device. The MAC says side and rail, or the tap's address. host_mtu is what the guest may
# raise its MTU to.
nic_arguments() { # SIDE WIRES
  local rail side=2 server=on
  [ "$1" = a ] || { side=3; server=off; }
  for rail in "${!RAILS[@]}"; do
    [[ ${RAILS[$rail]} != *@veth ]] || continue
    if [ -n "$TAP" ] && [ "$rail" = 0 ]; then
      side=${ADDRESS##*.}
      printf '%s\n' -netdev "tap,id=n0,ifname=$TAP,script=no,downscript=no"
    elif [ -n "$2" ]; then
      printf '%s\n' -netdev "stream,id=n$rail,server=$server,addr.type=unix,addr.path=$2/rail$rail"
    else
      printf '%s\n' -netdev "hubport,hubid=$rail,id=n$rail"
    fi
    printf '%s\n' -device "$(printf 'virtio-net-pci,netdev=n%d,romfile=,host_mtu=4200,mac=52:54:00:77:%02x:%02x' "$rail" "$rail" "$side")"
  done
}

guest_environment() { # SIDE COMMON
  printf 'export VM_SHARE=/run/vm VM_COMMON=%q VM_SIDE=%q VM_RAILS=%q VM_KERNEL=%q VM_MODULES=%q VM_ADDRESS=%q\n' \
    "${2:+/run/common}" "$1" "${RAILS[*]}" "$KERNEL_VERSION" "$KERNEL_FOLDER/root" "$ADDRESS"
}

job_script() { # SIDE COMMON COMMAND…
  export -p
  guest_environment "$1" "$2"; shift 2
  printf 'cd %q || exit %s\n' "$PWD" "$NO_VM"
  echo 'ulimit -l unlimited'
  printf '%q ' "$@"
  echo
}

# Starts a machine in the background; its pid is the last of PIDS.
machine() { # SIDE SHARE COMMON WIRES COMMAND…
  local side=$1 share=$2 common=$3 wires=$4 argument; shift 4
  mkdir -p "$share"
  (cd "$share" && rm -f booted failed status result stdout stderr network.log console dmesg)
  { guest_environment "$side" "$common"; printf 'exec bash %q\n' "$HERE/vm-network.sh"; } >"$share/network"
  job_script "$side" "$common" "$@" >"$share/job"
  : >"$share/stdout"; : >"$share/stderr"
  local qemu=(qemu-system-x86_64 -accel "tcg,thread=multi" -cpu max -smp "$CPUS" -m "$MEMORY_MIB" -nographic -no-reboot
    -kernel "$KERNEL_FOLDER/root/boot/vmlinuz-$KERNEL_VERSION" -initrd "$INITRAMFS" -append "console=ttyS0 quiet panic=-1"
    -virtfs "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"
    -virtfs "local,path=$share,mount_tag=share,security_model=none,multidevs=remap")
  if [ -n "$DISK" ]; then qemu+=(-drive "file=$DISK,if=virtio,format=raw,snapshot=on"); fi
  if [ -n "$common" ]; then qemu+=(-virtfs "local,path=$common,mount_tag=common,security_model=none,multidevs=remap"); fi
  while read -r argument; do qemu+=("$argument"); done < <(nic_arguments "$side" "$wires")
  timeout --kill-after=5 "$TIMEOUT" "${qemu[@]}" </dev/null >"$share/console" 2>&1 &
  PIDS+=("$!")
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

# Passes a machine's output on while it comes, each line after MARK.
relay() { # PID SHARE MARK
  if [ -z "$3" ]; then
    tail --pid="$1" -s 0.1 -n +1 -f "$2/stdout" & RELAYS+=("$!")
    tail --pid="$1" -s 0.1 -n +1 -f "$2/stderr" >&2 & RELAYS+=("$!")
  else
    tail --pid="$1" -s 0.1 -n +1 -f "$2/stdout" | sed -u "s/^/$3/" & RELAYS+=("$!")
    tail --pid="$1" -s 0.1 -n +1 -f "$2/stderr" | sed -u "s/^/$3/" >&2 & RELAYS+=("$!")
  fi
}

# How an ended machine ended: its command's exit status, or why there is none. Also in SHARE/result.
ended() { # PID SHARE
  local machine=0 status
  wait "$1" || machine=$?
  if [ -s "$2/status" ]; then
    status=$(cat "$2/status")
  elif [ "$machine" = "$TIMED_OUT" ]; then
    say "timed out after $TIMEOUT s ($2)"; status=$TIMED_OUT
  else
    say "the VM ended without an exit status ($2); the console's last lines:"
    tail -n 15 "$2/console" >&2
    status=$NO_VM
  fi
  if grep -qE 'BUG:|WARNING:|Oops|Call Trace' "$2/dmesg" 2>/dev/null; then
    say "the guest's kernel complained ($2/dmesg):"
    grep -E -A 3 'BUG:|WARNING:|Oops' "$2/dmesg" | head -n 20 >&2
  fi
  echo "$status" >"$2/result"
  return "$status"
}

# ---- run and pair --------------------------------------------------------------------------------------------------

# Makes SHARE an absolute folder that exists.
share_folder() {
  if [ -z "$SHARE" ]; then SHARE=$(mktemp -d "${TMPDIR:-/tmp}/vm.XXXXXX"); TEMPORARY+=("$SHARE"); fi
  mkdir -p "$SHARE"; SHARE=$(readlink -f "$SHARE")
}

run() {
  local status=0 pid
  parse_options "$@"
  install
  share_folder
  machine a "$SHARE" '' '' "${REST[@]}"; pid=${PIDS[0]}
  await_boot "$pid" "$SHARE" || exit $NO_VM
  RELAYS=(); relay "$pid" "$SHARE" ''
  ended "$pid" "$SHARE" || status=$?
  wait "${RELAYS[@]}" || true
  exit "$status"
}

pair() {
  local a=() b=() wires index rail
  CPUS=1
  parse_options "$@"
  for index in "${!REST[@]}"; do [ "${REST[$index]}" != ::: ] || break; done
  a=("${REST[@]:0:$index}"); b=("${REST[@]:$((index + 1))}")
  if [ ${#a[@]} = 0 ] || [ ${#b[@]} = 0 ]; then usage >&2; exit 2; fi
  [ -z "$TAP$DISK" ] || { say "--tap and --disk are for a lone guest"; exit 2; }
  for rail in "${RAILS[@]}"; do [[ $rail != *@veth ]] || { say "a pair's rails are on the wire: '$rail'"; exit 2; }; done
  install
  share_folder
  # Sockets' paths are short, so not in the share.
  wires=$(mktemp -d /tmp/vm-wires.XXXXXX); TEMPORARY+=("$wires")
  rm -rf -- "$SHARE/common"; mkdir -p "$SHARE/common"
  machine a "$SHARE/a" "$SHARE/common" "$wires" "${a[@]}"
  await_wires "$wires"
  machine b "$SHARE/b" "$SHARE/common" "$wires" "${b[@]}"
  await_boot "${PIDS[0]}" "$SHARE/a" || exit $NO_VM
  await_boot "${PIDS[1]}" "$SHARE/b" || exit $NO_VM
  RELAYS=(); relay "${PIDS[0]}" "$SHARE/a" 'a: '; relay "${PIDS[1]}" "$SHARE/b" 'b: '
  await_pair
}

await_wires() { # WIRES
  local rail
  for rail in "${!RAILS[@]}"; do
    for _ in $(seq 100); do [ ! -S "$1/rail$rail" ] || break; sleep 0.1; done
    [ -S "$1/rail$rail" ] || { cat "$SHARE/a/console" >&2; die "host a does not open its end of rail $rail"; }
  done
}

# Until both have ended; one that fails takes the other along after a while.
await_pair() {
  local sides=(a b) statuses=('' '') first='' deadline='' index status
  while [ -z "${statuses[0]}" ] || [ -z "${statuses[1]}" ]; do
    for index in 0 1; do
      if [ -n "${statuses[$index]}" ] || kill -0 "${PIDS[$index]}" 2>/dev/null; then continue; fi
      status=0; ended "${PIDS[$index]}" "$SHARE/${sides[$index]}" || status=$?
      statuses[index]=$status
      if [ "$status" != 0 ] && [ -z "$first" ]; then first=$status deadline=$((SECONDS + GRACE_SECONDS)); fi
    done
    if [ -n "$deadline" ] && [ $SECONDS -ge "$deadline" ]; then
      for index in 0 1; do
        [ -n "${statuses[$index]}" ] || { say "host ${sides[$index]} is ended: the other has failed"; kill "${PIDS[$index]}" 2>/dev/null || true; }
      done
      deadline=''
    fi
    sleep 0.1
  done
  wait "${RELAYS[@]}" || true
  if [ -n "$first" ]; then say "host a ended with ${statuses[0]}, host b with ${statuses[1]}"; fi
  exit "${first:-0}"
}

case ${1:-} in
  install) install; say "ready: kernel $KERNEL_VERSION with siw" ;;
  run) shift; run "$@" ;;
  pair) shift; pair "$@" ;;
  *) usage >&2; exit 2 ;;
esac
