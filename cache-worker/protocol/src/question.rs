//! Pairs each question to a worker with the type of its answer. Gateways, workers that ask, and
//! workers that answer all go by these pairs.

use crate::block_read::{
    BlockPiece, HoldsMessage, HoldsReply, ReadMessage, TakeOver, TakeOverReply,
};
use crate::block_tending::{TendBlocksReply, TendMessage};
use crate::head_list::{HeadListMessage, HeadListReply};
use crate::invalidation::{ForgetMessage, ForgetPrefix, GoneVersion};
use crate::lease_recall::{RecallPollMessage, RecallReply};
use crate::listing::ListingMessage;
use crate::messages::{WorkerReply, WorkerRequest};
use crate::object_look::{ObjectLookMessage, ObjectLookReply};
use crate::object_open::{OpenAnswer, OpenMessage};
use crate::page_staging::{SettleMessage, SettledPages, StageMessage, StagedPages};
use crate::page_warming::{WarmAnswer, WarmMessage};
use crate::refusal::WorkerRefusal;
use crate::standing::{StandingQuestion, StandingReply};
use crate::write_notice::{AnnounceMessage, HomeAcknowledgement, ReportMessage, WriteNotice};

/// A question to a worker.
pub trait WorkerQuestion: Sized {
    /// What a worker answers. Of an answer in parts, one part.
    type Answer;

    /// Returns the question as it travels.
    fn into_request(self) -> WorkerRequest;

    /// Returns the answer as it travels.
    fn reply_from(answer: Self::Answer) -> WorkerReply;

    /// Returns the answer in a reply that is no refusal. Gives the reply back if it answers another
    /// question.
    fn answer_from(reply: WorkerReply) -> Result<Self::Answer, WorkerReply>;
}

/// Reason why a reply holds no answer to its question.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AnswerError {
    /// The worker does not do what it is asked. This is an outcome, not a fault of the worker.
    #[error(transparent)]
    Refused(#[from] WorkerRefusal),
    #[error(transparent)]
    Unexpected(#[from] UnexpectedAnswer),
}

/// Error: a reply answers another question than the one that was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it answered another question, with {reply}")]
pub struct UnexpectedAnswer {
    reply: &'static str,
}

impl WorkerReply {
    /// Returns the answer to a question of kind `Q`.
    pub fn into_answer<Q: WorkerQuestion>(self) -> Result<Q::Answer, AnswerError> {
        match self {
            Self::Refused(refusal) => Err(refusal.into()),
            reply => Q::answer_from(reply)
                .map_err(|reply| UnexpectedAnswer { reply: reply.name() }.into()),
        }
    }
}

/// Pairs of a question and an answer that each have one form on the wire.
macro_rules! pairs {
    ($($question:ty => $request:ident, $answer:ty => $reply:ident;)*) => {$(
        impl WorkerQuestion for $question {
            type Answer = $answer;

            fn into_request(self) -> WorkerRequest {
                WorkerRequest::$request(self)
            }

            fn reply_from(answer: $answer) -> WorkerReply {
                WorkerReply::$reply(answer)
            }

            fn answer_from(reply: WorkerReply) -> Result<$answer, WorkerReply> {
                match reply {
                    WorkerReply::$reply(answer) => Ok(answer),
                    other => Err(other),
                }
            }
        }
    )*};
}

pairs! {
    ReadMessage => Read, BlockPiece => Data;
    AnnounceMessage => Announce, HomeAcknowledgement => Acknowledged;
    ReportMessage => Report, HomeAcknowledgement => Acknowledged;
    ForgetMessage => Forget, HomeAcknowledgement => Acknowledged;
    ForgetPrefix => ForgetPrefix, HomeAcknowledgement => Acknowledged;
    GoneVersion => GoneVersion, HomeAcknowledgement => Acknowledged;
    ListingMessage => Listed, HomeAcknowledgement => Acknowledged;
    RecallPollMessage => Recalls, RecallReply => Recalled;
    ObjectLookMessage => Look, ObjectLookReply => Looked;
    HeadListMessage => HeadList, HeadListReply => Heads;
    TendMessage => Tend, TendBlocksReply => Tended;
    HoldsMessage => Holds, HoldsReply => Holds;
    TakeOver => TakeOver, TakeOverReply => TakenOver;
    StageMessage => Stage, StagedPages => Staged;
    SettleMessage => Settle, SettledPages => Settled;
}

impl WorkerQuestion for StandingQuestion {
    type Answer = StandingReply;

    fn into_request(self) -> WorkerRequest {
        WorkerRequest::Standing
    }

    fn reply_from(answer: StandingReply) -> WorkerReply {
        WorkerReply::Standing(answer)
    }

    fn answer_from(reply: WorkerReply) -> Result<StandingReply, WorkerReply> {
        match reply {
            WorkerReply::Standing(answer) => Ok(answer),
            other => Err(other),
        }
    }
}

impl WorkerQuestion for OpenMessage {
    type Answer = OpenAnswer;

    fn into_request(self) -> WorkerRequest {
        WorkerRequest::Open(self)
    }

    fn reply_from(answer: OpenAnswer) -> WorkerReply {
        match answer {
            OpenAnswer::Opened(opened) => WorkerReply::Opened(opened),
            OpenAnswer::Absent(absent) => WorkerReply::Absent(absent),
        }
    }

    fn answer_from(reply: WorkerReply) -> Result<OpenAnswer, WorkerReply> {
        match reply {
            WorkerReply::Opened(opened) => Ok(OpenAnswer::Opened(opened)),
            WorkerReply::Absent(absent) => Ok(OpenAnswer::Absent(absent)),
            other => Err(other),
        }
    }
}

impl WorkerQuestion for WarmMessage {
    type Answer = WarmAnswer;

    fn into_request(self) -> WorkerRequest {
        WorkerRequest::Warm(self)
    }

    fn reply_from(answer: WarmAnswer) -> WorkerReply {
        match answer {
            WarmAnswer::Warmed(warmed) => WorkerReply::Warmed(warmed),
            WarmAnswer::Absent(absent) => WorkerReply::Absent(absent),
        }
    }

    fn answer_from(reply: WorkerReply) -> Result<WarmAnswer, WorkerReply> {
        match reply {
            WorkerReply::Warmed(warmed) => Ok(WarmAnswer::Warmed(warmed)),
            WorkerReply::Absent(absent) => Ok(WarmAnswer::Absent(absent)),
            other => Err(other),
        }
    }
}

/// A notice travels as the announcement or the report that it is.
impl WorkerQuestion for WriteNotice {
    type Answer = HomeAcknowledgement;

    fn into_request(self) -> WorkerRequest {
        match self {
            Self::Announce(announce) => announce.into_request(),
            Self::Report(report) => report.into_request(),
        }
    }

    fn reply_from(answer: HomeAcknowledgement) -> WorkerReply {
        WorkerReply::Acknowledged(answer)
    }

    fn answer_from(reply: WorkerReply) -> Result<HomeAcknowledgement, WorkerReply> {
        ReportMessage::answer_from(reply)
    }
}
