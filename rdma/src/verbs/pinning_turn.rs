//! Owns whose turn it is to keep half of an arena pinned.
//!
//! Rails of a process share the bound on locked memory. Where it does not suffice for all, each
//! would keep a part that another one needs to be whole, and none would ever open. So one of them
//! keeps what it has pinned until it is whole, and the others give theirs back.

use std::sync::atomic::{AtomicBool, Ordering};

/// The turns of one process.
pub(super) static PINNING_TURNS: PinningTurns = PinningTurns::new();

/// Gives one turn at a time.
pub(super) struct PinningTurns(AtomicBool);

/// A turn; dropping it gives it back.
pub(super) struct PinningTurn(&'static PinningTurns);

impl PinningTurns {
    const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Takes the turn. `None`: another rail has it.
    pub(super) fn try_take(&'static self) -> Option<PinningTurn> {
        (!self.0.swap(true, Ordering::AcqRel)).then_some(PinningTurn(self))
    }
}

impl Drop for PinningTurn {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rail_at_a_time_keeps_a_part() {
        static TURNS: PinningTurns = PinningTurns::new();
        let turn = TURNS.try_take();
        assert!(turn.is_some() && TURNS.try_take().is_none());
        drop(turn);
        assert!(TURNS.try_take().is_some());
    }
}
