//! Owns what a process knows of whether a store answers: since when it does not, and why.
//!
//! Any answer counts, an error too: it shows that the store is there. Pure: time is an argument.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::NoAnswerCause;

/// A store's silence: nothing has come from it since a request went unanswered.
#[derive(Debug, Clone)]
pub struct StoreSilence {
    /// Time since the first request without an answer.
    pub lasted: Duration,
    /// Why the last request got none.
    pub cause: NoAnswerCause,
}

/// Whether a store answers, as far as the requests of this process show.
#[derive(Debug, Default)]
pub(crate) struct StoreReachability {
    last: Mutex<LastOutcomes>,
}

#[derive(Debug, Default)]
struct LastOutcomes {
    answered_at: Option<Instant>,
    /// When the silence began, and the newest cause.
    silent: Option<(Instant, NoAnswerCause)>,
}

impl StoreReachability {
    /// Notes that the store has answered. Returns `true` if that ends a silence.
    pub(crate) fn note_answer(&self, now: Instant) -> bool {
        let mut last = self.last.lock();
        last.answered_at = Some(now);
        last.silent.take().is_some()
    }

    /// Notes that a request sent at `sent` got no answer. A request that is older than the last
    /// answer says nothing. Returns `true` if a silence begins.
    pub(crate) fn note_silence(&self, sent: Instant, now: Instant, cause: NoAnswerCause) -> bool {
        let mut last = self.last.lock();
        if last.answered_at.is_some_and(|answered| answered > sent) {
            return false;
        }
        let began = last.silent.as_ref().map(|(began, _)| *began);
        last.silent = Some((began.unwrap_or(now), cause));
        began.is_none()
    }

    /// Returns the silence, if the last request that says something got no answer.
    pub(crate) fn current_silence(&self, now: Instant) -> Option<StoreSilence> {
        let last = self.last.lock();
        let (began, cause) = last.silent.as_ref()?;
        Some(StoreSilence { lasted: now.saturating_duration_since(*began), cause: cause.clone() })
    }

    /// Returns whether the store has answered within this time.
    pub(crate) fn has_answered_within(&self, period: Duration, now: Instant) -> bool {
        let answered = self.last.lock().answered_at;
        answered.is_some_and(|answered| now.saturating_duration_since(answered) < period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn timed_out() -> NoAnswerCause {
        NoAnswerCause::FirstByte(SECOND)
    }

    /// Returns how long the silence has lasted, and what is said of it.
    fn silence(store: &StoreReachability, now: Instant) -> Option<(Duration, String)> {
        store.current_silence(now).map(|silence| (silence.lasted, silence.cause.to_string()))
    }

    #[test]
    fn silence_lasts_from_an_unanswered_request_to_any_answer() {
        let (store, start) = (StoreReachability::default(), Instant::now());
        assert_eq!(silence(&store, start), None);
        let refused = NoAnswerCause::Client("refused".into());
        assert!(store.note_silence(start, start + SECOND, refused));
        assert!(!store.note_silence(start, start + 2 * SECOND, timed_out()));
        let said = (4 * SECOND, timed_out().to_string());
        assert_eq!(silence(&store, start + 5 * SECOND), Some(said));
        assert!(store.note_answer(start + 6 * SECOND));
        assert_eq!(silence(&store, start + 7 * SECOND), None);
        assert!(!store.note_answer(start + 8 * SECOND));
    }

    #[test]
    fn a_request_that_is_older_than_the_last_answer_says_nothing() {
        let (store, start) = (StoreReachability::default(), Instant::now());
        store.note_answer(start + SECOND);
        assert!(!store.note_silence(start, start + 9 * SECOND, timed_out()));
        assert_eq!(silence(&store, start + 9 * SECOND), None);
        assert!(store.note_silence(start + 2 * SECOND, start + 9 * SECOND, timed_out()));
    }

    #[test]
    fn an_answer_is_recent_for_a_while() {
        let (store, start) = (StoreReachability::default(), Instant::now());
        assert!(!store.has_answered_within(SECOND, start));
        store.note_answer(start);
        assert!(store.has_answered_within(SECOND, start + SECOND / 2));
        assert!(!store.has_answered_within(SECOND, start + SECOND));
    }
}
