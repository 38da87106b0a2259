//! The requesting side of a connection: calls, and keeps every landing until its call is settled.
//!
//! Owns the table of open calls and the task of a connection. That task is the only one that
//! settles calls; it does so when nothing can write to their landings any more.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle as Runtime;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::call::{Dialled, Handle};
use super::nudge::nudged;
use super::{Agreed, Body, CallOptions, Header, Inlet, InletError, Kind, Outgoing, Outlet};
use crate::credits::Credits;
use crate::landing::Fill;
use crate::metrics::{GaugeGuard, metrics};
use crate::peer::Ways;
use crate::pending::Pending;
use crate::transport::{Connection, Event, Part, TransportError};

/// Makes a connection of an inlet and an outlet whose handshake is done. Its task runs on `runtime`
/// and is one of `tasks`; it ends when the last handle is dropped, or the line breaks.
pub(crate) fn connect<O: Outlet, I: Inlet + 'static>(
    outlet: O,
    inlet: I,
    agreed: &Agreed,
    address: &str,
    options: &CallOptions,
    (runtime, tasks): (&Runtime, &TaskTracker),
) -> Arc<dyn Connection> {
    let peer = format!("{} ({address})", agreed.peer_name);
    let ways = Ways::parse(&agreed.ways).unwrap_or_else(|error| {
        tracing::warn!(
            peer, %error,
            "what a peer says of other ways to it can't be used; it is reached over this one alone"
        );
        Ways::default()
    });
    let line = Arc::new(Line {
        outlet,
        peer,
        message_bytes_max: agreed.frame_bytes_max,
        cancel_ack_deadline: options.cancel_ack_deadline,
        credits: Credits::new(agreed.calls_in_flight_max as usize),
        heard: AtomicU64::new(0),
        is_broken: AtomicBool::new(false),
        calls: Mutex::new(Calls::default()),
        cancels: Mutex::new(VecDeque::new()),
        cancelled: Notify::new(),
    });
    let hung_up = CancellationToken::new();
    tasks.spawn_on(nudged(run(line.clone(), inlet, hung_up.clone())), runtime);
    Arc::new(Dialled { handle: Arc::new(Handle { line, hung_up }), ways })
}

/// Reader, writer and the watch over cancels of one connection, in one task.
async fn run<O: Outlet>(line: Arc<Line<O>>, mut inlet: impl Inlet, hung_up: CancellationToken) {
    let all = metrics();
    let _open =
        GaugeGuard::add(&all.connections.with_label_values(&[O::KIND.as_str(), "requester"]), 1);
    let lost = |reason: String| TransportError::Lost { peer: line.peer.clone(), reason };
    let error = tokio::select! {
        error = line.read(&mut inlet) => error,
        written = line.outlet.run() => match written {
            Ok(()) => lost("closed here".into()),
            Err(error) => lost(error.to_string()),
        },
        () = line.overdue() => lost(format!(
            "no acknowledgement of a cancel in {:?}", line.cancel_ack_deadline
        )),
        () = hung_up.cancelled() => lost("closed here".into()),
    };
    if let TransportError::Protocol { peer, reason } = &error {
        all.protocol_violations.with_label_values(&["requester"]).inc();
        tracing::warn!(peer, reason, "cut a connection whose peer broke the protocol");
    }
    line.end(error);
}

/// What the handle, the calls and the tasks of one connection share.
pub(super) struct Line<O: Outlet> {
    /// First, so that even a line that is merely dropped closes before the landings of its calls
    /// go.
    pub(super) outlet: O,
    pub(super) peer: String,
    pub(super) message_bytes_max: u32,
    pub(super) cancel_ack_deadline: Duration,
    pub(super) credits: Arc<Credits>,
    /// Frames that have come.
    pub(super) heard: AtomicU64,
    /// Set after `calls.broken`, for those who only want to know whether.
    pub(super) is_broken: AtomicBool,
    pub(super) calls: Mutex<Calls>,
    /// Cancels that may not have been acknowledged, oldest first, with the end of the peer's time.
    pub(super) cancels: Mutex<VecDeque<(u64, Instant)>>,
    pub(super) cancelled: Notify,
}

#[derive(Default)]
pub(super) struct Calls {
    pub(super) next: u64,
    pub(super) open: HashMap<u64, Arc<Pending>>,
    pub(super) broken: Option<TransportError>,
}

impl<O: Outlet> Line<O> {
    async fn read(&self, inlet: &mut impl Inlet) -> TransportError {
        loop {
            let header = match inlet.header().await {
                Ok(Some(header)) => header,
                Ok(None) => return self.lost("the peer closed it".into()),
                Err(error) => return self.unreadable(error),
            };
            self.heard.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = self.handle(&header, inlet).await {
                return error;
            }
        }
    }

    async fn handle(&self, header: &Header, inlet: &mut impl Inlet) -> Result<(), TransportError> {
        match header.kind {
            Kind::Part | Kind::Wanted | Kind::Fail => {}
            Kind::CancelAck => return self.acknowledged(header.call),
            Kind::Goodbye => {
                let goodbye = TransportError::Lost {
                    peer: self.peer.clone(),
                    reason: "the peer is shutting down".into(),
                };
                // Calls under way go on; new ones go elsewhere.
                self.calls.lock().broken.get_or_insert(goodbye);
                self.is_broken.store(true, Ordering::Release);
                return Ok(());
            }
            kind => return Err(self.violation(format!("{kind:?} frame to a requester"))),
        }
        let pending = self.calls.lock().open.get(&header.call).cloned();
        let Some(pending) = pending else {
            let (kind, call) = (header.kind, header.call);
            return Err(self.violation(format!("{kind:?} for call {call}, which is not open")));
        };
        let mut fill = pending
            .claim(header.offset, header.data_bytes)
            .map_err(|error| self.violation(error.to_string()))?;
        let body = inlet.body(header, &mut fill).await.map_err(|error| self.unreadable(error))?;
        self.arrived(header, &pending, body, fill)
    }

    fn arrived(
        &self,
        header: &Header,
        pending: &Pending,
        body: Body,
        fill: Fill,
    ) -> Result<(), TransportError> {
        let Body { message, data, .. } = body;
        if header.placed && data.is_none() && !pending.is_described() {
            // It would show what an earlier call left there.
            return Err(
                self.violation("data placed in a landing that the peer was not told of".into())
            );
        }
        if header.last || header.kind == Kind::Fail {
            self.close_call(header);
        }
        let event = match header.kind {
            Kind::Fail => {
                pending.settle(TransportError::Failed {
                    peer: self.peer.clone(),
                    reason: String::from_utf8_lossy(&message).into_owned(),
                });
                return Ok(());
            }
            Kind::Wanted => Event::Wanted { message, bytes: header.lent_bytes },
            _ => Event::Part(Part {
                message,
                offset: header.offset,
                data: data.unwrap_or_else(|| fill.vouch()),
                last: header.last,
            }),
        };
        if pending.deliver(event) {
            Ok(())
        } else {
            Err(self.violation("more parts than a requester can be made to hold".into()))
        }
    }

    /// Takes a settled call out of the table; tells the peer that no push follows, if it lent
    /// memory for one.
    fn close_call(&self, header: &Header) {
        let acknowledge = {
            let mut calls = self.calls.lock();
            let pending = calls.open.remove(&header.call);
            // A cancel that is under way says the same.
            let cancelled = pending.is_some_and(|pending| pending.is_cancelled());
            header.pull_open && !cancelled
        };
        if acknowledge {
            self.outlet.push(Outgoing::control(Kind::CancelAck, header.call));
            self.outlet.flush();
        }
    }

    fn acknowledged(&self, call: u64) -> Result<(), TransportError> {
        let mut calls = self.calls.lock();
        match calls.open.get(&call) {
            Some(pending) if pending.is_cancelled() => {}
            _ => {
                drop(calls);
                return Err(self.violation(format!("acknowledged no cancel of call {call}")));
            }
        }
        let pending = calls.open.remove(&call);
        drop(calls);
        if let Some(pending) = pending {
            pending.settle(TransportError::Cancelled);
        }
        Ok(())
    }

    pub(super) fn cancel(&self, id: u64, pending: &Pending) {
        let tell = {
            let calls = self.calls.lock();
            let tell = pending.cancel() && calls.open.contains_key(&id);
            if tell {
                self.outlet.push(Outgoing::control(Kind::Cancel, id));
            }
            tell
        };
        if tell {
            self.outlet.flush();
            let mut cancels = self.cancels.lock();
            let calls = self.calls.lock();
            while cancels.front().is_some_and(|(id, _)| !calls.open.contains_key(id)) {
                cancels.pop_front();
            }
            drop(calls);
            cancels.push_back((id, Instant::now() + self.cancel_ack_deadline));
            drop(cancels);
            self.cancelled.notify_one();
        }
    }

    /// Ends when a cancel has waited for its acknowledgement too long.
    async fn overdue(&self) {
        loop {
            let oldest = self.cancels.lock().front().copied();
            let Some((call, until)) = oldest else {
                self.cancelled.notified().await;
                continue;
            };
            tokio::time::sleep_until(until).await;
            if self.calls.lock().open.contains_key(&call) {
                return;
            }
            self.cancels.lock().retain(|(other, _)| *other != call);
        }
    }

    /// Settles everything: the reader is gone, so no landing can be written to any more.
    fn end(&self, error: TransportError) {
        let open = {
            let mut calls = self.calls.lock();
            calls.broken = Some(error.clone());
            self.is_broken.store(true, Ordering::Release);
            std::mem::take(&mut calls.open)
        };
        self.outlet.close();
        self.credits.close();
        for pending in open.into_values() {
            pending.settle(error.clone());
        }
    }

    pub(super) fn broken(&self) -> TransportError {
        let broken = self.calls.lock().broken.clone();
        broken.unwrap_or_else(|| self.lost("it closed".into()))
    }

    /// For a call of which nothing was sent, because the connection is over.
    pub(super) fn refused(&self, broken: &TransportError) -> TransportError {
        TransportError::Unreachable { peer: self.peer.clone(), reason: broken.to_string() }
    }

    fn lost(&self, reason: String) -> TransportError {
        TransportError::Lost { peer: self.peer.clone(), reason }
    }

    fn violation(&self, reason: String) -> TransportError {
        TransportError::Protocol { peer: self.peer.clone(), reason }
    }

    fn unreadable(&self, error: InletError) -> TransportError {
        match error {
            error @ (InletError::Frame(_) | InletError::Rules(_)) => {
                self.violation(error.to_string())
            }
            error => self.lost(error.to_string()),
        }
    }
}
