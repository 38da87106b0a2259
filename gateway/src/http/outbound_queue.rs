//! Answers that HTTP/2 has taken and not yet sent. Owns what such an answer holds until its last
//! byte has left: its place among the requests under way, its turn in the connection's progress,
//! and the body with the memory that is counted for it.
//!
//! Over HTTP/1 hyper drops a frame's bytes when the socket has them, and asks for the next one
//! then. Over HTTP/2 it gives them to a queue, which waits for the client's window for as long as
//! that takes; the body is dropped while its last frame waits there.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use prometheus::IntGauge;

use super::client_progress::ProgressTurn;
use super::connection_caller::CallerVisit;
use crate::exchange::RequestPlaceAndShare;
use crate::write::body_budget::BodyPlace;

/// One answer.
pub(super) struct QueuedAnswer {
    left: Mutex<Option<AnswerRest>>,
    queued: IntGauge,
}

/// What is held for it once its body has ended.
pub(super) struct AnswerRest {
    pub _body: s3s::Body,
    pub _turn: ProgressTurn,
    pub _places: RequestPlaceAndShare,
    pub _visit: Option<CallerVisit>,
    pub _place: Option<BodyPlace>,
}

/// Bytes in the queue.
struct QueuedFrame {
    data: Bytes,
    answer: Arc<QueuedAnswer>,
}

impl QueuedAnswer {
    /// `queued` counts the bytes that wait for the client's window.
    pub fn new(queued: IntGauge) -> Arc<Self> {
        Arc::new(Self { left: Mutex::new(None), queued })
    }

    /// The same bytes, counted until they are dropped.
    pub fn enqueue_frame(self: &Arc<Self>, data: Bytes) -> Bytes {
        self.queued.add(bytes_of(&data));
        Bytes::from_owner(QueuedFrame { data, answer: self.clone() })
    }

    /// The body has ended or was given up: `rest` is held until the last of its frames is dropped.
    pub fn hold_rest(self: Arc<Self>, rest: AnswerRest) {
        *self.left.lock() = Some(rest);
    }
}

fn bytes_of(data: &Bytes) -> i64 {
    i64::try_from(data.len()).unwrap_or(i64::MAX)
}

impl AsRef<[u8]> for QueuedFrame {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for QueuedFrame {
    fn drop(&mut self) {
        self.answer.queued.sub(bytes_of(&self.data));
    }
}
