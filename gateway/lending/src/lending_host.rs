//! Declares what the server needs to be told: who a client is, whether it may still read, how much
//! it may lend, and what the answer to a request is.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http_body::Body;
use verbs3_doors::WaitingGuest;
use verbs3_lending_protocol::{
    IdentityClaim, LendingRefusal, LentHeadList, LentReadRequest, LentWriteRequest,
};
use verbs3_rdma::foreign_memory::BodyPlace;

use crate::lent_source::LentSource;

/// Says who a client is.
pub trait LendingHost: Send + Sync + 'static {
    /// A client that has proven who it is.
    type Guest: LendingGuest;

    /// Judges a claim, whose signature has to be over `nonce`. It is asked once for each nonce.
    /// `stranger`: the client's place among the unproven, which the guest takes along or gives up.
    fn prove_identity(
        &self,
        claim: &IdentityClaim,
        nonce: &[u8; 32],
        stranger: WaitingGuest,
    ) -> Result<Self::Guest, LendingRefusal>;
}

/// Takes the answers to a list of HEADs.
pub trait HeadListSink<B> {
    /// Takes the answer to the key at `index` of the list. The order does not matter.
    fn take_head(&mut self, index: usize, answer: Response<B>);
}

/// One client that has proven who it is, until its connection ends.
pub trait LendingGuest: Send + Sync + 'static {
    /// Bytes of an answer. Dropping it ends the request.
    type Body: Body<Data = Bytes, Error: Send> + Send + Unpin;
    /// What lent memory counts against. Dropping it gives it back.
    type MemoryPlace: Send + Sync + 'static;
    /// The right to a thread that maps memory. Dropping it gives it back.
    type MappingTurn: Send + 'static;

    /// Takes a place for memory that the client wants to lend. `None`: there is none left.
    fn take_memory(&self, bytes: u64) -> Option<Self::MemoryPlace>;

    /// Takes a place for bytes of workers that the client keeps where they lie. `None`: there is none
    /// left, or clients may not read them there.
    fn take_pages(&self, bytes: u64) -> Option<Self::MemoryPlace>;

    /// Waits for its turn to have memory mapped. `None`: it did not come in time. A client can keep
    /// its turn, and a thread, until it ends: its own call into the file may stand still under the
    /// kernel's lock.
    fn take_mapping_turn(&self) -> impl Future<Output = Option<Self::MappingTurn>> + Send;

    /// Returns whether the proven identity still exists, with the same secret. Asked before reads
    /// are taken, and every second.
    fn is_welcome(&self) -> bool;

    /// Answers one read. Never fails: a refusal is an answer. `place`: where its body lies in the end;
    /// pieces that are there already need no copy.
    fn answer_read(
        &self,
        request: LentReadRequest,
        place: Option<Arc<BodyPlace>>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Answers one write of the bytes of `source`. Never fails: a refusal is an answer. Dropping the
    /// future ends the write, and the source.
    fn answer_write(
        &self,
        request: LentWriteRequest,
        source: LentSource,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Answers HEADs, each as `answer_read` would, and hands each answer on as it comes.
    fn answer_heads(
        &self,
        list: LentHeadList,
        sink: &mut (dyn HeadListSink<Self::Body> + Send),
    ) -> impl Future<Output = ()> + Send;
}
