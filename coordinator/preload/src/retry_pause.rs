//! The pause before a question is repeated.

use std::time::Duration;

/// Returns half of the pause to all of it, so that not everybody comes back at once.
pub(crate) fn jitter_pause(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + f64::from(rand::random::<u16>()) / 131_072.0)
}
