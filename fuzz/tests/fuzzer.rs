//! The fuzzer: libFuzzer over the target that VERBS3_FUZZ names. Built and called by `run.sh`.
#![no_main]

use std::sync::OnceLock;

static TARGET: OnceLock<verbs3_fuzz::Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("VERBS3_FUZZ").unwrap_or_default();
        verbs3_fuzz::target(&name)
            .unwrap_or_else(|| panic!("VERBS3_FUZZ={name} is no target: see verbs3_fuzz::TARGETS"))
    });
    target(bytes);
});
