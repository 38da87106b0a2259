//! Tells whoever waits for an open that the home shows no sign of life, so that the store can be asked
//! beside it. Knows no home and no time.

use tokio::sync::Notify;

/// Whether the home of an open is silent: for `hedge_after` it has shown no sign of life.
#[derive(Debug, Default)]
pub struct OpenSilence(Notify);

impl OpenSilence {
    /// Returns once the home is silent; of several waiters, one does.
    pub async fn wait_for_silence(&self) {
        self.0.notified().await;
    }

    pub(crate) fn note_silence(&self) {
        self.0.notify_one();
    }
}
