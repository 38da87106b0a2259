#!/usr/bin/env bash
# Looks at the hardware of a host that verbs3 runs on: what PCIe gives the NICs and drives, their NUMA nodes, errors of PCIe and of
# memory. Changes nothing.
#
#   hardware.sh [OPTION...]      a line for each thing; exit status 1 if one is low
#
#   --devices DEV,DEV     RDMA devices, such as mlx5_0; all of them unless said
#   --root DIR            another tree in place of /, for tests
#
# tune.sh looks at settings, `verbs3 doctor` at the same host from inside a process.
set -euo pipefail

ROOT='' DEVICES=''
usage() { sed -n 's/^# \{0,1\}//p' "$0" | sed -n 2,9p >&2; exit 2; }
while [ $# -gt 0 ]; do
    case $1 in
        --devices) DEVICES=${2:?}; shift ;;
        --root) ROOT=${2:?}; shift ;;
        *) usage ;;
    esac
    shift
done

SYS=$ROOT/sys
lows=0
told() { printf '%-5s %-7s %s\n' "$1" "$2" "$3"; }
ok() { told ok "$1" "$2"; }
note() { told note "$1" "$2"; }
low() { told low "$1" "$2"; lows=1; }
# of FILE: its first line; nothing where there is no such file, or where reading it fails.
of() { { head -n 1 "$1"; } 2>/dev/null || true; }

# lane_mbits SPEED: what a lane of so many GT/s carries, in Mb/s: 8b/10b up to 5 GT/s, 128b/130b from 8 on.
lane_mbits() {
    case ${1%% *} in
        2.5) echo 2000 ;; 5|5.0) echo 4000 ;; 8|8.0) echo 7877 ;; 16|16.0) echo 15754 ;; 32|32.0) echo 31508 ;; 64|64.0) echo 63015 ;; *) echo 0 ;;
    esac
}

# pcie NAME PLACE: the link as it came up against what it can be. Leaves its Gb/s in $gbits.
pcie() {
    local name=$1 place=$2 speed width speed_max width_max
    gbits=0
    speed=$(of "$place/current_link_speed") width=$(of "$place/current_link_width")
    speed_max=$(of "$place/max_link_speed") width_max=$(of "$place/max_link_width")
    if [ -z "$speed" ] || [ "${width:-0}" = 0 ]; then note pcie "$name tells no PCIe link (a virtual function, or no PCIe device)"; return; fi
    gbits=$(($(lane_mbits "$speed") * width / 1000))
    if [ "${speed%% *}" = "${speed_max%% *}" ] && [ "$width" = "$width_max" ]; then
        ok pcie "$name ${speed%% *} GT/s x$width, $gbits Gb/s"
    else
        low pcie "$name ${speed%% *} GT/s x$width, could be ${speed_max%% *} GT/s x$width_max: another slot, riser or BIOS setting"
    fi
}

# errors NAME PLACE: what PCIe's error reporting has counted since the host started.
errors() {
    local name=$1 place=$2 kind count seen=0
    for kind in correctable nonfatal fatal; do
        [ -e "$place/aer_dev_$kind" ] || continue
        seen=1
        count=$(awk '$1 ~ /^TOTAL_ERR_/ { print $2 }' "$place/aer_dev_$kind" 2>/dev/null)
        if [ "${count:-0}" = 0 ]; then continue; fi
        low pcie "$name has counted $count PCIe errors ($kind) since the start: slot, riser, card"
        seen=2
    done
    [ "$seen" != 1 ] || ok pcie "$name has counted no PCIe error"
}

nodes() { local one; for one in "$SYS"/devices/system/node/node[0-9]*; do [ -d "$one" ] && echo "${one##*node}"; done; return 0; }

numa() {
    local name=$1 place=$2 node
    node=$(of "$place/numa_node")
    if [ "$(nodes | wc -l)" -lt 2 ]; then return; fi
    if [ "${node:--1}" -lt 0 ]; then low numa "$name is on no NUMA node, though the host has several: see to the BIOS"
    elif [ -z "$(of "$SYS/devices/system/node/node$node/cpulist")" ]; then low numa "$name is on NUMA node $node, which has no CPUs"
    else ok numa "$name is on NUMA node $node, CPUs $(of "$SYS/devices/system/node/node$node/cpulist")"; fi
}

# Both functions of a card with two ports share its slot.
declare -A slot_gbits=() slot_ports=() slot_names=()
nics() {
    local device place port rate slot gbits devices
    if [ -n "$DEVICES" ]; then devices=$(tr , ' ' <<<"$DEVICES")
    else devices=$(for place in "$SYS"/class/infiniband/*; do [ -e "$place" ] && basename "$place"; done || true); fi
    [ -n "$devices" ] || note nic "no RDMA device is here"
    for device in $devices; do
        place=$SYS/class/infiniband/$device
        if [ ! -e "$place" ]; then low nic "$device is not there"; continue; fi
        pcie "$device" "$place/device"
        errors "$device" "$place/device"
        numa "$device" "$place/device"
        slot=$(basename "$(readlink -f "$place/device")"); slot=${slot%.*}
        slot_gbits[$slot]=$gbits slot_names[$slot]="${slot_names[$slot]:-}${slot_names[$slot]:+, }$device"
        for port in "$place"/ports/*; do
            rate=$(of "$port/rate"); rate=${rate%% *}; rate=${rate%.*}
            [[ $(of "$port/state") != *ACTIVE* ]] || slot_ports[$slot]=$((${slot_ports[$slot]:-0} + ${rate:-0}))
        done
    done
    for slot in "${!slot_names[@]}"; do
        if [ "${slot_gbits[$slot]}" = 0 ] || [ "${slot_ports[$slot]:-0}" = 0 ]; then continue; fi
        # PCIe's own packets take some of it: a link of the ports' very rate is not enough.
        if [ "${slot_gbits[$slot]}" -gt "${slot_ports[$slot]}" ]; then ok nic "${slot_names[$slot]}: ports of ${slot_ports[$slot]} Gb/s behind ${slot_gbits[$slot]} Gb/s of PCIe"
        else low nic "${slot_names[$slot]}: ports of ${slot_ports[$slot]} Gb/s behind ${slot_gbits[$slot]} Gb/s of PCIe, which is the most they can do"; fi
    done
}

drives() {
    local place name
    for place in "$SYS"/class/nvme/nvme*; do
        [ -e "$place/device" ] || continue
        name=$(basename "$place")
        pcie "$name" "$place/device"
        errors "$name" "$place/device"
    done
}

memory() {
    local place count kind node kib least='' most='' controllers=0
    for place in "$SYS"/devices/system/edac/mc/mc[0-9]*; do
        [ -d "$place" ] || continue
        controllers=$((controllers + 1))
        for kind in ue ce; do
            count=$(of "$place/${kind}_count")
            if [ "${count:-0}" = 0 ]; then continue; fi
            if [ "$kind" = ue ]; then low memory "$(basename "$place"): $count errors that could not be corrected: replace the module"
            else low memory "$(basename "$place"): $count corrected errors since the start; rasdaemon or dmesg names the module"; fi
        done
    done
    if [ "$controllers" = 0 ]; then note memory "no driver of the memory controller (EDAC): errors are not counted"; else ok memory "errors are counted by $controllers controllers"; fi
    for node in $(nodes); do
        kib=$(awk '/MemTotal:/ { print $4 }' "$SYS/devices/system/node/node$node/meminfo" 2>/dev/null)
        [ -n "$kib" ] || continue
        if [ -z "$least" ] || [ "$kib" -lt "$least" ]; then least=$kib; fi
        if [ -z "$most" ] || [ "$kib" -gt "$most" ]; then most=$kib; fi
    done
    [ -n "$least" ] || return 0
    # The kernel's own share differs between nodes by some percent.
    if [ $((least * 10)) -ge $((most * 9)) ]; then ok memory "NUMA nodes have $((least >> 20)) to $((most >> 20)) GiB each"
    else low memory "NUMA nodes have between $((least >> 20)) and $((most >> 20)) GiB: a module is missing, or not in its place"; fi
}

nics
drives
memory
exit "$lows"
