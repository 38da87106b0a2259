#!/usr/bin/env bash
# Unpacks Debian's prometheus, without its service, for tests that start it by themselves; prints the folder of prometheus and promtool.
set -euo pipefail
folder="${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}/prometheus"
if [ ! -x "$folder/usr/bin/promtool" ]; then
    rm -rf "$folder.new"; mkdir -p "$folder.new"
    as_root=(); [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    # A machine that is fresh, or whose lists are old, knows no such file: then once more with new lists.
    (cd "$folder.new" && { apt-get download -q prometheus || { "${as_root[@]}" apt-get update -q && apt-get download -q prometheus; }; }) >&2
    dpkg -x "$folder.new"/prometheus_*.deb "$folder.new"
    rm -rf "$folder"; mv "$folder.new" "$folder"
fi
echo "$folder/usr/bin"
