//! The gateway's side of the cache tier. Decides which worker to ask, how long to wait, whom to ask
//! next, and whether the bytes are right. Knows no HTTP and no UFS: where the tier can't help, it
//! says so, and the gateway asks the UFS.
#![forbid(unsafe_code)]

mod asking;
pub mod metrics;
mod neighbour_client;
mod options;
mod reading;
mod settings;
mod tier;
mod upkeep;
mod writing;

pub use asking::current_map::MissingPeer;
pub use asking::hot_blocks::HotBlockReplicas;
pub use asking::single_answer::{AnswerFlaw, OtherBytes, QuestionError};
pub use neighbour_client::{
    HeldRead, HeldRequest, NeighbourClient, NeighbourError, TakeOverOutcome,
};
pub use options::{TierOptions, TierOptionsError};
pub use reading::bypass_reason::BypassReason;
pub use reading::head_list::HeadListRequest;
pub use reading::kept_pages::KEPT_WORKER_PART;
pub use reading::lease_table::TierBootClock;
pub use reading::open_request::OpenRequest;
pub use reading::open_silence::OpenSilence;
pub use reading::opened_object::{OpenOutcome, OpenedObject};
pub use reading::span_read::SpanRead;
pub use reading::span_request::{ObjectBytesPlace, SpanItem, SpanRequest};
pub use settings::{NeighbourSettings, TierSettings};
pub use tier::{CacheTierClient, TierError};
pub use upkeep::block_tending::{InvalidObjects, TendError, TendFailure};
pub use upkeep::object_look::{ObjectLookError, ObjectLookOutcome};
pub use upkeep::page_warming::{WarmOutcome, WarmRequest};
pub use writing::coherence_error::{
    CoherenceError, HomeSilence, MapDisagreement, RelayError, RelayFailure, StandingDoubt,
};
pub use writing::page_staging::{SettleRequest, StageRequest};
pub use writing::relay_fallback::NoticeRelay;
pub use writing::write_announcement::TierWriteGuard;

#[cfg(test)]
mod tests;
