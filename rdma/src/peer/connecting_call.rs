//! Owns the wait of a call whose connection is being made, or can't be made.
//!
//! It chooses no connection and repeats nothing.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::FutureExt;

use super::connect_attempt::ConnectAttempt;
use crate::landing::Landing;
use crate::transport::{
    CallConnection, CallDriver, CallEvent, CallRefusal, OutgoingCall, TransportError,
};

pub(super) enum ConnectingCall {
    Waiting { attempt: ConnectAttempt, request: Option<(Bytes, Option<Landing>)> },
    Made(OutgoingCall),
    Refused(Option<TransportError>),
}

impl CallDriver for ConnectingCall {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<CallEvent, TransportError>> {
        loop {
            let next = match self {
                Self::Made(call) => return call.poll_next(cx),
                Self::Refused(error) => {
                    let again = || TransportError::Bound { cause: CallRefusal::PolledAfterEnd };
                    return Poll::Ready(Err(error.take().unwrap_or_else(again)));
                }
                Self::Waiting { attempt, request } => {
                    match (ready!(attempt.poll_unpin(cx)), request.take()) {
                        (Ok(connection), Some((message, landing))) => Self::Made(
                            connection.start_call(message, landing).with_connection(connection),
                        ),
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
            _ => Poll::Ready(Err(TransportError::Bound { cause: CallRefusal::NothingWanted })),
        }
    }

    fn call_connection(&self) -> Option<&CallConnection> {
        match self {
            Self::Made(call) => call.call_connection(),
            _ => None,
        }
    }
}
