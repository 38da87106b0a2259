//! A call whose connection is being made, or can't be.
//!
//! Owns the wait. It chooses no connection and repeats nothing.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::FutureExt;

use super::connect::Attempt;
use crate::landing::Landing;
use crate::transport::{Call, CallDriver, Event, TransportError, Way};

pub(super) enum Connecting {
    Waiting { attempt: Attempt, request: Option<(Bytes, Option<Landing>)> },
    Made(Call),
    Refused(Option<TransportError>),
}

impl CallDriver for Connecting {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, TransportError>> {
        loop {
            let next = match self {
                Self::Made(call) => return call.poll_next(cx),
                Self::Refused(error) => {
                    let again = || TransportError::Bound {
                        reason: "the call was polled after its end".into(),
                    };
                    return Poll::Ready(Err(error.take().unwrap_or_else(again)));
                }
                Self::Waiting { attempt, request } => {
                    match (ready!(attempt.poll_unpin(cx)), request.take()) {
                        (Ok(connection), Some((message, landing))) => {
                            Self::Made(connection.call(message, landing).over(connection))
                        }
                        (Ok(_), None) => Self::Refused(None),
                        (Err(error), _) => Self::Refused(Some(error)),
                    }
                }
            };
            *self = next;
        }
    }

    fn poll_push(
        &mut self,
        cx: &mut Context<'_>,
        data: &[Bytes],
    ) -> Poll<Result<(), TransportError>> {
        match self {
            Self::Made(call) => call.poll_push(cx, data),
            _ => Poll::Ready(Err(TransportError::Bound {
                reason: "the peer wants nothing pushed".into(),
            })),
        }
    }

    fn way(&self) -> Option<&Way> {
        match self {
            Self::Made(call) => call.way(),
            _ => None,
        }
    }
}
