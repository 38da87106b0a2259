//! Why a test fails, told once more behind the logs of its processes, where whoever reads the end
//! of a long output finds it.

use std::cell::RefCell;
use std::sync::Once;
use std::time::Duration;

thread_local! {
    static REASON: RefCell<String> = const { RefCell::new(String::new()) };
}

/// What processes still have to write when a test fails: of the request that it failed for.
const LOGS_WRITTEN: Duration = Duration::from_millis(300);

/// Keeps what threads panic with, from now on.
pub(crate) fn remember_reasons() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            REASON.with_borrow_mut(|reason| *reason = panic.to_string());
            before(panic);
        }));
    });
}

/// Waits for the last lines of the logs, if the test fails. Returns whether it does.
pub(crate) fn await_logs() -> bool {
    let fails = std::thread::panicking();
    if fails {
        std::thread::sleep(LOGS_WRITTEN);
    }
    fails
}

pub(crate) fn tell_reason_again() {
    REASON.with_borrow(|reason| eprintln!("--- the reason, once more: {reason}"));
}
