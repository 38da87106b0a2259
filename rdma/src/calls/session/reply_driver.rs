//! Sends what a handler answers, and pulls what it asks for. Once the call is over, a handler that
//! still answers is told so.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::oneshot;

use super::{PushLanding, ServerSession};
use crate::calls::{FrameHeader, FrameKind, FrameOutlet, MemorySegment, OutgoingFrame};
use crate::landing::Landing;
use crate::metrics::transport_metrics;
use crate::transport::{CallRefusal, ReplyDriver, TransportError};

/// The answers of one handler.
pub(super) struct SessionReplyDriver<O: FrameOutlet> {
    pub(super) session: Arc<ServerSession<O>>,
    pub(super) call: u64,
    /// Memory that the requester lets this side write to.
    pub(super) target: Arc<[MemorySegment]>,
    pub(super) landing_bytes: u64,
    pub(super) answered: bool,
}

impl<O: FrameOutlet> SessionReplyDriver<O> {
    fn check_part(&self, message: &Bytes, offset: u64, bytes: u64) -> Result<(), TransportError> {
        let bound = self.session.message_bytes_max as usize;
        if message.len() > bound {
            let cause = CallRefusal::MessageBytes { bytes: message.len(), bytes_max: bound };
            return Err(TransportError::Bound { cause });
        }
        let end = offset.saturating_add(bytes);
        if end > self.landing_bytes {
            let landing_bytes = self.landing_bytes;
            let cause = CallRefusal::OutsideLanding { offset, end, landing_bytes };
            return Err(TransportError::Bound { cause });
        }
        Ok(())
    }
}

#[async_trait]
impl<O: FrameOutlet> ReplyDriver for SessionReplyDriver<O> {
    async fn send_part(
        &mut self,
        message: Bytes,
        offset: u64,
        data: Vec<Bytes>,
        last: bool,
    ) -> Result<(), TransportError> {
        let bytes = data.iter().map(|piece| piece.len() as u64).sum();
        self.check_part(&message, offset, bytes)?;
        let session = &self.session;
        let queued = bytes + message.len() as u64;
        let room =
            session.outlet.reserve_bytes(queued).await.ok_or_else(|| session.call_gone_error())?;
        let header = FrameHeader { last, offset, ..FrameHeader::new(FrameKind::Part, self.call) };
        let target = self.target.clone();
        let frame = |header| {
            OutgoingFrame::new(header, message, data).with_permit(room).with_target(target)
        };
        if last {
            let answered = session
                .finish_call(self.call, |pull_open| frame(FrameHeader { pull_open, ..header }));
            self.answered = true;
            if !answered {
                return Err(session.call_gone_error());
            }
        } else {
            {
                let calls = session.calls.lock();
                if calls.open.get(&self.call).is_none_or(|serving| serving.answered) {
                    drop(calls);
                    return Err(session.call_gone_error());
                }
                // Under the lock: the acknowledgement of a cancel that comes now is queued behind
                // this part.
                session.outlet.push_frame(frame(header));
            }
            session.outlet.flush_frames();
        }
        transport_metrics().bytes_out[O::KIND].inc_by(bytes);
        Ok(())
    }

    async fn pull_data(
        &mut self,
        message: Bytes,
        mut landing: Landing,
    ) -> Result<Vec<Bytes>, TransportError> {
        self.check_part(&message, 0, 0)?;
        let session = &self.session;
        let (done, pushed) = oneshot::channel();
        {
            let mut calls = session.calls.lock();
            let Some(serving) = calls.open.get_mut(&self.call) else {
                drop(calls);
                return Err(session.call_gone_error());
            };
            if serving.pull.is_some() {
                return Err(TransportError::Bound { cause: CallRefusal::PushMemoryOut });
            }
            let header = FrameHeader {
                lent_bytes: landing.total_bytes(),
                ..FrameHeader::new(FrameKind::Wanted, self.call)
            };
            let lent = session.outlet.lend_landing(&mut landing);
            serving.pull = Some(PushLanding { landing, done });
            session
                .outlet
                .push_frame(OutgoingFrame::new(header, message, Vec::new()).with_segments(&lent));
        }
        session.outlet.flush_frames();
        pushed.await.map_err(|_| session.call_gone_error())
    }
}

impl<O: FrameOutlet> Drop for SessionReplyDriver<O> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let reason: &[u8] = if std::thread::panicking() {
            b"its handler panicked"
        } else {
            b"its handler ended before the last part"
        };
        self.session.finish_call(self.call, |pull_open| {
            let header = FrameHeader { pull_open, ..FrameHeader::new(FrameKind::Fail, self.call) };
            OutgoingFrame::new(header, Bytes::from_static(reason), Vec::new())
        });
    }
}
