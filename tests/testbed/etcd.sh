#!/usr/bin/env bash
# Unpacks Debian's etcd-server, without its service, for tests that start it by themselves; prints the path of the program.
set -euo pipefail
folder="${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}/etcd"
program="$folder/usr/bin/etcd"
if [ ! -x "$program" ]; then
    rm -rf "$folder.new"; mkdir -p "$folder.new"
    as_root=(); [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    # A machine that is fresh, or whose lists are old, knows no such file: then once more with new lists.
    (cd "$folder.new" && { apt-get download -q etcd-server || { "${as_root[@]}" apt-get update -q && apt-get download -q etcd-server; }; }) >&2
    dpkg -x "$folder.new"/etcd-server_*.deb "$folder.new"
    rm -rf "$folder"; mv "$folder.new" "$folder"
fi
echo "$program"
