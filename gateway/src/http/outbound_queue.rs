//! Owns what an answer holds while HTTP/2 has taken its frames and not sent them yet: its place
//! among the requests under way, its turn in the connection's progress, and the body with its
//! memory.
//!
//! Over HTTP/1 hyper drops a frame's bytes once the socket has them, and only then asks for the
//! next frame. Over HTTP/2 hyper queues the frames until the client's window takes them. The body
//! is dropped while its last frame still waits there.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use prometheus::IntGauge;

use super::client_progress::ProgressTurn;
use super::connection_caller::CallerVisit;
use crate::http_exchange::HeldPlaces;
use crate::write::body_budget::BodyPlace;

/// One answer in the queue.
pub(super) struct QueuedAnswer {
    left: Mutex<Option<AnswerRest>>,
    queued: IntGauge,
}

/// What the answer holds after its body has ended.
pub(super) struct AnswerRest {
    pub _body: s3s::Body,
    pub _turn: ProgressTurn,
    pub _places: HeldPlaces,
    pub _visit: Option<CallerVisit>,
    pub _place: Option<BodyPlace>,
}

/// A frame in the queue.
struct QueuedFrame {
    data: Bytes,
    answer: Arc<QueuedAnswer>,
}

impl QueuedAnswer {
    /// Makes an answer. `queued` counts the bytes that wait for the client's window.
    pub fn new(queued: IntGauge) -> Arc<Self> {
        Arc::new(Self { left: Mutex::new(None), queued })
    }

    /// Returns the same bytes, counted until they are dropped.
    pub fn enqueue_frame(self: &Arc<Self>, data: Bytes) -> Bytes {
        self.queued.add(bytes_of(&data));
        Bytes::from_owner(QueuedFrame { data, answer: self.clone() })
    }

    /// Holds `rest` until the last frame is dropped. Called when the body has ended or was given
    /// up.
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
