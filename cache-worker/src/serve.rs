//! Answers questions. `serve_question` is the switch of all of them; `question.rs` of
//! `cache-worker/protocol/` pairs each with its answer. What one stage can answer is answered there
//! (`home/`, `pages/`); what needs both has a file here. Errors are answers; no input from a peer
//! causes a panic.

mod asking_roles;
mod head_list;
mod holds;
mod look;
mod open;
mod read;
mod relayed_notice;
mod settle;
mod signs_of_life;
mod stage;
mod take_over;
mod warm;

use async_trait::async_trait;
use bytes::Bytes;
use verbs3_protocol::{
    HeadListMessage, HoldsMessage, HomeAcknowledgement, ObjectLookMessage, ReadMessage, ReadSource,
    RecallPollMessage, RefusalKind, RequestEnvelope, SettleMessage, StageMessage, StandingQuestion,
    StandingReply, TakeOver, TenantTag, TendMessage, WarmMessage, WorkerQuestion, WorkerRefusal,
    WorkerReply as Message, WorkerRequest,
};
use verbs3_rdma::transport::{CallService, IncomingCall, ReplySender};

use crate::call_trace::{note_refused, note_served};
use crate::home::{ChangeReceipt, ChangeResult};
use crate::metrics::{CountedRefusal, ServedVerdict};
use crate::pages::{BlockSpanReader, SpanReplyChunk};
use crate::serve_refusal::ServeRefusal;
use crate::tenants::TenantAccount;
use crate::worker::CacheWorker;
use asking_roles::check_asker;
use signs_of_life::with_signs_of_life;
use stage::StagingCall;

#[async_trait]
impl CallService for CacheWorker {
    async fn serve_call(&self, request: IncomingCall, reply: ReplySender) {
        let peer = request.peer_name().into();
        let terms = |account| CallTerms { account, landing_bytes: request.landing_bytes, peer };
        let decoded = RequestEnvelope::decode(&request.message).map_err(ServeRefusal::from);
        let allowed = decoded
            .and_then(|envelope| check_asker(&request, &envelope.question).map(|()| envelope));
        match allowed {
            Ok(RequestEnvelope { trace: None, tenant, question }) => {
                let terms = terms(self.account_of(&question, tenant.as_ref()));
                self.serve_question(question, terms, reply).await;
            }
            Ok(RequestEnvelope { trace: Some(context), tenant, question }) => {
                let span = span_name(&question);
                let terms = terms(self.account_of(&question, tenant.as_ref()));
                // Boxed: few calls are traced, and all would be twice as large.
                let serve = Box::pin(self.serve_question(question, terms, reply));
                self.tracing.serve_traced(&context, span, serve).await;
            }
            Err(refused) => self.refuse_request(reply, refused).await,
        }
    }
}

/// What a question comes with.
struct CallTerms {
    account: TenantAccount,
    landing_bytes: u64,
    /// Name of who asks.
    peer: Box<str>,
}

/// Where the names of all spans of a worker begin.
const SPAN_PREFIX: &str = "verbs3.worker.";

/// Returns the name of the span of a traced call.
fn span_name(question: &WorkerRequest) -> &'static str {
    match question {
        WorkerRequest::Open(_) => "verbs3.worker.open",
        WorkerRequest::Read(_) => "verbs3.worker.read",
        WorkerRequest::Announce(_) => "verbs3.worker.announce",
        WorkerRequest::Report(_) => "verbs3.worker.report",
        WorkerRequest::Forget(_) | WorkerRequest::ForgetPrefix(_) => "verbs3.worker.forget",
        WorkerRequest::GoneVersion(_) => "verbs3.worker.gone_version",
        WorkerRequest::Listed(_) => "verbs3.worker.listed",
        WorkerRequest::Recalls(_) => "verbs3.worker.recalls",
        WorkerRequest::Standing => "verbs3.worker.standing",
        WorkerRequest::Warm(_) => "verbs3.worker.warm",
        WorkerRequest::Look(_) => "verbs3.worker.look",
        WorkerRequest::Tend(_) => "verbs3.worker.tend",
        WorkerRequest::Holds(_) => "verbs3.worker.holds",
        WorkerRequest::TakeOver(_) => "verbs3.worker.take_over",
        WorkerRequest::HeadList(_) => "verbs3.worker.head_list",
        WorkerRequest::Stage(_) => "verbs3.worker.stage",
        WorkerRequest::Settle(_) => "verbs3.worker.settle",
    }
}

impl CacheWorker {
    /// Returns whose memory, disk, fills and announced writes a question counts against. Nobody is
    /// noted for those that take none of these.
    fn account_of(&self, question: &WorkerRequest, tenant: Option<&TenantTag>) -> TenantAccount {
        let now_s = || self.clock.now().as_secs();
        match question {
            WorkerRequest::Read(ReadMessage { from: ReadSource::Held, .. }) => {
                TenantAccount::NOBODY
            }
            WorkerRequest::Open(_)
            | WorkerRequest::HeadList(_)
            | WorkerRequest::Read(_)
            | WorkerRequest::Announce(_)
            | WorkerRequest::Report(_)
            | WorkerRequest::Stage(_) => self.tenants.note_request(tenant, now_s()),
            // Jobs load at the coordinators' word, which names no tenant.
            WorkerRequest::Warm(_) if tenant.is_none() => {
                self.tenants.note_account(TenantAccount::JOBS, now_s())
            }
            WorkerRequest::Warm(_) => self.tenants.note_request(tenant, now_s()),
            _ => TenantAccount::NOBODY,
        }
    }

    /// Answers one question, whoever asks it, traced or not.
    async fn serve_question(
        &self,
        question: WorkerRequest,
        terms: CallTerms,
        mut reply: ReplySender,
    ) {
        let CallTerms { account, landing_bytes, peer } = terms;
        match question {
            WorkerRequest::Open(open) => self.serve_open(open, account, landing_bytes, reply).await,
            WorkerRequest::Read(read) => self.serve_read(read, account, landing_bytes, reply).await,
            WorkerRequest::Announce(announce) => {
                self.acknowledge_change(self.home.answer_announce(&announce, account), reply).await;
            }
            WorkerRequest::Report(report) => {
                self.acknowledge_change(self.home.answer_report(&report, account), reply).await;
            }
            WorkerRequest::Forget(forget) => {
                self.acknowledge_change(self.home.answer_forget(&forget), reply).await;
            }
            WorkerRequest::ForgetPrefix(forget) => {
                self.acknowledge_change(self.home.forget_prefix(&forget), reply).await;
            }
            WorkerRequest::GoneVersion(gone) => {
                self.acknowledge_change(self.home.drop_gone_version(&gone), reply).await;
            }
            WorkerRequest::Listed(listed) => {
                self.acknowledge_change(self.home.answer_listed(listed), reply).await;
            }
            WorkerRequest::Recalls(poll) => {
                let answer = self.home.answer_recalls(poll).await;
                self.send_answer::<RecallPollMessage>(answer, reply).await;
            }
            WorkerRequest::Standing => {
                let answer = StandingReply {
                    epoch: self.home.standing.current_epoch(),
                    leased: self.home.standing.is_leased(self.clock.read_times()),
                };
                self.send_answer::<StandingQuestion>(Ok(answer), reply).await;
            }
            WorkerRequest::Warm(warm) => {
                let warming = self.answer_warm(warm, account);
                let Some(answer) = with_signs_of_life(&mut reply, warming).await else { return };
                self.send_answer::<WarmMessage>(answer, reply).await;
            }
            WorkerRequest::Look(look) => {
                self.send_answer::<ObjectLookMessage>(self.answer_look(look), reply).await;
            }
            WorkerRequest::HeadList(list) => {
                let answer = self.answer_head_list(list, account);
                self.send_answer::<HeadListMessage>(answer, reply).await;
            }
            WorkerRequest::Tend(tend) => {
                let tending = self.pages.tend_blocks(tend);
                let Some(answer) = with_signs_of_life(&mut reply, tending).await else { return };
                self.send_answer::<TendMessage>(answer, reply).await;
            }
            WorkerRequest::Holds(holds) => {
                self.send_answer::<HoldsMessage>(self.answer_holds(&holds), reply).await;
            }
            WorkerRequest::TakeOver(block) => {
                let answer = self.answer_take_over(block).await;
                self.send_answer::<TakeOver>(answer, reply).await;
            }
            WorkerRequest::Stage(stage) => {
                let staging = StagingCall { account, peer };
                let answer = self.answer_stage(stage, staging, &mut reply).await;
                self.send_answer::<StageMessage>(answer, reply).await;
            }
            WorkerRequest::Settle(settle) => {
                let answer = self.answer_settle(settle, peer).await;
                self.send_answer::<SettleMessage>(answer, reply).await;
            }
        }
    }

    /// Sends the one answer of a question.
    async fn send_answer<Q: WorkerQuestion>(
        &self,
        answer: Result<Q::Answer, ServeRefusal>,
        reply: ReplySender,
    ) {
        match answer {
            Ok(answer) => send_message(reply, &Q::reply_from(answer)).await,
            Err(refused) => self.refuse_request(reply, refused).await,
        }
    }

    /// Acknowledges a writer's notice or an invalidation to who sent it here. This is the only place
    /// that does (`relayed_notice` answers by way of the coordinators): no gateway may still read on
    /// from what was invalidated.
    async fn acknowledge_change(&self, noted: ChangeResult, mut reply: ReplySender) {
        let ChangeReceipt { generation, hold, concerned } = match noted {
            Ok(noted) => noted,
            Err(refused) => return self.refuse_request(reply, refused).await,
        };
        let settled = self.home.grants.wait_for_recalls(&concerned, &*self.clock);
        if with_signs_of_life(&mut reply, settled).await.is_some() {
            let answer = HomeAcknowledgement { generation, hold };
            send_message(reply, &Message::Acknowledged(answer)).await;
        }
    }

    async fn refuse_request(&self, reply: ReplySender, refused: ServeRefusal) {
        let refusal = WorkerRefusal::from(refused);
        self.count_refused(&refusal.kind);
        note_refused(&refusal.reason);
        tracing::debug!(kind = ?refusal.kind, reason = %refusal.reason, "refused");
        send_message(reply, &Message::Refused(refusal)).await;
    }

    fn count_refused(&self, kind: &RefusalKind) {
        let metrics = &self.metrics;
        let counter = match kind {
            RefusalKind::Uncertain => &metrics.refusals[CountedRefusal::Uncertain],
            RefusalKind::Busy => &metrics.refusals[CountedRefusal::Busy],
            RefusalKind::Uncacheable => &metrics.refusals[CountedRefusal::Uncacheable],
            RefusalKind::VersionGone => &metrics.refusals[CountedRefusal::VersionGone],
            RefusalKind::Ufs(_) => &metrics.refusals[CountedRefusal::Ufs],
            RefusalKind::UfsUnreachable => &metrics.refusals[CountedRefusal::UfsUnreachable],
            RefusalKind::UnknownVolume => &metrics.refusals[CountedRefusal::UnknownVolume],
            RefusalKind::GeometryMismatch(_) => &metrics.refusals[CountedRefusal::Geometry],
            RefusalKind::Malformed => &metrics.refusals[CountedRefusal::Malformed],
            RefusalKind::Denied => &metrics.refusals[CountedRefusal::Denied],
            RefusalKind::WrongEpoch(_) => &metrics.refusals[CountedRefusal::Epoch],
            RefusalKind::NoLease => &metrics.refusals[CountedRefusal::NoLease],
            RefusalKind::NotHeld => &metrics.refusals[CountedRefusal::NotHeld],
        };
        counter.inc();
    }

    fn count_served(&self, chunk: &SpanReplyChunk) {
        use verbs3_protocol::CacheVerdict::{Hit, Miss, Partial};
        let (counter, verdict) = match chunk.piece.verdict {
            Hit => (&self.metrics.served_bytes[ServedVerdict::Hit], "hit"),
            Partial => (&self.metrics.served_bytes[ServedVerdict::Partial], "partial"),
            Miss => (&self.metrics.served_bytes[ServedVerdict::Miss], "miss"),
        };
        let bytes = u64::from(chunk.piece.length);
        counter.inc_by(bytes);
        note_served(verdict, bytes);
    }

    /// Sends the remaining bytes as `Data` parts. A failure is the last part.
    async fn send_rest(&self, mut reading: BlockSpanReader<'_>, mut reply: ReplySender) {
        loop {
            let Some(next) = with_signs_of_life(&mut reply, reading.next()).await else { return };
            match next {
                Ok(chunk) => {
                    let last = reading.is_done();
                    self.count_served(&chunk);
                    let SpanReplyChunk { piece, offset, data } = chunk;
                    let message = Message::Data(piece).encode();
                    if last {
                        return send_last_part(reply, message, offset, data).await;
                    }
                    if let Err(error) = reply.send_part(message, offset, data).await {
                        tracing::debug!(%error, "a reader has gone");
                        return;
                    }
                }
                Err(failure) => return self.refuse_request(reply, failure.into()).await,
            }
        }
    }
}

/// Largest message, below the 64 KiB that the transports' frames hold by default. A UFS's own error
/// page, or attributes, may be larger. The gateway then gets them whole from the UFS itself.
const MESSAGE_BYTES_MAX: usize = 60 << 10;

async fn send_message(reply: ReplySender, message: &Message) {
    let message = bound_message(message.encode()).unwrap_or_else(|refusal| refusal);
    send_last_part(reply, message, 0, Vec::new()).await;
}

/// Returns the message, or the refusal to send in its place.
fn bound_message(message: Bytes) -> Result<Bytes, Bytes> {
    if message.len() <= MESSAGE_BYTES_MAX {
        return Ok(message);
    }
    Err(Message::Refused(ServeRefusal::LargeAnswer(message.len()).into()).encode())
}

async fn send_last_part(reply: ReplySender, message: Bytes, offset: u64, data: Vec<Bytes>) {
    if let Err(error) = reply.send_last(message, offset, data).await {
        tracing::debug!(%error, "a reader has gone");
    }
}
