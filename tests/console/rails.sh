#!/usr/bin/env bash
#! Makes the fake verbs provider with cables to pull (fake_rails.c).
#!
#   rails.sh FOLDER
set -euo pipefail
HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
exec "$HERE/../fake-verbs/build.sh" "${1:?the folder to make it in}" "$HERE/fake_rails.c" -Wl,--wrap=device_at
