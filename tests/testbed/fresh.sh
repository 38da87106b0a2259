#!/usr/bin/env bash
#! Owns the trial of the suite on a machine that has never built it: a clean clone of HEAD, whose home, cargo home, caches, temporary
#! and target folders are its own and empty. Keeps nothing of the caller's environment but PATH and the way to registries.
#! Knows no stage. Debian's packages are the machine's: the suite installs what it misses, and nothing removes what is there.
#
#   fresh.sh [STAGE ...]     as ./verbs3-test --fresh [STAGE ...]
set -euo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/../..")

say() { echo "fresh: $*" >&2; }

# Proxies, mirrors and certificates. What cargo, pip or npm are told about how to build or what to install is left out.
is_way_to_registries() {
  case $1 in
    [Hh][Tt][Tt][Pp]_[Pp][Rr][Oo][Xx][Yy] | [Hh][Tt][Tt][Pp][Ss]_[Pp][Rr][Oo][Xx][Yy]) ;;
    [Aa][Ll][Ll]_[Pp][Rr][Oo][Xx][Yy] | [Nn][Oo]_[Pp][Rr][Oo][Xx][Yy]) ;;
    CARGO_REGISTR*_* | CARGO_SOURCE_* | CARGO_HTTP_* | CARGO_NET_* | RUSTUP_*) ;;
    PIP_INDEX_URL | PIP_EXTRA_INDEX_URL | PIP_FIND_LINKS | PIP_TRUSTED_HOST | PIP_PROXY | PIP_CERT | PIP_CONFIG_FILE) ;;
    PIP_DEFAULT_TIMEOUT | PIP_RETRIES) ;;
    npm_config_registry | npm_config_*proxy | npm_config_cafile | NPM_CONFIG_REGISTRY | NPM_CONFIG_*PROXY | NPM_CONFIG_CAFILE) ;;
    SSL_CERT_FILE | SSL_CERT_DIR | *_CA_BUNDLE | NODE_EXTRA_CA_CERTS | GIT_SSL_*) ;;
    *) return 1 ;;
  esac
}

# copy_settings HOME: files that say where registries are, from the caller's home.
copy_settings() {
  local cargo=${CARGO_HOME:-$HOME/.cargo} file
  for file in config.toml config; do
    if [ -e "$cargo/$file" ]; then cp "$cargo/$file" "$1/.cargo/"; fi
  done
  for file in .npmrc .gitconfig .pip/pip.conf .config/pip/pip.conf; do
    if [ -e "$HOME/$file" ]; then install -D -m 600 "$HOME/$file" "$1/$file"; fi
  done
}

command -v git >/dev/null || { say "git is missing: a clean clone is made by it"; exit 1; }
[ -z "$(git -C "$ROOT" status --porcelain)" ] || say "what is not committed is not tried"

# A short name: sockets are made below it, and their paths have 107 bytes.
folder=$(mktemp -d "${TMPDIR:-/tmp}/vf.XXXX")
suite=
trap 'rm -rf --one-file-system "$folder"' EXIT
trap 'if [ -n "$suite" ]; then kill -TERM "$suite" 2>/dev/null; wait "$suite"; fi; exit 143' INT TERM
mkdir -p "$folder"/{home/.cargo,cache,tmp}
copy_settings "$folder/home"
git clone --quiet --depth 1 "file://$ROOT" "$folder/source"

kept=("PATH=$PATH" "HOME=$folder/home" "CARGO_HOME=$folder/home/.cargo" "CARGO_TARGET_DIR=$folder/target"
  "VERBS3_CACHE_DIR=$folder/cache" "TMPDIR=$folder/tmp")
# The compiler is the machine's, too: rustup looks for it in the caller's home.
if [ -d "$HOME/.rustup" ]; then kept+=("RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup}"); fi
while IFS= read -r -d '' variable; do
  if is_way_to_registries "${variable%%=*}"; then kept+=("$variable"); fi
done < <(env -0)

say "$(git -C "$folder/source" log -1 --format='%h %s'), in $folder"
cd "$folder/source"
env -i "${kept[@]}" ./verbs3-test "$@" &
suite=$!
status=0
wait "$suite" || status=$?
exit "$status"
