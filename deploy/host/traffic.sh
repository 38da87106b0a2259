#!/usr/bin/env bash
# Says what each device of this host carries: RDMA ports by the NIC's own counters, network devices by the kernel's, and over which
# address tcp connections to workers go. Changes nothing. Run it under load.
#
#   traffic.sh [OPTION...]
#
#   --seconds N           how long it counts; 5 unless said
#   --expect DEV,DEV      RDMA or network devices that have to carry data: exit status 1 if one carries less than --least
#   --least N             MiB/s, either way, that count as data; 1 unless said
#   --port N              the workers' port; 9400 unless said
#   --root DIR            another tree in place of /, for tests
#
# docs/fabric/traffic.md says what the figures mean.
set -euo pipefail

ROOT='' SECONDS_COUNTED=5 EXPECTED='' LEAST=1 PORT=9400
usage() { sed -n 's/^# \{0,1\}//p' "$0" | sed -n 2,12p >&2; exit 2; }
while [ $# -gt 0 ]; do
    case $1 in
        --seconds) SECONDS_COUNTED=${2:?}; shift ;;
        --expect) EXPECTED=${2:?}; shift ;;
        --least) LEAST=${2:?}; shift ;;
        --port) PORT=${2:?}; shift ;;
        --root) ROOT=${2:?}; shift ;;
        *) usage ;;
    esac
    shift
done
[[ $SECONDS_COUNTED =~ ^[1-9][0-9]*$ && $LEAST =~ ^[0-9]+$ && $PORT =~ ^[0-9]+$ ]] || usage

SYS=$ROOT/sys
of() { { cat "$1"; } 2>/dev/null || true; }

# A line for each: kind, name, what it is, bytes in, bytes out. The specification counts port_*_data in words of 4 bytes.
read_counters() {
    local port place dev device number in out kind
    for port in "$SYS"/class/infiniband/*/ports/*; do
        [ -d "$port" ] || continue
        device=${port#"$SYS/class/infiniband/"} number=${port##*/} device=${device%%/*}
        in=$(of "$port/counters/port_rcv_data") out=$(of "$port/counters/port_xmit_data")
        if [ -z "$in" ] || [ -z "$out" ]; then echo "rdma $device/$number uncounted 0 0"; continue; fi
        echo "rdma $device/$number $(of "$port/link_layer") $((in * 4)) $((out * 4))"
    done
    for place in "$SYS"/class/net/*; do
        dev=${place##*/}
        if [ ! -e "$place/statistics/rx_bytes" ] || [ "$dev" = lo ]; then continue; fi
        case $(of "$place/type") in 1) kind=Ethernet ;; 32) kind=IPoIB ;; *) continue ;; esac
        echo "net $dev $kind $(of "$place/statistics/rx_bytes") $(of "$place/statistics/tx_bytes")"
    done
}

before=$(read_counters)
sleep "$SECONDS_COUNTED"
after=$(read_counters)

# Expected devices may be named with or without a port. What went away in between is not there.
awk -v seconds="$SECONDS_COUNTED" -v least="$LEAST" -v expected="$EXPECTED" '
    NR == FNR { in_before[$1 $2] = $4; out_before[$1 $2] = $5; next }
    FNR == 1 { printf "%-5s %-16s %-10s %10s %10s\n", "kind", "device", "link", "in MiB/s", "out MiB/s" }
    !($1 $2 in in_before) { next }
    {
        if ($3 == "uncounted") { printf "%-5s %-16s its driver counts no bytes\n", $1, $2; next }
        coming = ($4 - in_before[$1 $2]) / seconds / 1048576; going = ($5 - out_before[$1 $2]) / seconds / 1048576
        printf "%-5s %-16s %-10s %10.1f %10.1f\n", $1, $2, $3, coming, going
        name = $2; sub("/.*", "", name)
        if (coming >= least || going >= least) { carried[$2] = 1; carried[name] = 1 }
    }
    END {
        count = split(expected, wanted, ",")
        for (i = 1; i <= count; i++) if (!(wanted[i] in carried)) { printf "less than %d MiB/s: %s\n", least, wanted[i]; missing = 1 }
        exit missing
    }' <(echo "$before") <(echo "$after") || status=$?

if command -v ss >/dev/null; then
    # Connections of this host to workers, and of its worker to others; those between processes of this host are no network.
    ss -tnH state established "( sport = :$PORT or dport = :$PORT )" | awk '{ sub(/:[0-9]+$/, "", $3); count[$3]++ } END { for (one in count) printf "tcp   %-16s %d connections\n", one, count[one] }' | sort
fi
exit "${status:-0}"
