//! Owns two facts about a connection: whether its client takes the answers it asked for, and
//! whether it was answered before it had sent everything. Also waits for the first to be false for
//! too long.
//!
//! Over HTTP/2 a client that reads nothing need not fill its socket. It grants no window, answers
//! pings, and its answers wait with all that they hold. Each body tells here whose turn it is; a
//! body that waits for the UFS or the tier does not count.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::rate_floor::RateMin;

/// Bytes written to the socket that count as an answer's progress: more than pings and other
/// control frames.
const WRITTEN_MIN: u64 = 4096;

/// How often a connection is looked at in one window of its rate.
const LOOKS: u32 = 8;

/// The progress of one connection's client.
pub(crate) struct ClientProgress {
    began: Instant,
    /// Time of the last progress, in milliseconds since the beginning.
    last_ms: AtomicU64,
    /// Bytes written since then.
    written: AtomicU64,
    /// Bytes written in all.
    total: AtomicU64,
    /// Bodies that wait for the client.
    owed: AtomicUsize,
    /// True until the end of the last request's body was read.
    unread: AtomicBool,
}

impl ClientProgress {
    /// Makes the progress of a connection on which nothing is owed or written yet. Its time starts
    /// now.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            last_ms: AtomicU64::new(0),
            written: AtomicU64::new(0),
            total: AtomicU64::new(0),
            owed: AtomicUsize::new(0),
            unread: AtomicBool::new(false),
        })
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn note_progress(&self) {
        self.written.store(0, Ordering::Relaxed);
        self.last_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    /// Notes bytes that the socket took.
    pub fn note_written(&self, bytes: usize) {
        self.total.fetch_add(bytes as u64, Ordering::Relaxed);
        if self.written.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64 >= WRITTEN_MIN {
            self.note_progress();
        }
    }

    /// Notes whether the rest of the last request's body may still come.
    pub fn left_unread(&self, unread: bool) {
        self.unread.store(unread, Ordering::Relaxed);
    }

    /// Returns whether the client may still be sending the last request's body.
    pub fn is_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }

    /// Returns once the client has taken less than the minimum rate, for each body that waited for
    /// it, in one window of such waiting. Samples the waiting now and then, which is enough to find
    /// a client that is always waited for.
    pub async fn wait_for_crawl(&self, min: RateMin) {
        if min.bytes_per_second == 0 {
            return std::future::pending().await;
        }
        let look_every = min.window / LOOKS;
        let (mut waited, mut demanded, mut before) =
            (Duration::ZERO, Duration::ZERO, self.total.load(Ordering::Relaxed));
        let mut owed = 0;
        loop {
            sleep(look_every).await;
            // The body waited at both ends of the interval, or there was progress within it.
            let owed_before = std::mem::replace(&mut owed, self.owed.load(Ordering::Relaxed));
            let bodies = u32::try_from(owed.min(owed_before)).unwrap_or(u32::MAX);
            if bodies > 0 {
                waited += look_every;
                demanded += look_every * bodies;
            }
            if waited >= min.window {
                let total = self.total.load(Ordering::Relaxed);
                if min.is_missed(total.saturating_sub(before), demanded) {
                    return;
                }
                (waited, demanded, before) = (Duration::ZERO, Duration::ZERO, total);
            }
        }
    }

    /// Returns once bodies have waited for the client without any progress for `stall_max`.
    pub async fn wait_for_stall(&self, stall_max: Duration) {
        let stall_max_ms = u64::try_from(stall_max.as_millis()).unwrap_or(u64::MAX);
        let mut wait = stall_max;
        loop {
            sleep(wait).await;
            wait = stall_max;
            if self.owed.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let since_ms = self.now_ms().saturating_sub(self.last_ms.load(Ordering::Relaxed));
            if since_ms >= stall_max_ms {
                return;
            }
            // At least 1 ms: the clock is finer than the stored milliseconds.
            wait = Duration::from_millis((stall_max_ms - since_ms).max(1));
        }
    }
}

/// One body's share in its connection's progress.
pub(crate) struct ProgressTurn {
    progress: Arc<ClientProgress>,
    client: bool,
}

impl ProgressTurn {
    /// Makes the turn of a body that nobody has asked for bytes yet.
    pub fn new(progress: Arc<ClientProgress>) -> Self {
        Self { progress, client: false }
    }

    /// Gives the turn to the client: it has taken what there was, and may take more.
    pub fn of_client(&mut self) {
        self.progress.note_progress();
        if !self.client {
            self.client = true;
            self.progress.owed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Gives the turn to the server: the client waits, or has everything.
    pub fn of_server(&mut self) {
        if self.client {
            self.client = false;
            self.progress.owed.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for ProgressTurn {
    fn drop(&mut self) {
        self.of_server();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::time::timeout;

    use super::*;

    const STALL_MAX: Duration = Duration::from_secs(60);

    async fn stalls_within(progress: &ClientProgress, seconds: u64) -> bool {
        timeout(Duration::from_secs(seconds), progress.wait_for_stall(STALL_MAX)).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_stalls() {
        let progress = ClientProgress::new();
        ProgressTurn::new(progress.clone()).of_client();
        assert!(!stalls_within(&progress, 1000).await, "a body that has gone owes nothing");
        let mut turn = ProgressTurn::new(progress.clone());
        turn.of_client();
        assert!(!stalls_within(&progress, 59).await);
        assert!(stalls_within(&progress, 121).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_store_is_not_the_clients_fault() {
        let progress = ClientProgress::new();
        let mut turn = ProgressTurn::new(progress.clone());
        turn.of_client();
        turn.of_server();
        assert!(!stalls_within(&progress, 1000).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_crawling_client_is_seen_and_a_slow_store_is_not_its_fault() {
        const MIN: RateMin = RateMin { bytes_per_second: 1000, window: Duration::from_secs(30) };
        // Bytes a second, bodies that are the client's to take, whether it crawls.
        for (bytes, bodies, crawls) in
            [(500, 1, true), (2000, 1, false), (2000, 4, true), (5000, 4, false), (0, 0, false)]
        {
            let progress = ClientProgress::new();
            let mut turns: Vec<ProgressTurn> =
                (0..4).map(|_| ProgressTurn::new(progress.clone())).collect();
            turns.iter_mut().take(bodies).for_each(ProgressTurn::of_client);
            let taking = async {
                for _ in 0..600 {
                    sleep(Duration::from_secs(1)).await;
                    progress.note_written(bytes);
                }
            };
            let seen = tokio::select! {
                () = progress.wait_for_crawl(MIN) => true,
                () = taking => false,
            };
            assert_eq!(seen, crawls, "{bytes} bytes a second, {bodies} bodies");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_are_progress_and_pings_are_not() {
        for (bytes, stalled) in [(WRITTEN_MIN as usize, false), (17, true)] {
            let progress = ClientProgress::new();
            let mut turn = ProgressTurn::new(progress.clone());
            turn.of_client();
            let writing = async {
                for _ in 0..30 {
                    sleep(Duration::from_secs(10)).await;
                    progress.note_written(bytes);
                }
            };
            let stalls = tokio::select! {
                () = progress.wait_for_stall(STALL_MAX) => true,
                () = writing => false,
            };
            assert_eq!(stalls, stalled, "{bytes}");
        }
    }
}
