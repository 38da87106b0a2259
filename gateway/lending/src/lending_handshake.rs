//! Takes a connection from its beginning to lent memory: hello, claim, verdict, offer, verdict. Owns
//! the order. Nothing of a client is kept, read or mapped before its claim has held.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use verbs3_doors::WaitingGuest;
use verbs3_lending_protocol::{
    CLAIM_BYTES_MAX, IdentityClaim, LendingHello, LendingRefusal, LendingVerdict, RingLayout,
};

use crate::lending_host::{LendingGuest, LendingHost};
use crate::lent_memory::{judge_memory, map_memory};
use crate::memory_offer::receive_offer;
use crate::session_memory::SessionMemory;

/// A client with its memory.
pub(crate) struct LendingClient<G: LendingGuest> {
    pub(crate) guest: G,
    pub(crate) memory: SessionMemory,
    pub(crate) layout: RingLayout,
}

/// Reason why there is no client.
#[derive(Debug)]
pub(crate) enum HandshakeEnd {
    /// The client was told.
    Refused(LendingRefusal),
    /// It hung up.
    Gone(io::Error),
}

impl From<io::Error> for HandshakeEnd {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

/// A claim that nobody has judged yet.
pub(crate) struct ReceivedClaim {
    pub(crate) claim: IdentityClaim,
    /// What its signature has to be over.
    pub(crate) nonce: [u8; 32],
}

/// Receives what a client claims of itself, with the nonce that its signature has to be over.
pub(crate) async fn receive_claim(
    stream: &mut UnixStream,
    memory_bytes_max: u64,
) -> Result<ReceivedClaim, HandshakeEnd> {
    let nonce: [u8; 32] = rand::random();
    stream.write_all(&LendingHello { nonce, memory_bytes_max }.encode_hello()).await?;
    let mut length = [0; 2];
    stream.read_exact(&mut length).await?;
    let length = usize::from(u16::from_le_bytes(length));
    if length > CLAIM_BYTES_MAX {
        return Err(refuse_client(stream, LendingRefusal::Malformed).await);
    }
    let mut claim = vec![0; length];
    stream.read_exact(&mut claim).await?;
    match IdentityClaim::decode_claim(&claim) {
        Ok(claim) => Ok(ReceivedClaim { claim, nonce }),
        Err(_) => Err(refuse_client(stream, LendingRefusal::Malformed).await),
    }
}

/// Has the host judge a claim, and tells the client.
pub(crate) async fn prove_client<H: LendingHost>(
    stream: &mut UnixStream,
    host: &H,
    stranger: WaitingGuest,
    received: ReceivedClaim,
) -> Result<H::Guest, HandshakeEnd> {
    let ReceivedClaim { claim, nonce } = received;
    match host.prove_identity(&claim, &nonce, stranger) {
        Ok(guest) => {
            stream.write_all(&LendingVerdict(Ok(())).encode_verdict()).await?;
            Ok(guest)
        }
        Err(refusal) => Err(refuse_client(stream, refusal).await),
    }
}

/// Goes through the second half: the memory.
pub(crate) async fn take_memory<G: LendingGuest>(
    stream: &mut UnixStream,
    guest: G,
    memory_bytes_max: u64,
) -> Result<LendingClient<G>, HandshakeEnd> {
    let (offer, file) = match receive_offer(stream).await? {
        Ok(offered) => offered,
        Err(refusal) => return Err(refuse_client(stream, refusal).await),
    };
    let judged = judge_memory(&file, memory_bytes_max).and_then(|bytes| {
        let layout = RingLayout::check_offer(offer, bytes).map_err(|_| LendingRefusal::Layout)?;
        let place = guest.take_memory(bytes).ok_or(LendingRefusal::MemoryTotal)?;
        Ok((bytes, layout, place))
    });
    let (bytes, layout, place) = match judged {
        Ok(judged) => judged,
        Err(refusal) => return Err(refuse_client(stream, refusal).await),
    };
    let Some(turn) = guest.take_mapping_turn().await else {
        return Err(refuse_client(stream, LendingRefusal::Clients).await);
    };
    // All goes along: a client can make the kernel keep the thread, and counts until it is free.
    let mapping = move || {
        let _turn = turn;
        let mapping = map_memory(&file, bytes)?;
        let memory = SessionMemory::new(mapping, place).map_err(|_| LendingRefusal::Pages)?;
        Ok(LendingClient { guest, memory, layout })
    };
    let mapped = tokio::task::spawn_blocking(mapping).await;
    match mapped.unwrap_or(Err(LendingRefusal::Pages)) {
        Ok(client) => {
            stream.write_all(&LendingVerdict(Ok(())).encode_verdict()).await?;
            Ok(client)
        }
        Err(refusal) => Err(refuse_client(stream, refusal).await),
    }
}

async fn refuse_client(stream: &mut UnixStream, refusal: LendingRefusal) -> HandshakeEnd {
    // It may not wait for the reason.
    let _ = stream.write_all(&LendingVerdict(Err(refusal)).encode_verdict()).await;
    HandshakeEnd::Refused(refusal)
}
