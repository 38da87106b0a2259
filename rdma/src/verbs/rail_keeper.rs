//! Owns the keeping of one rail: opens it off the runtime, follows its device, and opens it again
//! when it is back or has another address.
//!
//! Both sides use it. Each decides what a rail that is up means for it.

use std::io;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::rail::OpenRail;
use super::rail_opener::{RailOpener, RailWithEvents};
use super::rail_presence::RailPresence;
use super::rail_watch::{RailNews, RailWatch};
use crate::cpu_affinity::unpin_thread;

/// What becomes of a rail.
pub(super) enum RailChange {
    /// It can be used, perhaps under another address than before.
    Up(Arc<OpenRail>),
    /// Drop everything of it but connections, which hear of it themselves.
    Out,
}

/// The outcome of the first attempt to open a rail, once it is known.
pub struct FirstAttempt(oneshot::Receiver<Option<io::Error>>);

impl FirstAttempt {
    /// Waits for the attempt, which may pin a lot of memory. Returns its error; `None` means that
    /// the rail is open, or that the transport or server was dropped.
    pub async fn first_error(self) -> Option<io::Error> {
        self.0.await.ok().flatten()
    }
}

/// The outcome of an attempt that runs on a thread of its own.
type OpenAttempt = oneshot::Receiver<io::Result<RailWithEvents>>;

/// Keeps one rail open.
pub(super) struct RailKeeper {
    presence: RailPresence,
    /// Locked for as long as an attempt lasts.
    opener: Arc<Mutex<RailOpener>>,
    attempt: Option<OpenAttempt>,
    open: Option<KeptRail>,
    /// The rail is to be opened when its pause is over.
    is_due: bool,
    /// The address changed during an attempt.
    is_stale: bool,
    /// The rail counts as changed even if it has the same address as before.
    is_moved: bool,
    /// The device went during an attempt.
    is_gone: bool,
    first: Option<oneshot::Sender<Option<io::Error>>>,
}

struct KeptRail {
    rail: Arc<OpenRail>,
    watch: RailWatch,
    is_port_down: bool,
    /// The last attempt failed, so only the news of its device count.
    is_away: bool,
}

impl RailKeeper {
    pub(super) fn new(presence: RailPresence, opener: RailOpener) -> Self {
        Self {
            presence,
            opener: Arc::new(Mutex::new(opener)),
            attempt: None,
            open: None,
            is_due: false,
            is_stale: false,
            is_moved: false,
            is_gone: false,
            first: None,
        }
    }

    /// Opens the rail at once. This is slow: registering pins all of the arena. Needs a runtime.
    pub(super) fn open_now(&mut self) -> io::Result<Arc<OpenRail>> {
        let opened = self.opener.lock().open_rail();
        self.take_outcome(opened)
    }

    /// Starts the first attempt.
    pub(super) fn start_opening(&mut self) -> FirstAttempt {
        let (told, outcome) = oneshot::channel();
        self.first = Some(told);
        self.start_attempt();
        FirstAttempt(outcome)
    }

    /// Starts an attempt on a thread of its own. Pinning memory takes seconds, and all rails do it
    /// at once.
    fn start_attempt(&mut self) {
        self.is_due = false;
        if self.attempt.is_some() {
            self.is_stale = true;
            return;
        }
        let (opener, (told, outcome)) = (self.opener.clone(), oneshot::channel());
        let open = move || {
            unpin_thread();
            let opened = opener.lock().open_rail();
            // Nobody waits for it once the rail is given up.
            let _ = told.send(opened);
        };
        // A thread that can't be made drops the sender, which ends the attempt.
        let _ = thread::Builder::new().name("verbs3-rail".into()).spawn(open);
        self.attempt = Some(outcome);
    }

    fn take_outcome(&mut self, opened: io::Result<RailWithEvents>) -> io::Result<Arc<OpenRail>> {
        let kept = self.open.take();
        let installed = match opened {
            Ok((rail, manager)) => match kept {
                Some(kept) if Arc::ptr_eq(&kept.rail.device, &rail.device) => {
                    Ok(KeptRail { rail, is_away: false, ..kept })
                }
                _ => RailWatch::new(&rail.device, manager).map(|watch| KeptRail {
                    rail,
                    watch,
                    is_port_down: false,
                    is_away: false,
                }),
            },
            Err(error) => {
                // Its connections live on, and its address may come back with its port.
                let opener = self.opener.lock();
                let kept = kept.filter(|kept| opener.keeps_device(&kept.rail.device));
                self.open = kept.map(|kept| KeptRail { is_away: true, ..kept });
                Err(error)
            }
        };
        match installed {
            Ok(kept) => {
                let rail = kept.rail.clone();
                if !kept.is_port_down {
                    self.presence.record_open(&rail.rail);
                }
                self.open = Some(kept);
                Ok(rail)
            }
            Err(error) => {
                self.record_failure(&error);
                Err(error)
            }
        }
    }

    /// Records that the rail can't be used where it is now. It is opened again after a pause.
    pub(super) fn record_failure(&mut self, error: &io::Error) {
        self.presence.record_failure(error);
        (self.is_due, self.is_moved) = (true, true);
    }

    /// Looks the rail's address up again, since what listens there hears nothing more.
    pub(super) fn look_again(&mut self) {
        self.is_moved = true;
        self.start_attempt();
    }

    /// Waits for the next change. May be cancelled.
    pub(super) async fn next_change(&mut self) -> RailChange {
        loop {
            tokio::select! {
                ended = await_attempt(&mut self.attempt) => {
                    self.attempt = None;
                    if let Some(change) = self.end_attempt(ended) {
                        return change;
                    }
                }
                news = await_news(&mut self.open) => {
                    if let Some(change) = self.take_news(news) {
                        return change;
                    }
                }
                () = self.presence.wait_for_retry(), if self.is_due => self.start_attempt(),
            }
        }
    }

    fn end_attempt(&mut self, opened: io::Result<RailWithEvents>) -> Option<RailChange> {
        let before = self.open.as_ref().map(|kept| kept.rail.clone());
        if std::mem::take(&mut self.is_gone) {
            // What was opened belongs to a device that has gone meanwhile.
            self.opener.lock().forget_device();
            self.is_due = true;
            return None;
        }
        let outcome = self.take_outcome(opened);
        if std::mem::take(&mut self.is_stale) {
            self.start_attempt();
        }
        let is_port_down = self.open.as_ref().is_some_and(|kept| kept.is_port_down);
        let (change, error) = match outcome {
            Ok(rail) => {
                let is_same = before.is_some_and(|before| rail.is_same_as(&before));
                let is_news = std::mem::take(&mut self.is_moved) || !is_same;
                ((is_news && !is_port_down).then_some(RailChange::Up(rail)), None)
            }
            Err(error) => (before.map(|_| RailChange::Out), Some(error)),
        };
        if let Some(first) = self.first.take() {
            // Nobody may have waited for it.
            let _ = first.send(error);
        }
        change
    }

    fn take_news(&mut self, news: io::Result<RailNews>) -> Option<RailChange> {
        let kept = self.open.as_mut()?;
        match news {
            Ok(RailNews::PortDown) => {
                kept.is_port_down = true;
                self.presence.record_outage("its port is down");
                Some(RailChange::Out)
            }
            Ok(RailNews::PortBack) if kept.is_away => {
                kept.is_port_down = false;
                self.start_attempt();
                None
            }
            Ok(RailNews::PortBack) => {
                kept.is_port_down = false;
                self.presence.record_open(&kept.rail.rail);
                Some(RailChange::Up(kept.rail.clone()))
            }
            Ok(RailNews::AddressMoved) => {
                self.look_again();
                None
            }
            Ok(RailNews::AddressesChanged) => {
                self.start_attempt();
                None
            }
            Ok(RailNews::DeviceGone) => Some(self.drop_device()),
            Err(error) => {
                tracing::error!(
                    rail = kept.rail.rail.metric_label(), %error,
                    "can't hear of the end of a rail's device"
                );
                Some(self.drop_device())
            }
        }
    }

    fn drop_device(&mut self) -> RailChange {
        self.open = None;
        self.is_gone = self.attempt.is_some();
        if !self.is_gone {
            self.opener.lock().forget_device();
            self.is_due = true;
        }
        self.presence.record_removal();
        RailChange::Out
    }
}

async fn await_attempt(attempt: &mut Option<OpenAttempt>) -> io::Result<RailWithEvents> {
    match attempt {
        Some(attempt) => attempt.await.map_err(io::Error::other).flatten(),
        None => std::future::pending().await,
    }
}

async fn await_news(open: &mut Option<KeptRail>) -> io::Result<RailNews> {
    match open {
        Some(kept) => kept.watch.next_news().await,
        None => std::future::pending().await,
    }
}
