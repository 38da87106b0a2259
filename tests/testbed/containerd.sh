#!/usr/bin/env bash
# Unpacks Debian's containerd, runc and CNI plugins, without their services, for kubelets of tests; prints the folder, whose usr/
# has them. runc is linked with libseccomp2, which the machine itself has.
set -euo pipefail
packages=(containerd runc containernetworking-plugins)
folder="${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}/containerd"
if [ ! -x "$folder/usr/bin/containerd" ]; then
    rm -rf "$folder.new"; mkdir -p "$folder.new"
    as_root=(); [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    # A machine that is fresh, or whose lists are old, knows no such file: then once more with new lists.
    (cd "$folder.new" && { apt-get download -q "${packages[@]}" || { "${as_root[@]}" apt-get update -q && apt-get download -q "${packages[@]}"; }; }) >&2
    for package in "$folder.new"/*.deb; do dpkg -x "$package" "$folder.new"; done
    "$folder.new/usr/sbin/runc" --version >&2
    rm -rf "$folder"; mv "$folder.new" "$folder"
fi
echo "$folder"
