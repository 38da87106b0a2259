#!/usr/bin/env bash
# Looks at what a host wants for verbs3, or sets it, for now and for after a reboot.
#
#   tune.sh --check [OPTION...]      a line for each setting; exit status 1 if one differs. Changes nothing
#   tune.sh --apply [OPTION...]      sets what differs, as root
#   tune.sh --remove                 removes every file that --apply has written; what is in force stays so until a reboot
#
#   --only GROUP,GROUP    memlock sysctl huge modules links rings irqs power; all of them unless said
#   --devices DEV,DEV     RDMA devices, such as mlx5_0; all of them unless said
#   --huge-pages N        reserved huge pages of 2 MiB for other programs: verbs3 takes transparent ones. 0 (unless said): as they are
#   --mtu N               of Ethernet ports with RDMA (9000); 0: leave it alone
#   --at-boot             --apply without a file that it writes: a device that is late, or gone, takes no setting along
#   --root DIR            another tree in place of /, for tests
#
# What is only in memory (rings, interrupts, governor) is set again at each boot by verbs3-host.service, which --apply installs.
# docs/host-tuning.md says why each is wanted, and what is the switches' part.
# shellcheck disable=SC2317 # functions that `differs` is given by their names
set -euo pipefail

MODE='' AT_BOOT=0 ROOT='' ONLY='' DEVICES='' HUGE_PAGES=0 MTU=9000
usage() { sed -n 's/^# \{0,1\}//p' "$0" | sed -n 2,17p >&2; exit 2; }
while [ $# -gt 0 ]; do
    case $1 in
        --check|--apply|--remove) MODE=${1#--} ;;
        --at-boot) AT_BOOT=1 ;;
        --only) ONLY=,${2:?}, ; shift ;;
        --devices) DEVICES=${2:?}; shift ;;
        --huge-pages) HUGE_PAGES=${2:?}; shift ;;
        --mtu) MTU=${2:?}; shift ;;
        --root) ROOT=${2:?}; shift ;;
        *) usage ;;
    esac
    shift
done
[ -n "$MODE" ] || usage
[[ $HUGE_PAGES$MTU =~ ^[0-9]+$ ]] || usage

SYS=$ROOT/sys PROC=$ROOT/proc ETC=$ROOT/etc
differing=0 written=0

wanted() { [ -z "$ONLY" ] || [[ $ONLY == *",$1,"* ]]; }
told() { printf '%-8s %-9s %s\n' "$1" "$2" "$3"; }
fine() { told ok "$1" "$2"; }
note() { told note "$1" "$2"; }

# differs GROUP WHAT COMMAND...: tells it; with --apply does COMMAND.
differs() {
    local group=$1 what=$2; shift 2
    if [ "$MODE" = check ]; then
        told differs "$group" "$what"; differing=1
    elif "$@"; then
        told set "$group" "$what"
    else
        told failed "$group" "$what"; differing=1
    fi
}

# What is beyond this script.
advise() { told advice "$1" "$2"; }

put() { { printf '%s' "$2" >"$1"; } 2>/dev/null; }

# keep GROUP FILE TEXT: a file with this content.
keep() {
    local group=$1 file=$2 text=$3
    [ "$AT_BOOT" = 0 ] || return 0
    if [ "$(cat "$file" 2>/dev/null)" = "$text" ]; then fine "$group" "${file#"$ROOT"}"; return; fi
    differs "$group" "${file#"$ROOT"} is missing or says something else" keep_file "$file" "$text"
}
keep_file() { mkdir -p "$(dirname "$1")" && printf '%s\n' "$2" >"$1" && written=1; }

# set_value GROUP FILE VALUE [SHOWN]: a file of sysfs or /proc/sys. What the kernel shows may have brackets around what is in force.
set_value() {
    local group=$1 file=$2 value=$3 shown now
    shown=${file#"$ROOT"}
    [ -e "$file" ] || { note "$group" "$shown is not there"; return; }
    now=$(tr '\t' ' ' <"$file")
    [[ $now != *'['*']'* ]] || { now=${now#*[}; now=${now%%]*}; }
    if [ "$now" = "$value" ]; then fine "$group" "$shown = $value"; return; fi
    differs "$group" "$shown = $now, wanted $value" put "$file" "$value"
}

# The RDMA devices, and the network devices of one.
rdma_devices() {
    local device
    if [ -n "$DEVICES" ]; then tr , '\n' <<<"$DEVICES"; return; fi
    for device in "$SYS"/class/infiniband/*; do [ -e "$device" ] && basename "$device"; done
    return 0
}
netdevs() {
    local one card=$SYS/class/infiniband/$1/device/net
    # Soft-RoCE is on no card: its ports name the network device.
    [ -d "$card" ] || { cat "$SYS/class/infiniband/$1/ports"/*/gid_attrs/ndevs/* 2>/dev/null | sort -u || true; return 0; }
    for one in "$card"/*; do [ -e "$one" ] && basename "$one"; done
    return 0
}
# Where its interrupts are: the card of the device, or what its network device is on; virtio's is one above.
card() {
    local place dev
    for place in "$SYS/class/infiniband/$1/device" $(for dev in $(netdevs "$1"); do printf '%s\n' "$SYS/class/net/$dev/device"{,/..}; done); do
        if [ -d "$place/msi_irqs" ]; then readlink -f "$place"; return; fi
    done
}
driver() { basename "$(readlink "$SYS/class/infiniband/$1/device/driver" 2>/dev/null || echo unknown)"; }

memlock() {
    keep memlock "$ETC/security/limits.d/90-verbs3.conf" '# verbs3: registered memory is locked. Services have LimitMEMLOCK= of their units.
* soft memlock unlimited
* hard memlock unlimited'
    local runtime
    for runtime in containerd crio docker; do
        [ -e "$ROOT/lib/systemd/system/$runtime.service" ] || [ -e "$ROOT/usr/lib/systemd/system/$runtime.service" ] || continue
        keep memlock "$ETC/systemd/system/$runtime.service.d/90-verbs3-memlock.conf" '# verbs3: containers inherit it. In force after a restart of this unit, for containers that start then.
[Service]
LimitMEMLOCK=infinity'
    done
}

# Name and value, each with its reason.
SYSCTLS='# One connection over 100 Gb/s and 10 ms has 125 MB under way.
net.core.rmem_max = 134217728
net.core.wmem_max = 134217728
net.ipv4.tcp_rmem = 4096 131072 134217728
net.ipv4.tcp_wmem = 4096 65536 134217728
# Packets that wait for a CPU.
net.core.netdev_max_backlog = 250000
# Thousands of ranks connect in the same second.
net.core.somaxconn = 8192
net.ipv4.tcp_max_syn_backlog = 8192
# Connections that were idle between two epochs go on at full speed.
net.ipv4.tcp_slow_start_after_idle = 0
# Where a path bears less than the MTU of its ends.
net.ipv4.tcp_mtu_probing = 1
# Neighbours of a large fabric.
net.ipv4.neigh.default.gc_thresh1 = 8192
net.ipv4.neigh.default.gc_thresh2 = 16384
net.ipv4.neigh.default.gc_thresh3 = 32768
# It moves registered memory away from the NIC, and unmaps it to see who uses it.
kernel.numa_balancing = 0'

sysctls() {
    keep sysctl "$ETC/sysctl.d/90-verbs3.conf" "# verbs3: see docs/host-tuning.md.
$SYSCTLS"
    local name value
    while IFS='=' read -r name value; do
        [[ $name == \#* ]] || set_value sysctl "$PROC/sys/$(tr -d ' ' <<<"${name//.//}")" "${value# }"
    done <<<"$SYSCTLS"
}

huge() {
    local place=$SYS/kernel/mm/transparent_hugepage text
    # Shared memory that asks for huge pages gets them: the arena does. Registration is faster, and NICs have fewer entries to keep.
    text='# verbs3: the arena asks for huge pages.
w /sys/kernel/mm/transparent_hugepage/shmem_enabled - - - - advise'
    if grep -q '\[never\]' "$place/enabled" 2>/dev/null; then
        differs huge "${place#"$ROOT"}/enabled = never, wanted madvise" put "$place/enabled" madvise
    fi
    set_value huge "$place/shmem_enabled" advise
    keep huge "$ETC/tmpfiles.d/90-verbs3.conf" "$text"
    [ "$HUGE_PAGES" -gt 0 ] || return 0
    keep huge "$ETC/sysctl.d/91-verbs3-huge.conf" "vm.nr_hugepages = $HUGE_PAGES"
    set_value huge "$PROC/sys/vm/nr_hugepages" "$HUGE_PAGES"
    [ "$MODE" = check ] || [ "$(cat "$PROC/sys/vm/nr_hugepages")" = "$HUGE_PAGES" ] ||
        advise huge "memory is too scattered for $HUGE_PAGES huge pages now: reboot"
}

modules() {
    local names="ib_uverbs rdma_ucm" device
    for device in $(rdma_devices); do
        case $(driver "$device") in mlx5_core) names+=" mlx5_ib" ;; mlx4_core) names+=" mlx4_ib" ;; bnxt_en) names+=" bnxt_re" ;; ice|i40e) names+=" irdma" ;; esac
        grep -q InfiniBand "$SYS/class/infiniband/$device/ports"/*/link_layer 2>/dev/null && names+=" ib_ipoib"
    done
    keep modules "$ETC/modules-load.d/verbs3.conf" "$(printf '%s\n' "$names" | tr ' ' '\n' | awk '!seen[$0]++')"
    for device in $names; do
        [ -e "$SYS/module/$device" ] || differs modules "$device is not loaded" modprobe "$device"
    done
}

# Mode and MTU, now and (by udev, whoever manages the network) whenever the device appears.
links() {
    local device dev mode mtu rules=() enhanced
    for device in $(rdma_devices); do
        for dev in $(netdevs "$device"); do
            if [ "$(cat "$SYS/class/net/$dev/type")" = 32 ]; then
                # From ConnectX-4 on, IPoIB is the NIC's: datagram mode alone, at most 2,044 (4,092 if the subnet manager allows it).
                enhanced=0; [ "$(driver "$device")" != mlx5_core ] || enhanced=1
                if [ "$enhanced" = 1 ]; then mode=datagram mtu=2044; else mode=connected mtu=65520; fi
                set_value links "$SYS/class/net/$dev/mode" "$mode"
                if [ "$enhanced" = 1 ] && [ "$(cat "$SYS/class/net/$dev/mtu")" -ge 2044 ]; then
                    fine links "$dev MTU $(cat "$SYS/class/net/$dev/mtu")"
                else
                    set_value links "$SYS/class/net/$dev/mtu" "$mtu"
                    whenever "$dev" mtu "$mtu"
                fi
                whenever "$dev" mode "$mode"
            elif [ "$MTU" -gt 0 ]; then
                set_value links "$SYS/class/net/$dev/mtu" "$MTU"
                whenever "$dev" mtu "$MTU"
            fi
        done
    done
    several_rails
    [ ${#rules[@]} -eq 0 ] || keep links "$ETC/udev/rules.d/90-verbs3.rules" "# verbs3: a network manager that sets an MTU of its own comes after, and wants the same.
$(printf '%s\n' "${rules[@]}" | sort)"
}

# A rule for `links`. What comes late still has the kernel's name, and is about to get this one; what was there early has it.
whenever() {
    local name
    for name in "NAME==\"$1\"" "NAME==\"\", KERNEL==\"$1\""; do rules+=("ACTION==\"add\", SUBSYSTEM==\"net\", $name, ATTR{$2}=\"$3\""); done
}

# Several rails on one network: each answers for its own address alone, and takes what comes by another way. Of these devices alone:
# plugins of pods' networks have wishes of their own for the others.
several_rails() {
    local devs=() device dev name value text=''
    for device in $(rdma_devices); do for dev in $(netdevs "$device"); do devs+=("$dev"); done; done
    [ ${#devs[@]} -gt 1 ] || return 0
    for dev in "${devs[@]}"; do
        for name in arp_ignore=1 arp_announce=2 rp_filter=2; do
            value=${name#*=} name=${name%=*}
            text+="net.ipv4.conf.$dev.$name = $value"$'\n'
            set_value links "$PROC/sys/net/ipv4/conf/$dev/$name" "$value"
        done
    done
    keep links "$ETC/sysctl.d/92-verbs3-rails.conf" "${text%$'\n'}"
}

# field TEXT SECTION NAME: a number of what ethtool prints in sections.
field() { awk -v section="$2" -v name="$3" 'index($0, section) == 1 { inside = 1; next } /^[A-Z].*:$/ && inside { exit } inside && index($0, name ":") == 1 { print $2; exit }' <<<"$1"; }

rings() {
    command -v ethtool >/dev/null || { advise rings "ethtool is missing: apt-get install ethtool"; return; }
    local device dev said name most now
    for device in $(rdma_devices); do
        for dev in $(netdevs "$device"); do
            [ "$(cat "$SYS/class/net/$dev/type")" != 32 ] || continue
            if said=$(ethtool -g "$dev" 2>/dev/null); then
                for name in RX TX; do
                    most=$(field "$said" "Pre-set maximums" $name) now=$(field "$said" "Current hardware settings" $name)
                    [[ ${most:-n/a} =~ ^[0-9]+$ ]] || continue
                    # Beyond 8,192 a ring falls out of the cache.
                    [ "$most" -le 8192 ] || most=8192
                    if [ "$now" = "$most" ]; then fine rings "$dev $name $now"
                    else differs rings "$dev $name $now, wanted $most" ethtool -G "$dev" "${name,,}" "$most"; fi
                done
            fi
            if said=$(ethtool -c "$dev" 2>/dev/null) && [[ $said == *"Adaptive RX:"* ]]; then
                # Few interrupts under load, no wait when idle.
                if [[ $said == *"Adaptive RX: on"* ]]; then fine rings "$dev adaptive-rx on"
                elif [[ $said == *"Adaptive RX: n/a"* ]]; then note rings "$dev has no adaptive-rx"
                else differs rings "$dev adaptive-rx off, wanted on" ethtool -C "$dev" adaptive-rx on; fi
            fi
            if said=$(ethtool -k "$dev" 2>/dev/null); then
                for name in tcp-segmentation-offload generic-receive-offload; do
                    case $name$said in
                        *"$name: on"*) fine rings "$dev $name on" ;;
                        *"$name: off [fixed]"*) note rings "$dev $name is fixed" ;;
                        tcp*"tx-checksumming: off"*"$name: off"*) advise rings "$dev has tx-checksumming off, which $name needs: ethtool -K $dev tx on, where it can" ;;
                        *"$name: off"*) differs rings "$dev $name off, wanted on" ethtool -K "$dev" "$name" on ;;
                    esac
                done
            fi
            if said=$(ethtool -a "$dev" 2>/dev/null) && [[ $said == *"RX:"*on* ]]; then
                advise rings "$dev has global pause: with PFC on the switches it has to be off (ethtool -A $dev rx off tx off)"
            fi
        done
    done
}

# CPUs of a list such as 0-3,8, one a line.
cpus() { tr , '\n' <<<"$1" | while IFS=- read -r first last; do seq "$first" "${last:-$first}"; done; }

# Interrupts on the NIC's own NUMA node, one CPU after the other.
irqs() {
    local device place irq list number now
    for device in $(rdma_devices); do
        place=$(card "$device")
        [ -e "$place/local_cpulist" ] || continue
        mapfile -t list < <(cpus "$(cat "$place/local_cpulist")")
        number=0
        for irq in $(cd "$place/msi_irqs" && printf '%s\n' * | sort -n); do
            [ -e "$PROC/irq/$irq/smp_affinity_list" ] || continue
            now=$(cat "$PROC/irq/$irq/smp_affinity_list")
            # Not by a pipe into grep -q, which leaves early: its writer would then be what failed.
            if [[ " ${list[*]} " == *" $now "* ]]; then
                fine irqs "$device: $irq on CPU $now"
            else
                differs irqs "$device: $irq on CPU $now, wanted ${list[number % ${#list[@]}]}" \
                    put "$PROC/irq/$irq/smp_affinity_list" "${list[number % ${#list[@]}]}"
            fi
            number=$((number + 1))
        done
    done
    if [ -e "$ROOT/run/irqbalance" ]; then advise irqs "irqbalance runs, and moves interrupts again: systemctl disable --now irqbalance"; fi
}

power() {
    local file
    for file in "$SYS"/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor; do
        [ ! -e "$file" ] || set_value power "$file" performance
    done
    [ ! -e "$SYS/devices/system/cpu/intel_pstate/no_turbo" ] || set_value power "$SYS/devices/system/cpu/intel_pstate/no_turbo" 0
}

# Again at each boot, with the same words.
boot() {
    local words=("--apply" "--at-boot")
    [ "$AT_BOOT" = 0 ] || return 0
    [ -z "$ONLY" ] || { words+=("--only" "${ONLY#,}"); words[-1]=${words[-1]%,}; }
    [ -z "$DEVICES" ] || words+=("--devices" "$DEVICES")
    [ "$HUGE_PAGES" = 0 ] || words+=("--huge-pages" "$HUGE_PAGES")
    [ "$MTU" = 9000 ] || words+=("--mtu" "$MTU")
    keep boot "$ETC/systemd/system/verbs3-host.service" "# verbs3: what the kernel forgets. Written by tune.sh.
[Unit]
Description=Host settings for verbs3
After=network-online.target
Wants=network-online.target
Before=verbs3@worker.service verbs3@gateway.service

[Service]
Type=oneshot
ExecStart=/usr/local/sbin/verbs3-tune ${words[*]}

[Install]
WantedBy=multi-user.target"
    if cmp -s "$0" "$ROOT/usr/local/sbin/verbs3-tune"; then fine boot /usr/local/sbin/verbs3-tune
    else differs boot "/usr/local/sbin/verbs3-tune is missing or another version" install -D -m 755 "$0" "$ROOT/usr/local/sbin/verbs3-tune"; fi
    if [ -L "$ETC/systemd/system/multi-user.target.wants/verbs3-host.service" ]; then fine boot "verbs3-host.service is enabled"
    else differs boot "verbs3-host.service is not enabled" enable_unit; fi
}
enable_unit() {
    mkdir -p "$ETC/systemd/system/multi-user.target.wants"
    ln -sfn ../verbs3-host.service "$ETC/systemd/system/multi-user.target.wants/verbs3-host.service"
    written=1
}

remove_files() {
    local file
    for file in "$ETC"/security/limits.d/90-verbs3.conf "$ETC"/systemd/system/*.service.d/90-verbs3-memlock.conf "$ETC"/sysctl.d/9[0-2]-verbs3*.conf \
        "$ETC"/tmpfiles.d/90-verbs3.conf "$ETC"/modules-load.d/verbs3.conf "$ETC"/udev/rules.d/90-verbs3.rules \
        "$ETC"/systemd/system/{multi-user.target.wants/,}verbs3-host.service "$ROOT"/usr/local/sbin/verbs3-tune; do
        if [ ! -e "$file" ] && [ ! -L "$file" ]; then continue; fi
        rm -- "$file"; written=1
        told removed files "${file#"$ROOT"}"
        [[ $file != *.service.d/* ]] || rmdir --ignore-fail-on-non-empty "$(dirname "$file")"
    done
}
reload() {
    if [ "$written" = 1 ] && [ -z "$ROOT" ]; then systemctl daemon-reload 2>/dev/null || true; udevadm control --reload 2>/dev/null || true; fi
}

if [ "$MODE" = remove ]; then remove_files; reload; exit 0; fi
[ -n "$(rdma_devices)" ] || note devices "no RDMA device is here: links, rings and irqs have nothing to do"
! wanted memlock || memlock
! wanted sysctl || sysctls
! wanted huge || huge
! wanted modules || modules
! wanted links || links
! wanted rings || rings
! wanted irqs || irqs
! wanted power || power
boot
reload
exit "$differing"
