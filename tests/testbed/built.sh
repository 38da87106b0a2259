#!/usr/bin/env bash
#! Owns where the shell's tests find what was built: verbs3-test says it by VERBS3_PROFILE and VERBS3_BUILT (see built.py);
#! by hand it is the release build, made where it is missing. And how they say what they are called with. Sourced, with ROOT set.
#! Knows no test.

VERBS3_PROFILE=${VERBS3_PROFILE:-release}

# Prints how the script that sources this is called, as its head says, and ends it.
usage() { sed -n 's/^#   //p' "$0" >&2; exit 2; }

# Where Cargo puts the binary, whatever the environment says about the target folder.
binary() {
  local path=${CARGO_TARGET_DIR:-$ROOT/target}/$VERBS3_PROFILE/verbs3
  [ -x "$path" ] || { echo "$path is missing: cargo build --profile $VERBS3_PROFILE --workspace" >&2; return 1; }
  echo "$path"
}

# test_binary NAME: the binary of the tests called so. Cargo names them with a hash: it is asked, rather than guessed after.
test_binary() {
  local built=${VERBS3_BUILT:-} status=0
  if [ ! -s "$built" ]; then
    built=$(mktemp)
    (cd "$ROOT" && cargo test --profile "$VERBS3_PROFILE" --locked --workspace --no-run --message-format=json-render-diagnostics) >"$built" || { rm "$built"; return 1; }
  fi
  "$ROOT/tests/testbed/built.py" path "$built" "$1" || status=$?
  [ "$built" = "${VERBS3_BUILT:-}" ] || rm "$built"
  return "$status"
}
