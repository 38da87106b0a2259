#!/usr/bin/env bash
#! Runs the verbs cases over the fake provider: no device and no VM. A profile whose device would refuse today is not listed.
#!
#!   tests/fake-verbs/run.sh CONFORMANCE UNIT ACCEPTANCE WORK      the test binaries, and an empty folder
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CONFORMANCE=$1 UNIT=$2 ACCEPTANCE=$3 WORK=$4
"$HERE/build.sh" "$WORK/lib"
export LD_LIBRARY_PATH="$WORK/lib" CARGO_MANIFEST_DIR="$HERE/../../rdma"
# What the kernel says of the profile that is as soft-RoCE.
export FAKE_DEVICES="$WORK/devices"
mkdir -p "$FAKE_DEVICES/fake_replaying1"
echo rxe >"$FAKE_DEVICES/fake_replaying1/node_desc"
# Profiles (see fake_device.c): plain, narrow, short, late, stuck, strict; replaying, which has to do with windows alone; unsolicited.
# No connection can be made over confused (7), so it has a case in fake_devices, as scarce (3) does.
for profile in 0 1 2 4 5 6 8 9; do
    echo "fake verbs: profile $profile"
    VERBS3_TEST_WINDOWS=$((profile == 8)) VERBS3_TEST_TAGS=$((profile % 2)) VERBS3_TEST_POLL=$((profile % 3 == 2)) VERBS3_TEST_ADDRESS=127.0.$profile.1 timeout 300 "$CONFORMANCE" --ignored verbs --skip device_removal --skip path_mtu --test-threads=2
done
# A queue pair that ends gives its buffers back, also on a device that forgets completions.
for profile in 0 4; do
    VERBS3_TEST_ADDRESS=127.0.$profile.1 timeout 300 "$UNIT" --ignored verbs::tests::sharing --test-threads=1
done
# Peers that write where nothing was lent, and devices that say so by an event alone.
VERBS3_TEST_ADDRESS=127.0.0.1 timeout 300 "$UNIT" --ignored verbs::tests::hostile --test-threads=1
# Devices that fail, move, or refuse registrations. Each case names devices of its own.
timeout 300 "$UNIT" --ignored verbs::tests::fake_devices
# What an acceptance run measures and judges.
timeout 300 "$ACCEPTANCE" --ignored
