//! Serves one client's rings until it hangs up, loses its right, breaks the rules, or the gateway
//! ends. Never waits for the client: what it does not take stays in its own memory.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tracing::{debug, error};
use verbs3_lending_protocol::{BELL_BROKEN, BELL_REVOKED, BELL_SHUTDOWN};

use crate::lending_handshake::LendingClient;
use crate::lending_host::LendingGuest;
use crate::lending_metrics::{LendingCut, LendingMetrics};
use crate::lending_stop::LendingStop;
use crate::request_landing::{COPY_BYTES_MAX, land_request};
use crate::session_rings::{BrokenRings, SessionRings, SubmissionTaker};

/// How often a silent client's right is looked at.
const WELCOME_EVERY: Duration = Duration::from_secs(1);

/// Bytes of the socket that are read at once. Each says the same.
const BELLS_BYTES: usize = 64;

/// Why a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionEnd {
    HungUp,
    Shutdown,
    Revoked,
    Broken,
}

impl From<BrokenRings> for SessionEnd {
    fn from(_: BrokenRings) -> Self {
        Self::Broken
    }
}

/// One client's rings, and its reads.
struct LendingSession<G: LendingGuest> {
    guest: Arc<G>,
    rings: Arc<SessionRings>,
    taker: SubmissionTaker,
    stream: Arc<UnixStream>,
    /// Reads under way. They end with the session.
    reads: JoinSet<()>,
}

/// Serves a client. Its reads are dropped at the end, but for those that a shutdown waits for.
pub(crate) async fn serve_client<G: LendingGuest>(
    client: LendingClient<G>,
    stream: UnixStream,
    reads_in_flight_max: u32,
    metrics: LendingMetrics,
    stop: &LendingStop,
) {
    let LendingClient { guest, memory, layout } = client;
    let stream = Arc::new(stream);
    let guest = Arc::new(guest);
    let rings = SessionRings::new(memory, layout, stream.clone(), metrics.clone(), guest.clone());
    let mut session = LendingSession {
        guest,
        rings,
        taker: SubmissionTaker::new(reads_in_flight_max),
        stream,
        reads: JoinSet::new(),
    };
    let end = session.serve_rings(stop).await.unwrap_or_else(|end| end);
    if end == SessionEnd::Shutdown {
        let _ = stop.cut.run_until_cancelled(session.await_requests()).await;
    }
    session.reads.shutdown().await;
    // What is left after this is waited for by the lifeline alone.
    let _ = session.rings.loans.collect_returned(session.rings.mapping());
    session.rings.loans.leave_client();
    let farewell = match end {
        SessionEnd::HungUp => return,
        SessionEnd::Shutdown => BELL_SHUTDOWN,
        SessionEnd::Revoked => {
            metrics.cut[LendingCut::Revoked].inc();
            BELL_REVOKED
        }
        SessionEnd::Broken => {
            metrics.cut[LendingCut::Broken].inc();
            BELL_BROKEN
        }
    };
    let _ = session.stream.try_write(&[farewell]);
    debug!(?end, "a client that lends memory is told to go");
}

impl<G: LendingGuest> LendingSession<G> {
    async fn serve_rings(&mut self, stop: &LendingStop) -> Result<SessionEnd, SessionEnd> {
        let mut look = interval_at(Instant::now() + WELCOME_EVERY, WELCOME_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let loans = &self.rings.loans;
            loans.collect_returned(self.rings.mapping()).map_err(BrokenRings::from)?;
            let is_saturated = self.begin_reads()?;
            if !is_saturated {
                self.rings.mark_sleeping(true)?;
                // What came between the last look and the flag has rung no bell.
                if self.begin_reads()? {
                    self.rings.mark_sleeping(false)?;
                    continue;
                }
            }
            tokio::select! {
                () = stop.stop.cancelled() => return Ok(SessionEnd::Shutdown),
                heard = hear_bells(&self.stream) => heard?,
                Some(ended) = self.reads.join_next(), if !self.reads.is_empty() => {
                    note_read_end(ended);
                }
                _ = look.tick() => {
                    if !self.guest.is_welcome() {
                        return Ok(SessionEnd::Revoked);
                    }
                    self.rings.loans.retire_sources();
                }
            }
            self.rings.mark_sleeping(false)?;
        }
    }

    /// Waits for the requests under way, or for the client to hang up: it has given a write up, and
    /// may write anew elsewhere.
    async fn await_requests(&mut self) {
        loop {
            tokio::select! {
                ended = self.reads.join_next() => match ended {
                    Some(ended) => note_read_end(ended),
                    None => return,
                },
                heard = hear_bells(&self.stream) => if heard.is_err() { return },
            }
        }
    }

    /// Begins the reads that are there. Returns whether some have to wait for others to end.
    fn begin_reads(&mut self) -> Result<bool, SessionEnd> {
        while let Some(ended) = self.reads.try_join_next() {
            note_read_end(ended);
        }
        let taken = self.taker.take_submissions(&self.rings)?;
        if taken.is_saturated {
            self.rings.metrics.reads_saturated.inc();
        }
        if !taken.reads.is_empty() && !self.guest.is_welcome() {
            // Its tickets settle as failed.
            return Err(SessionEnd::Revoked);
        }
        // What waits for a place is woken by a task's end, and several requests use several threads.
        let is_lone = taken.reads.len() == 1 && !taken.is_saturated && self.reads.is_empty();
        for (submission, ticket) in taken.reads {
            let guest = self.guest.clone();
            let is_begun_here =
                is_lone && (submission.takes_pages || submission.body_bytes_max <= COPY_BYTES_MAX);
            let mut landing =
                Box::pin(async move { land_request(&*guest, submission, ticket).await });
            if !is_begun_here || !has_landed_at_once(&mut landing) {
                self.reads.spawn(landing);
            }
        }
        Ok(taken.is_saturated)
    }
}

/// Waits for a byte, and takes those that are there. Each read has no place for descriptors: the
/// kernel closes what comes along.
async fn hear_bells(stream: &UnixStream) -> Result<(), SessionEnd> {
    stream.readable().await.map_err(|_| SessionEnd::HungUp)?;
    match stream.try_read(&mut [0; BELLS_BYTES]) {
        Ok(0) => Err(SessionEnd::HungUp),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(_) => Err(SessionEnd::HungUp),
    }
}

/// Goes on with a request until it has to wait for something. Returns whether it is over. What is
/// answered from memory costs no other thread's wake-up so, which takes longer than such an answer.
fn has_landed_at_once<F: Future<Output = ()> + Unpin>(landing: &mut F) -> bool {
    let landed = catch_unwind(AssertUnwindSafe(|| landing.now_or_never()));
    landed.map_or_else(
        |_| {
            // Its ticket has told the client.
            error!("a read into lent memory broke down");
            true
        },
        |landed| landed.is_some(),
    )
}

fn note_read_end(ended: Result<(), tokio::task::JoinError>) {
    if let Err(fault) = ended
        && fault.is_panic()
    {
        // Its ticket has told the client.
        error!(%fault, "a read into lent memory broke down");
    }
}
