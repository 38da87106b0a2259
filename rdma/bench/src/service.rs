//! Owns a host's answers to measuring requesters.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::message::{BenchHostInfo, MeasureOperation, MeasureRequest, MeasureResponse};
use super::pattern_pages::{PatternPages, borrow_landing};
use super::transfer_cost::TransferCost;
use verbs3_rdma::arena::Arena;
use verbs3_rdma::transport::{CallService, IncomingCall, ReplySender, TransportError};

pub(super) struct BenchService {
    pub(super) arena: Arena,
    pub(super) source: Arc<PatternPages>,
    pub(super) about: BenchHostInfo,
}

impl BenchService {
    async fn answer_request(
        &self,
        request: IncomingCall,
        mut reply: ReplySender,
    ) -> Result<(), TransportError> {
        let Some((ask, payload)) = MeasureRequest::decode(&request.message) else {
            let refusal = MeasureResponse::Refused("it does not know what was asked".into());
            return reply.send_last(refusal.encode(), 0, Vec::new()).await;
        };
        let answer = match ask.op {
            MeasureOperation::Echo => MeasureResponse::Fine(payload),
            MeasureOperation::Read if ask.bytes > request.landing_bytes => {
                MeasureResponse::Refused("the landing is too small".into())
            }
            MeasureOperation::Read => {
                let data = self.source.slice_pages(ask.from, ask.bytes);
                return reply
                    .send_last(MeasureResponse::Fine(Bytes::new()).encode(), 0, data)
                    .await;
            }
            MeasureOperation::Write => self.pull_payload(&ask, &mut reply).await?,
            MeasureOperation::Usage => {
                MeasureResponse::Fine(TransferCost::read_counters().encode())
            }
            MeasureOperation::About => MeasureResponse::Fine(self.about.encode()),
        };
        reply.send_last(answer.encode(), 0, Vec::new()).await
    }

    async fn pull_payload(
        &self,
        ask: &MeasureRequest,
        reply: &mut ReplySender,
    ) -> Result<MeasureResponse, TransportError> {
        let Some(landing) = borrow_landing(&self.arena, self.source.page_bytes(), ask.bytes) else {
            return Ok(MeasureResponse::Refused(
                "its memory is full; give it more, or lower the depth".into(),
            ));
        };
        let data = reply.pull_data(Bytes::new(), landing).await?;
        Ok(match self.source.check_data(&data, ask.from, ask.bytes, ask.whole) {
            Ok(()) => MeasureResponse::Fine(Bytes::new()),
            Err(at) => MeasureResponse::Refused(format!(
                "wrong bytes arrived, at offset {at} of {}",
                ask.bytes
            )),
        })
    }
}

#[async_trait]
impl CallService for BenchService {
    async fn serve_call(&self, request: IncomingCall, reply: ReplySender) {
        let peer = request.peer.clone();
        if let Err(error) = self.answer_request(request, reply).await {
            // The requester has the same error, and reports it.
            tracing::debug!(%peer, %error, "a call of a measurement ended early");
        }
    }
}
