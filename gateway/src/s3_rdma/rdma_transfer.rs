//! Moves one body into a client's memory. Its last piece goes once the body has ended as it should,
//! with the value that tells the client that all of it is there.

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt as _;
use verbs3_rdma::client_memory::{ClientEnd, ClientMemoryError, ClientConnection, ClientPlace};

use super::s3_rdma_metrics::TransferOutcome;

/// What is to be moved, and where to.
pub(crate) struct TransferOrder<B> {
    pub(crate) client: ClientEnd,
    pub(crate) place: ClientPlace,
    /// What the last write tells the client.
    pub(crate) cookie: u32,
    /// Length of the body.
    pub(crate) bytes: u64,
    pub(crate) body: B,
}

/// Moves the body. Pieces of it may be in the client's memory where this fails, and none comes
/// behind the writer's end.
pub(crate) async fn move_body<B: Body<Data = Bytes> + Unpin>(
    writer: &mut dyn ClientConnection,
    order: TransferOrder<B>,
) -> Result<(), TransferOutcome> {
    let TransferOrder { client, place, cookie, bytes, mut body } = order;
    writer.connect_client(client).await.map_err(outcome_of)?;
    let place_at =
        |offset: u64| ClientPlace { address: place.address.wrapping_add(offset), ..place };
    let (mut written, mut held) = (0, Bytes::new());
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Err(TransferOutcome::Unread) };
        let Ok(piece) = frame.into_data() else { continue };
        if (written + held.len() as u64).saturating_add(piece.len() as u64) > bytes {
            return Err(TransferOutcome::Unread);
        }
        if piece.is_empty() {
            continue;
        }
        if !held.is_empty() {
            writer.write_bytes(place_at(written), &held, None).await.map_err(outcome_of)?;
            written += held.len() as u64;
        }
        held = piece;
    }
    if held.is_empty() || written + held.len() as u64 != bytes {
        return Err(TransferOutcome::Unread);
    }
    writer.write_bytes(place_at(written), &held, Some(cookie)).await.map_err(outcome_of)?;
    // All is copied: a client that makes the device wait holds no memory of reads.
    drop((held, body));
    writer.await_written().await.map_err(outcome_of)
}

fn outcome_of(error: ClientMemoryError) -> TransferOutcome {
    match &error {
        ClientMemoryError::Refused(_) => {
            // The client's own doing, or its host's.
            tracing::debug!(error = ?error, "a transfer by RDMA has ended");
            TransferOutcome::Refused
        }
        ClientMemoryError::NoRail | ClientMemoryError::NoMemory | ClientMemoryError::Device(_) => {
            tracing::warn!(error = ?error, "a transfer by RDMA has ended");
            TransferOutcome::RailLost
        }
    }
}
