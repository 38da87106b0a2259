#!/usr/bin/env bash
#! Owns a real S3 store for tests: Ceph RGW, one mon, one OSD on a file, one radosgw, all on 127.0.0.1. Version 18.2, or 20.2 with
#! VERBS3_RGW=20.2 (by hand: Debian sid, where it comes from, moves).
#! Deliberately not here: what the tests ask of it (tests/s3suite), and anything that survives `stop` except DIR itself.
#
# Ceph comes from Debian (trixie or sid), in a chroot under the cache folder; every cluster runs in a mount namespace of its
# own with the chroot read-only, so that several clusters share one chroot, nothing is left mounted, and nothing of
# the machine's own packages changes (except mmdebstrap, installed by apt-get where it is missing).
set -euo pipefail

SELF=$(readlink -f "${BASH_SOURCE[0]}")
CACHE=${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}
case ${VERBS3_RGW:-18.2} in
  18.2) SUITE=trixie ;;
  20.2) SUITE=sid ;;
  *) echo "rgw: VERBS3_RGW is 18.2 or 20.2, not '$VERBS3_RGW'" >&2; exit 2 ;;
esac
PACKAGES=ceph-mon,ceph-osd,radosgw,ceph-common
# Raise when the recipe of the chroot changes, so that cached ones are not taken for it.
RECIPE=1
CHROOT=$CACHE/rgw-$SUITE-$RECIPE
CHROOT_LOCK=$CACHE/rgw-install.lock
# Names that virtual-host style requests may put in front of: BUCKET.s3.rgw.test.
DNS_NAME=s3.rgw.test

# shellcheck source=tests/testbed/mirror.sh
. "$(dirname "$SELF")/mirror.sh"

say() { echo "rgw: $*" >&2; }
die() { say "$*"; exit 1; }

usage() {
  cat <<USAGE
usage: rgw.sh install                  make the chroot (about a minute, 0.5 GB, once; a cut-off run is simply run again)
       rgw.sh start [--keep] DIR PORT  new cluster in DIR, S3 on 127.0.0.1:PORT; --keep goes on with DIR's data
       rgw.sh stop DIR                 end every process of the cluster in DIR; the data stays until the next start
DIR/env then holds ENDPOINT, ACCESS_KEY, SECRET_KEY, ACCESS_KEY_2, SECRET_KEY_2, VHOST_DOMAIN; DIR/pids one
"pid start-time name" line for each process; DIR/log/ what they wrote.
USAGE
}

# ---- install -------------------------------------------------------------------------------------------------------

install_mmdebstrap() {
  if command -v mmdebstrap >/dev/null; then return; fi
  say "installing mmdebstrap with apt-get"
  apt-get install -y -qq --no-install-recommends mmdebstrap >&2 ||
    { apt-get update -qq >&2 && apt-get install -y -qq --no-install-recommends mmdebstrap >&2; } ||
    die "mmdebstrap could not be installed: install it by hand and run this again"
}

install() {
  [ "$(id -u)" = 0 ] || die "must run as root: it makes a chroot and mount namespaces"
  mkdir -p "$CACHE"
  # Two installs at once would build into one folder.
  exec 8>"$CHROOT_LOCK"; flock 8
  if [ -e "$CHROOT/.complete" ]; then say "chroot present: $CHROOT ($(cat "$CHROOT/.complete"))"; exec 8>&-; return; fi
  install_mmdebstrap
  local url options
  url=$(mirror)
  mapfile -t options < <(mirror_options)
  # A mirror of what moves may be behind.
  if [ "$SUITE" = sid ]; then options+=(--aptopt='Acquire::Check-Valid-Until "false"'); fi
  say "making the chroot of $SUITE with $PACKAGES from $url in $CHROOT"
  rm -rf --one-file-system "$CHROOT.partial" "$CHROOT"
  mmdebstrap --mode=root --variant=minbase --include="$PACKAGES" --quiet \
    --aptopt='Acquire::Retries "5"' --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    "${options[@]}" "$SUITE" "$CHROOT.partial" "deb $url $SUITE main" >&2 8>&-
  mkdir -p "$CHROOT.partial/cluster"
  chroot "$CHROOT.partial" radosgw --version 2>/dev/null 8>&- >"$CHROOT.partial/.complete" || die "radosgw does not start in the new chroot"
  mv "$CHROOT.partial" "$CHROOT"
  say "done: $(cat "$CHROOT/.complete"), $(du -sh "$CHROOT" | cut -f1)"
  exec 8>&-
}

# ---- start ---------------------------------------------------------------------------------------------------------

# A free port on 127.0.0.1 for the mon, the same on a restart (the monmap names it).
mon_port() {
  local p
  for p in $(seq "$((20000 + ($1 * 7) % 10000))" "$((20000 + ($1 * 7) % 10000 + 200))"); do
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null; then echo "$p"; return; fi
  done
  die "no free port for the mon near $p"
}

write_conf() { # DIR PORT MON_PORT FSID
  cat >"$1/ceph.conf" <<CONF
[global]
fsid = $4
mon_host = v2:127.0.0.1:$3
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_ipv6 = false
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
# Without crc for the mon client too, radosgw hangs with -13: secure mode has no key to agree on under "none".
ms_mon_client_mode = crc
ms_mon_service_mode = crc
ms_mon_cluster_mode = crc
ms_cluster_mode = crc
ms_service_mode = crc
ms_client_mode = crc
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pg_autoscale_mode = off
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 1000
osd_crush_chooseleaf_type = 0
# A data folder on a nearly full disk must not stop a test store.
mon_data_avail_crit = 1
mon_data_avail_warn = 2
run_dir = /run/ceph
admin_socket = /run/ceph/\$name.\$pid.asok
log_file = /cluster/log/\$name.log
log_to_stderr = false
err_to_stderr = true
debug_rgw = 1/1
crash_dir = /cluster/crash
keyring = /cluster/none.keyring
[mon]
mon_data = /cluster/mon
mon_cluster_log_file = /cluster/log/cluster.log
[osd]
osd_data = /cluster/osd
osd_objectstore = bluestore
# Sparse: takes what is written. Not memstore, which does not survive a restart.
bluestore_block_size = 34359738368
osd_memory_target = 939524096
# One shard and few threads: the test machines have two cores.
osd_op_num_shards = 2
osd_scrub_begin_hour = 0
osd_max_scrubs = 0
[client]
rgw_data = /cluster/rgw
# tcp_nodelay: small GETs take 44 ms without.
rgw_frontends = beast endpoint=127.0.0.1:$2 tcp_nodelay=1
rgw_dns_name = $DNS_NAME
# true (the default) turns every bad key or signature into AccessDenied.
rgw_s3_auth_use_sts = false
rgw_enable_usage_log = false
rgw_enable_ops_log = false
rgw_thread_pool_size = 64
CONF
}

# Free text would go on a shell line: these are the two users, with keys of the usual shape.
write_env() { # DIR PORT
  local key2 secret2 key secret
  key=$(token 20 'A-Z0-9'); secret=$(token 40 'A-Za-z0-9'); key2=$(token 20 'A-Z0-9'); secret2=$(token 40 'A-Za-z0-9')
  (umask 077; cat >"$1/env.new" <<ENV
ENDPOINT=http://127.0.0.1:$2
ACCESS_KEY=$key
SECRET_KEY=$secret
ACCESS_KEY_2=$key2
SECRET_KEY_2=$secret2
VHOST_DOMAIN=$DNS_NAME
ENV
  )
}

token() { # LENGTH SET
  LC_ALL=C tr -dc "$2" </dev/urandom | head -c "$1" || true
}

start() {
  local keep=0
  if [ "${1:-}" = --keep ]; then keep=1; shift; fi
  [ $# = 2 ] || { usage >&2; exit 2; }
  local dir=$1 port=$2
  [[ $port =~ ^[0-9]+$ ]] || die "PORT must be a number, got '$port'"
  [ "$(id -u)" = 0 ] || die "must run as root: it makes a mount namespace"
  [ -e "$CHROOT/.complete" ] || die "no chroot in $CHROOT: run '$SELF install' first"
  mkdir -p "$dir"; dir=$(readlink -f "$dir")
  if [ -n "$(living "$dir")" ]; then die "a cluster runs in $dir already: '$SELF stop $dir' ends it"; fi
  if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then die "port $port is taken: name another"; fi
  if [ $keep = 1 ] && [ -e "$dir/made" ]; then
    say "going on with the cluster in $dir"
    sed -i "s,endpoint=127.0.0.1:[0-9]*,endpoint=127.0.0.1:$port," "$dir/ceph.conf"
    sed "s,^ENDPOINT=.*,ENDPOINT=http://127.0.0.1:$port," "$dir/env" >"$dir/env.new"
  else
    (cd "$dir" && rm -rf --one-file-system -- made env env.new pids ceph.conf mon osd rgw log crash)
    local fsid; fsid=$(cat /proc/sys/kernel/random/uuid)
    write_conf "$dir" "$port" "$(mon_port "$port")" "$fsid"
    write_env "$dir" "$port"
  fi
  mkdir -p "$dir"/{mon,osd,rgw,log,crash}; : >"$dir/pids"; rm -f "$dir/env"
  trap 'say "start failed; the last lines of the logs:"; tail -n 5 "$dir"/log/*.log "$dir"/log/*.out >&2 || true; stop "$dir"' ERR
  unshare --mount --propagation private -- "$SELF" inside "$dir" </dev/null >"$dir/log/start.out" 2>&1 || false
  wait_http "$dir" "$port" || false
  trap - ERR
  touch "$dir/made"; mv "$dir/env.new" "$dir/env"
  say "S3 on http://127.0.0.1:$port, keys in $dir/env"
}

# Runs in the cluster's own mount namespace: lays the chroot out read-only, then the daemons.
inside() {
  local dir=$1 m
  set -x
  mount --bind "$CHROOT" "$CHROOT"
  for m in proc sys dev; do mount --rbind "/$m" "$CHROOT/$m"; done
  for m in run tmp; do mount -t tmpfs tmpfs "$CHROOT/$m"; done
  mount --bind "$dir" "$CHROOT/cluster"
  mount -o remount,bind,ro "$CHROOT"
  mkdir -p "$CHROOT/run/ceph"
  cd "$CHROOT"
  # Given by file and read by every tool: nothing of the machine's own /etc/ceph is seen.
  export CEPH_CONF=/cluster/ceph.conf
  set +x
  # shellcheck disable=SC1091 # written by write_env a moment ago
  . "$dir/env.new"
  set -x
  if [ ! -e "$dir/made" ]; then make_mon "$dir"; fi
  daemon "$dir" ceph-mon -i a
  if [ ! -e "$dir/made" ]; then make_osd "$dir"; fi
  daemon "$dir" ceph-osd -i 0
  if [ ! -e "$dir/made" ]; then
    # The first radosgw-admin makes zone and pools: radosgw beside it would race with that.
    user "$dir" first "$ACCESS_KEY" "$SECRET_KEY"
    daemon "$dir" radosgw -n client.rgw
    user "$dir" second "$ACCESS_KEY_2" "$SECRET_KEY_2"
  else
    daemon "$dir" radosgw -n client.rgw
  fi
}

in_chroot() { chroot "$CHROOT" timeout 90 "$@"; }

make_mon() {
  local addr fsid
  addr=$(sed -n 's/^mon_host = //p' "$1/ceph.conf"); fsid=$(sed -n 's/^fsid = //p' "$1/ceph.conf")
  in_chroot monmaptool --create --clobber --fsid "$fsid" --addv a "[$addr]" /cluster/monmap
  in_chroot ceph-mon --mkfs -i a --monmap /cluster/monmap -c /cluster/ceph.conf
}

make_osd() {
  local uuid; uuid=$(cat /proc/sys/kernel/random/uuid)
  in_chroot ceph -c /cluster/ceph.conf osd new "$uuid"
  in_chroot ceph-osd -c /cluster/ceph.conf -i 0 --mkfs --osd-uuid "$uuid"
}

user() { # DIR NAME KEY SECRET
  set +x # keys stay out of the log
  in_chroot radosgw-admin -c /cluster/ceph.conf user create --uid="$2" --display-name="$2" \
    --access-key="$3" --secret="$4" --email="$2@example.invalid" >"$1/log/user-$2.out" 2>&1
}

# A daemon in a session of its own, noted with its start time: a pid alone may be someone else's by the time of stop.
daemon() { # DIR PROGRAM ARGS…
  local dir=$1 program=$2; shift 2
  setsid chroot "$CHROOT" "$program" -c /cluster/ceph.conf -f "$@" </dev/null >"$dir/log/$program.out" 2>&1 &
  local pid=$!
  echo "$pid $(start_time "$pid") $program" >>"$dir/pids"
}

start_time() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

wait_http() { # DIR PORT
  local _
  for _ in $(seq 600); do
    if [ "$(living "$1" | wc -l)" != 3 ]; then say "a daemon died: $(living "$1" | tr '\n' ';') are left"; return 1; fi
    if curl -s --noproxy '*' -o "$1/log/ready.xml" "http://127.0.0.1:$2/"; then return 0; fi
    sleep 0.1
  done
  say "no answer on port $2 after 60 s"; return 1
}

# ---- stop ----------------------------------------------------------------------------------------------------------

# The lines of DIR/pids whose process still is the one that was started.
living() {
  local pid born name
  [ -e "$1/pids" ] || return 0
  while read -r pid born name; do
    if [ "$(start_time "$pid")" = "$born" ] && [ "$(sed 's/.*) //' "/proc/$pid/stat" | cut -c1)" != Z ]; then echo "$pid $born $name"; fi
  done <"$1/pids"
}

stop() {
  local dir=${1:?stop needs DIR} pid born name _
  [ -d "$dir" ] || die "no folder $dir"
  # radosgw first: it waits for the OSD when that is gone.
  for name in radosgw ceph-osd ceph-mon; do
    while read -r pid born _; do
      kill "$pid" 2>/dev/null || true
      for _ in $(seq 50); do
        [ "$(start_time "$pid")" = "$born" ] || break
        sleep 0.1
      done
      if [ "$(start_time "$pid")" = "$born" ]; then kill -9 "$pid" 2>/dev/null || true; fi
    done < <(living "$dir" | grep " $name\$" || true)
  done
  for _ in $(seq 50); do [ -n "$(living "$dir")" ] || break; sleep 0.1; done
  [ -z "$(living "$dir")" ] || die "still alive in $dir: $(living "$dir" | tr '\n' ';')"
  # The mounts lived in the cluster's namespace and went with its last process.
  : >"$dir/pids"
  say "stopped $dir"
}

case ${1:-} in
  install) install ;;
  start) shift; start "$@" ;;
  stop) shift; stop "$@" ;;
  inside) shift; inside "$@" ;;
  *) usage >&2; exit 2 ;;
esac
