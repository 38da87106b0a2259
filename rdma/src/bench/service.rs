//! What a host answers to those who measure.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::message::{About, Answer, Ask, Op};
use super::source::{Source, landing};
use super::usage::Usage;
use crate::arena::Arena;
use crate::transport::{Incoming, Reply, Service, TransportError};

pub(super) struct BenchService {
    pub(super) arena: Arena,
    pub(super) source: Arc<Source>,
    pub(super) about: About,
}

impl BenchService {
    async fn answer(&self, request: Incoming, mut reply: Reply) -> Result<(), TransportError> {
        let Some((ask, payload)) = Ask::decode(&request.message) else {
            let refusal = Answer::Refused("it does not know what was asked".into());
            return reply.last(refusal.encode(), 0, Vec::new()).await;
        };
        let answer = match ask.op {
            Op::Echo => Answer::Fine(payload),
            Op::Read if ask.bytes > request.landing_bytes => {
                Answer::Refused("the landing is too small".into())
            }
            Op::Read => {
                let data = self.source.pieces(ask.from, ask.bytes);
                return reply.last(Answer::Fine(Bytes::new()).encode(), 0, data).await;
            }
            Op::Write => self.take(&ask, &mut reply).await?,
            Op::Usage => Answer::Fine(Usage::now().encode()),
            Op::About => Answer::Fine(self.about.encode()),
        };
        reply.last(answer.encode(), 0, Vec::new()).await
    }

    async fn take(&self, ask: &Ask, reply: &mut Reply) -> Result<Answer, TransportError> {
        let Some(landing) = landing(&self.arena, self.source.page_bytes(), ask.bytes) else {
            return Ok(Answer::Refused(
                "its memory is full; give it more, or lower the depth".into(),
            ));
        };
        let data = reply.pull(Bytes::new(), landing).await?;
        Ok(match self.source.check(&data, ask.from, ask.bytes, ask.whole) {
            Ok(()) => Answer::Fine(Bytes::new()),
            Err(at) => {
                Answer::Refused(format!("wrong bytes arrived, at offset {at} of {}", ask.bytes))
            }
        })
    }
}

#[async_trait]
impl Service for BenchService {
    async fn serve(&self, request: Incoming, reply: Reply) {
        let peer = request.peer.clone();
        if let Err(error) = self.answer(request, reply).await {
            // The requester has the same error, and says it.
            tracing::debug!(%peer, %error, "a call of a measurement ended early");
        }
    }
}
