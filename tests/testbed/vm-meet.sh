#!/usr/bin/env bash
#! Owns how the two hosts of `vm.sh pair` wait for each other: files in the folder that both see. Sourced inside the
#! guests. In a lone VM it works as well, between two processes. Names are used once: a signal stays.

MEET=${VM_COMMON:-$VM_SHARE}

# meet_signal NAME [TEXT]: whoever awaits NAME goes on, and reads TEXT.
meet_signal() {
  printf '%s\n' "${2:-}" >"$MEET/.signal-$1.$$"
  mv "$MEET/.signal-$1.$$" "$MEET/signal-$1"
}

# meet_await NAME [SECONDS]: prints the signal's text; 1 if it does not come, default 60 s.
meet_await() {
  local deadline=$((SECONDS + ${2:-60}))
  while [ ! -e "$MEET/signal-$1" ]; do
    [ $SECONDS -lt $deadline ] || { echo "$VM_SIDE: no signal '$1' in ${2:-60} s" >&2; return 1; }
    sleep 0.2
  done
  cat "$MEET/signal-$1"
}
