#!/usr/bin/env bash
#! Runs the fuzz targets of this crate with coverage, on stable Rust: our crates are built with the compiler's coverage
#! hooks for libFuzzer, everything else is what the release build made. No sanitizer: no target has unsafe code in reach
#! but the standard library's.
#
#   run.sh [--debug | --profile NAME] [--minutes N | --seconds N] [TARGET ...]
#
# Default: a minute each, all of them, as many at once as there are cores, beside the release build (--debug, --profile: beside
# another one). CI does the same on what CPU other stages leave.
#
# What a target breaks on is written to fuzz/artifacts/ and told by its name. New inputs go to the cache folder, not here:
# `run.sh --minutes 30`, then copy what is worth keeping into corpus/TARGET/.
set -euo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/..")
CACHE=${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}/fuzz
seconds=60 options=(--release)
while [[ ${1:-} = --* ]]; do
  case $1 in
    --debug) options=(); shift ;;
    --profile) options=(--profile "$2"); shift 2 ;;
    --minutes) seconds=$(($2 * 60)); shift 2 ;;
    --seconds) seconds=$2; shift 2 ;;
    *) sed -n 's/^#   //p' "$0" >&2; exit 2 ;;
  esac
done
targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <(sed -n 's/^    ("\([a-z]*\)", .*/\1/p' "$HERE/src/lib.rs")

# Only members of this workspace go through this wrapper, so dependencies are neither instrumented nor built again.
mkdir -p "$CACHE" "$HERE/artifacts"
cat >"$CACHE/rustc" <<'WRAPPER'
#!/bin/sh
# Hooks in crates that decode nothing cost compilation and show nothing. Half optimised: compiling what is left takes longer than
# what it would win in the seconds of a run; the dependencies, which are there already, are optimised. The compiler loads macros
# itself, and cannot load what needs libFuzzer.
case " $* " in
  *" --crate-type proc-macro "*) exec "$@" ;;
  *" --crate-name verbs3_ufs "* | *" --crate-name verbs3_client "*) exec "$@" -Copt-level=1 ;;
esac
exec "$@" -Copt-level=1 -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
  -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions=yes -Coverflow-checks=yes
WRAPPER
chmod +x "$CACHE/rustc"
cd "$ROOT"
# What is built is a test, by its dependencies (see Cargo.toml); where it lies is told by cargo alone.
binary=$(RUSTC_WORKSPACE_WRAPPER=$CACHE/rustc cargo test "${options[@]}" --locked --workspace --features verbs3-fuzz/fuzzer --test fuzzer --no-run \
  --message-format=json-render-diagnostics | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
[ -x "$binary" ] || { echo "fuzz: the fuzzer could not be built" >&2; exit 1; }

run() {
  local name=$1 log=$CACHE/$1.log
  mkdir -p "$CACHE/$name"
  if VERBS3_FUZZ=$name "$binary" -max_total_time="$seconds" -max_len=8192 -timeout=100 -rss_limit_mb=1024 -print_final_stats=1 \
    -artifact_prefix="$HERE/artifacts/$name-" "$CACHE/$name" "$HERE/corpus/$name" >"$log" 2>&1; then
    echo "fuzz: $name: $(sed -n 's/^stat::number_of_executed_units: //p' "$log") runs, $(grep -c '' < <(ls "$CACHE/$name")) new inputs"
  else
    echo "FAILED fuzz $name:"; grep -aE 'panicked|ERROR|SUMMARY|Test unit' -A2 "$log" | head -n 20; return 1
  fi
}
status=0 running=0
for name in "${targets[@]}"; do
  run "$name" &
  running=$((running + 1))
  if [ "$running" -ge "$(nproc)" ]; then wait -n || status=1; running=$((running - 1)); fi
done
while [ "$running" -gt 0 ]; do wait -n || status=1; running=$((running - 1)); done
exit "$status"
