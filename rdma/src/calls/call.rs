//! One call of the requesting side: waits for its credit, is sent, takes its events, pushes, and
//! cancels on drop.
//!
//! Owns what a `Call` and a `Connection` are over a line. The table of open calls and who settles
//! them are `requester`'s.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::requester::Line;
use super::{Header, Kind, Outgoing, Outlet};
use crate::credits::{Permit, Wish};
use crate::landing::Landing;
use crate::peer::Ways;
use crate::pending::{Credit, Pending};
use crate::transport::{Call, CallDriver, Connection, Event, TransportError, TransportKind};

/// Dropped with the connection and its last call; the tasks end then.
pub(super) struct Handle<O: Outlet> {
    pub(super) line: Arc<Line<O>>,
    pub(super) hung_up: CancellationToken,
}

impl<O: Outlet> Drop for Handle<O> {
    fn drop(&mut self) {
        self.hung_up.cancel();
    }
}

pub(super) struct Dialled<O: Outlet> {
    pub(super) handle: Arc<Handle<O>>,
    pub(super) ways: Ways,
}

impl<O: Outlet> Connection for Dialled<O> {
    fn kind(&self) -> TransportKind {
        O::KIND
    }

    fn wants_landing(&self) -> bool {
        true
    }

    fn call(&self, message: Bytes, landing: Option<Landing>) -> Call {
        let line = &self.handle.line;
        let bound = line.message_bytes_max as usize;
        let state = if message.len() > bound {
            let reason = format!("message of {} bytes; the bound is {bound}", message.len());
            State::Refused(Some(TransportError::Bound { reason }))
        } else {
            match line.credits.try_take() {
                Some(permit) => self.handle.start(permit, message, landing),
                None => {
                    State::Waiting { wish: line.credits.wish(), request: Some((message, landing)) }
                }
            }
        };
        Call::new(Box::new(Calling { handle: self.handle.clone(), state, push: None }))
    }

    fn broken(&self) -> Option<TransportError> {
        // Asked before every call, so the usual answer takes no lock.
        if !self.handle.line.is_broken.load(Ordering::Acquire) {
            return None;
        }
        self.handle.line.calls.lock().broken.clone()
    }

    fn in_flight(&self) -> usize {
        self.handle.line.credits.in_use()
    }

    fn heard(&self) -> u64 {
        self.handle.line.heard.load(Ordering::Relaxed)
    }

    fn ways(&self) -> &Ways {
        &self.ways
    }
}

impl<O: Outlet> Handle<O> {
    fn start(&self, permit: Permit, message: Bytes, mut landing: Option<Landing>) -> State {
        let lent_bytes = landing.as_ref().map_or(0, Landing::bytes);
        let lent =
            landing.as_mut().map(|landing| self.line.outlet.lend(landing)).unwrap_or_default();
        let credit = Some(Credit::new(permit));
        let pending = Arc::new(
            Pending::new(O::KIND, landing, credit)
                .described(!lent.is_empty())
                .timed_by(self.line.outlet.seconds()),
        );
        let mut calls = self.line.calls.lock();
        if let Some(error) = calls.broken.clone() {
            drop(calls);
            return State::Refused(Some(self.line.refused(&error)));
        }
        calls.next += 1;
        let id = calls.next;
        calls.open.insert(id, pending.clone());
        let header = Header { lent_bytes, ..Header::new(Kind::Call, id) };
        // Under the lock, so that calls go out in the order of their ids, which the server relies
        // on.
        self.line.outlet.push(Outgoing::new(header, message, Vec::new()).lending(&lent));
        drop(calls);
        self.line.outlet.flush();
        State::Sent { id, pending }
    }
}

type Push = Pin<Box<dyn Future<Output = Result<(), TransportError>> + Send>>;

enum State {
    /// Every credit is in use. Nothing has been sent.
    Waiting {
        wish: Wish,
        request: Option<(Bytes, Option<Landing>)>,
    },
    Sent {
        id: u64,
        pending: Arc<Pending>,
    },
    Refused(Option<TransportError>),
}

struct Calling<O: Outlet> {
    handle: Arc<Handle<O>>,
    state: State,
    push: Option<Push>,
}

impl<O: Outlet> CallDriver for Calling<O> {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, TransportError>> {
        loop {
            let next = match &mut self.state {
                State::Sent { pending, .. } => return pending.poll_pop(cx),
                State::Refused(error) => {
                    let again = || TransportError::Bound {
                        reason: "the call was polled after its end".into(),
                    };
                    return Poll::Ready(Err(error.take().unwrap_or_else(again)));
                }
                State::Waiting { wish, request } => {
                    match (std::task::ready!(wish.poll(cx)), request.take()) {
                        (Ok(permit), Some((message, landing))) => {
                            self.handle.start(permit, message, landing)
                        }
                        _ => State::Refused(Some(
                            self.handle.line.refused(&self.handle.line.broken()),
                        )),
                    }
                }
            };
            self.state = next;
        }
    }

    fn poll_push(
        &mut self,
        cx: &mut Context<'_>,
        data: &[Bytes],
    ) -> Poll<Result<(), TransportError>> {
        let State::Sent { id, pending } = &self.state else {
            return Poll::Ready(Err(TransportError::Bound {
                reason: "the peer wants nothing pushed".into(),
            }));
        };
        if self.push.is_none() {
            let bytes = pending.answer_wanted(data)?;
            let push = send_push(self.handle.line.clone(), *id, data.to_vec(), bytes);
            self.push = Some(Box::pin(push));
        }
        let Some(push) = &mut self.push else {
            return Poll::Pending;
        };
        let result = std::task::ready!(push.as_mut().poll(cx));
        self.push = None;
        Poll::Ready(result)
    }
}

async fn send_push<O: Outlet>(
    line: Arc<Line<O>>,
    id: u64,
    data: Vec<Bytes>,
    bytes: u64,
) -> Result<(), TransportError> {
    let room = line.outlet.room(bytes).await.ok_or_else(|| line.broken())?;
    let frame = Outgoing::new(Header::new(Kind::Push, id), Bytes::new(), data).within(room);
    {
        // Once the call is out of the table the peer may have been told that no push follows.
        let calls = line.calls.lock();
        if !calls.open.contains_key(&id) {
            return Err(TransportError::Failed {
                peer: line.peer.clone(),
                reason: "the call ended before the push".into(),
            });
        }
        line.outlet.push(frame);
    }
    line.outlet.flush();
    Ok(())
}

impl<O: Outlet> Drop for Calling<O> {
    fn drop(&mut self) {
        if let State::Sent { id, pending } = &self.state {
            self.handle.line.cancel(*id, pending);
        }
    }
}
