//! S3 over RDMA for clients that are no members of the cluster (docs/s3-over-rdma.md). Who asks is
//! `control_sender`'s to prove, what is asked `hipobj_question`'s to read. `rdma_sessions` keeps
//! what is prepared, `rdma_transfer` moves a body, and `control_answers` says what became of it.
//!
//! `rdma_decline` keeps requests right that ask for a payload by RDMA and don't get it so. Asks for
//! no object, and moves no byte by itself: `http/rdma_requests` and `verbs3_rdma` do.

mod control_answers;
mod control_sender;
mod hipobj_question;
mod hipobj_token;
mod pulled_body;
mod rdma_decline;
mod rdma_sessions;
mod rdma_transfer;
mod s3_rdma_metrics;
mod s3_rdma_settings;
mod upload_headers;

pub(crate) use control_answers::{
    fault_answer, order_refusal_answer, outcome_answer, prepared_answer, refusal_answer,
    status_answer,
};
pub(crate) use control_sender::{ControlSender, prove_sender};
pub(crate) use hipobj_question::{
    PrepareQuestion, QuestionFault, ReadyQuestion, TransferOperation, read_cancel, read_prepare,
    read_ready,
};
pub(crate) use pulled_body::{PulledBody, make_pulled_body};
pub(crate) use rdma_decline::{RdmaWish, control_step, unsupported_dialect};
pub(crate) use rdma_sessions::{PreparedTransfer, RdmaEndpoints, RdmaSessions, TakenSession};
pub(crate) use rdma_transfer::{MoveOrder, TransferOrder, UploadOrder};
pub(crate) use s3_rdma_metrics::{S3RdmaMetrics, TransferOutcome};
pub use s3_rdma_settings::S3OverRdmaSettings;
pub(crate) use upload_headers::upload_headers;
