#!/usr/bin/env bash
#! Makes the fake verbs provider: FOLDER/libibverbs.so.1 and FOLDER/librdmacm.so.1, which a program finds by LD_LIBRARY_PATH.
#!
#!   tests/fake-verbs/build.sh FOLDER [FILE OR FLAG FOR cc ...]
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
TO=${1:?the folder to make it in}
shift
# The headers come with the bindings, so that the fake and the bindings agree on every struct. Of this platform alone: a build
# never downloads the packages of others.
HOST=$(rustc -vV | sed -n 's/^host: //p')
HEADERS=$(cargo metadata --format-version 1 --locked --offline --filter-platform "$HOST" --manifest-path "$HERE/../../Cargo.toml" |
    python3 -c 'import json, os, sys
paths = [p["manifest_path"] for p in json.load(sys.stdin)["packages"] if p["name"] == "rdma-mummy-sys"]
print(os.path.dirname(paths[0]) + "/rdma-core-mummy/include")')
mkdir -p "$TO"
cc -std=gnu11 -O1 -g -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -D_GNU_SOURCE -isystem "$HEADERS" \
    -I "$HERE" "$HERE"/fake_*.c "$@" -lpthread -Wl,-z,defs -o "$TO/libfakeverbs.so"
# One file under both names: the loader opens it once, so both halves share their state.
ln -sf libfakeverbs.so "$TO/libibverbs.so.1"
ln -sf libfakeverbs.so "$TO/librdmacm.so.1"
