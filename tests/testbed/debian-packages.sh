# shellcheck shell=bash
# Sourced: unpacks packages of Debian without installing them, for programs that tests start by themselves.

# unpack_packages NAME PROGRAM PACKAGE...: into the cache's folder NAME, unless PROGRAM is there already; prints the folder.
unpack_packages() {
    local folder="${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}/$1" program=$2 package as_root=(); shift 2
    if [ ! -x "$folder/$program" ]; then
        rm -rf "$folder.new"; mkdir -p "$folder.new"
        [ "$(id -u)" -eq 0 ] || as_root=(sudo)
        # A machine that is fresh, or whose lists are old, knows no such file: then once more with new lists.
        (cd "$folder.new" && { apt-get download -q "$@" || { "${as_root[@]}" apt-get update -q && apt-get download -q "$@"; }; }) >&2
        for package in "$folder.new"/*.deb; do dpkg -x "$package" "$folder.new"; done
        { "$folder.new/$program" --version || "$folder.new/$program" version; } >&2
        rm -rf "$folder"; mv "$folder.new" "$folder"
    fi
    echo "$folder"
}
