//! Bodies on their way through the proxy: whole, cut, of another length, slow, or held in the
//! middle.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};

use super::{Fault, Faults};

pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Body = UnsyncBoxBody<Bytes, Error>;

pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub fn whole(body: Incoming) -> Body {
    body.map_err(Error::from).boxed_unsync()
}

/// The first `length` bytes, and then an error, which ends the connection that the body is sent on.
pub fn cut(body: Incoming, length: usize) -> Body {
    stream(body, Plan { left: length, then: Then::Break, ..Plan::default() })
}

/// The body of an answer, as the fault has it.
pub fn answer(body: Incoming, length: usize, fault: Option<&Fault>, faults: &Faults) -> Body {
    match fault {
        Some(Fault::BodyCut { after }) => cut(body, *after),
        Some(Fault::OtherLength { by }) => {
            let more = usize::try_from(*by).unwrap_or(0);
            let left = length.saturating_sub(usize::try_from(-by).unwrap_or(0));
            stream(body, Plan { left, then: Then::Add(more), ..Plan::default() })
        }
        Some(Fault::Slow { pause, .. }) => stream(body, Plan { pause: *pause, ..Plan::default() }),
        Some(Fault::Held { after }) => {
            stream(body, Plan { left: *after, then: Then::Hold(faults.clone()), ..Plan::default() })
        }
        _ => whole(body),
    }
}

struct Plan {
    /// Bytes that are passed on before `then`.
    left: usize,
    then: Then,
    pause: Duration,
}

enum Then {
    End,
    Break,
    Add(usize),
    Hold(Faults),
}

impl Default for Plan {
    fn default() -> Self {
        Self { left: usize::MAX, then: Then::End, pause: Duration::ZERO }
    }
}

fn stream(body: Incoming, plan: Plan) -> Body {
    let pieces = futures::stream::unfold((body.into_data_stream(), plan, Bytes::new()), next);
    StreamBody::new(pieces.map(|piece| piece.map(Frame::data))).boxed_unsync()
}

type State = (http_body_util::BodyDataStream<Incoming>, Plan, Bytes);

/// One piece. `rest` is what was read beyond the place where the body is held.
async fn next((mut body, mut plan, mut rest): State) -> Option<(Result<Bytes, Error>, State)> {
    if plan.left == 0 {
        match std::mem::replace(&mut plan.then, Then::End) {
            Then::End | Then::Add(0) => return None,
            Then::Break => return Some((Err("cut by the proxy".into()), (body, plan, rest))),
            Then::Add(more) => {
                return Some((Ok(Bytes::from(vec![b'x'; more])), (body, plan, rest)));
            }
            Then::Hold(faults) => {
                faults.hold().await;
                plan.left = usize::MAX;
            }
        }
    }
    let piece = if rest.is_empty() {
        tokio::time::sleep(plan.pause).await;
        match body.next().await {
            Some(Ok(piece)) => piece,
            Some(Err(error)) => return Some((Err(error.into()), (body, plan, rest))),
            None if matches!(plan.then, Then::Add(_)) => {
                plan.left = 0;
                return Box::pin(next((body, plan, rest))).await;
            }
            None => return None,
        }
    } else {
        std::mem::take(&mut rest)
    };
    let length = piece.len().min(plan.left);
    rest = piece.slice(length..);
    if plan.left != usize::MAX {
        plan.left -= length;
    }
    Some((Ok(piece.slice(..length)), (body, plan, rest)))
}
