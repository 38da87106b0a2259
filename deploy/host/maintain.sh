#!/usr/bin/env bash
# Takes a node out of the cluster for work on it and puts it back; collects what a fault leaves behind; resets a NIC. As root, on a host
# with the units of deploy/systemd.
#
#   maintain.sh begin              drains the worker, then stops worker and gateway; refuses while the cluster is not well
#   maintain.sh end                looks at the host, starts both, and waits until they serve
#   maintain.sh collect FILE       a .tar.gz of doctor, metrics, logs, and what kernel and NICs say. It holds no key, but names of buckets and hosts
#   maintain.sh reset DEVICE       loads the driver of an RDMA device anew, such as mlx5_0, and waits until its port and its rails are back
#
#   --anyway                       begin: whatever the cluster says; end: whatever the host's checks say; reset: though it is the only port
#   --wait N                       seconds that a thing may take to be back (end, reset): 120 unless said
#   --config FILE                  /etc/verbs3/worker.toml unless said
#   --root DIR                     another tree in place of /, for tests
set -euo pipefail

ROOT='' CONFIG=/etc/verbs3/worker.toml ANYWAY=0 WAIT=120 WORDS=()
usage() { sed -n 's/^# \{0,1\}//p' "$0" | sed -n 4,12p >&2; exit 2; }
while [ $# -gt 0 ]; do
    case $1 in
        --anyway) ANYWAY=1 ;;
        --wait) WAIT=${2:?}; shift ;;
        --config) CONFIG=${2:?}; shift ;;
        --root) ROOT=${2:?}; shift ;;
        -*) usage ;;
        *) WORDS+=("$1") ;;
    esac
    shift
done
[[ $WAIT =~ ^[1-9][0-9]*$ ]] || usage

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# Where the units take them from.
export VERBS3_CLUSTER__SECRET_FILE=${VERBS3_CLUSTER__SECRET_FILE:-$ROOT/etc/verbs3/cluster-secret}
while IFS='=' read -r name value; do
    if [[ $name =~ ^VERBS3_[A-Z0-9_]+$ && ! -v $name ]]; then
        value=${value#[\"\']}
        export "$name=${value%[\"\']}"
    fi
done < <(cat "$ROOT"/etc/verbs3/{worker,cluster}.env 2>/dev/null || true)
WORKER_ADMIN=${WORKER_ADMIN:-http://127.0.0.1:9401} GATEWAY_ADMIN=${GATEWAY_ADMIN:-http://127.0.0.1:9001}

say() { echo "maintain: $*"; }
die() { echo "maintain: $*" >&2; exit 1; }
has_unit() { systemctl is-enabled --quiet "verbs3@$1"; }
worker_id() {
    [ -n "${VERBS3_WORKER__ID:-}" ] || die "this worker's id is not known: set VERBS3_WORKER__ID"
    echo "$VERBS3_WORKER__ID"
}

# until_true WHAT COMMAND...: once a second.
until_true() {
    local what=$1 left=$WAIT; shift
    until "$@"; do
        left=$((left - 1))
        [ "$left" -gt 0 ] || die "$what: not within $WAIT s"
        sleep 1
    done
    say "$what: yes"
}
answers() { curl -fsS -o /dev/null --max-time 5 "$1/readyz" 2>/dev/null; }

begin() {
    local id status=0
    id=$(worker_id)
    verbs3 status --config "$CONFIG" || status=$?
    [ "$status" = 0 ] || [ "$ANYWAY" = 1 ] || die "the cluster is not well (verbs3 status: $status): mend that first, or say --anyway"
    if has_unit worker; then
        say "drains worker $id"
        verbs3 worker drain "$id" --wait --config "$CONFIG"
        systemctl stop verbs3@worker
    fi
    if has_unit gateway; then systemctl stop verbs3@gateway; fi
    say "worker and gateway are stopped; maintain.sh end puts them back. A reboot starts them, too"
}

# checked STATUS WHAT COMMAND...: a look at the host; an exit status above STATUS keeps the node out.
checked() {
    local most=$1 what=$2 status=0; shift 2
    "$@" || status=$?
    [ "$status" -le "$most" ] || [ "$ANYWAY" = 1 ] || die "$what is not content: mend that, or say --anyway"
}

end() {
    local id
    id=$(worker_id)
    checked 0 tune.sh "$HERE/tune.sh" --check
    checked 0 hardware.sh "$HERE/hardware.sh"
    # 1: it works, and could work better.
    checked 1 doctor verbs3 doctor --config "$CONFIG" --role worker
    if has_unit worker; then
        systemctl start verbs3@worker
        until_true "worker $id serves" answers "$WORKER_ADMIN"
        # Where the drain was left in the middle, it would stay without slots.
        verbs3 worker undrain "$id" --config "$CONFIG" || say "undrain was refused: see verbs3 status"
    fi
    if has_unit gateway; then
        systemctl start verbs3@gateway
        until_true "the gateway serves" answers "$GATEWAY_ADMIN"
    fi
    verbs3 status --config "$CONFIG" || say "the cluster has something to say: above"
}

# keep NAME COMMAND...: its output, and why there is none.
keep() {
    local name=$1; shift
    { timeout 60 "$@" || echo "[exit status $?: $*]"; } >"$folder/$name" 2>&1 </dev/null
}

collect() {
    local file=$1 work folder port
    work=$(mktemp -d); folder=$work/verbs3-$(uname -n)
    mkdir "$folder"
    keep doctor.json verbs3 doctor --json --config "$CONFIG" --role worker
    keep status.json verbs3 status --json --config "$CONFIG"
    keep version verbs3 version
    keep metrics-worker curl -sS --max-time 30 "$WORKER_ADMIN/metrics"
    keep metrics-gateway curl -sS --max-time 30 "$GATEWAY_ADMIN/metrics"
    keep journal journalctl -u 'verbs3@*' --since -1h --no-pager
    keep kernel journalctl -k --since -1h --no-pager
    for port in link 'statistic show' 'resource show qp' 'resource show cq' 'resource show mr' 'resource show cm_id' system; do
        # shellcheck disable=SC2086 # words of one command
        keep "rdma-${port// /-}" rdma $port
    done
    keep devlink devlink dev info
    keep health devlink health
    keep addresses ip -s address
    keep routes ip route show table all
    keep sockets ss -tnpi
    keep hardware "$HERE/hardware.sh"
    keep tune "$HERE/tune.sh" --check
    tar -C "$work" -czf "$file" "${folder##*/}"
    rm -rf "$work"
    say "kept in $file"
}

port_is_up() { grep -q ACTIVE "$ROOT/sys/class/infiniband/$1"/ports/*/state 2>/dev/null; }
# Every rail of verbs.rails that was there before is open again.
rails_are_back() { [ "$(open_rails)" -ge "$1" ]; }
open_rails() { curl -fsS --max-time 5 "$WORKER_ADMIN/metrics" 2>/dev/null | awk '/^verbs3_verbs_rail_up/ { open += $NF } END { print open + 0 }'; }

reset() {
    local device=$1 place address rails others=0 one
    place=$ROOT/sys/class/infiniband/$device
    [ -e "$place/device" ] || die "there is no RDMA device $device"
    address=$(basename "$(readlink -f "$place/device")")
    for one in "$ROOT"/sys/class/infiniband/*; do
        if [ "$one" != "$place" ] && port_is_up "${one##*/}"; then others=$((others + 1)); fi
    done
    [ "$others" -gt 0 ] || [ "$ANYWAY" = 1 ] || die "$device is the only port that is up: data would go over tcp meanwhile; say --anyway, or drain first (begin)"
    rails=$(open_rails)
    say "loads the driver of $device (pci/$address) anew; $rails rails are open, $others other ports are up"
    devlink dev reload "pci/$address"
    until_true "the port of $device is active" port_is_up "$device"
    until_true "$rails rails are open" rails_are_back "$rails"
}

case "${WORDS[0]:-} ${#WORDS[@]}" in
    'begin 1') begin ;;
    'end 1') end ;;
    'collect 2') collect "${WORDS[1]}" ;;
    'reset 2') reset "${WORDS[1]}" ;;
    *) usage ;;
esac
