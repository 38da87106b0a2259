//! Moves one body into a client's memory, or out of it. The last piece into it goes once the body has
//! ended as it should, with the value that tells the client that all of it is there.

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt as _;
use verbs3_rdma::client_memory::{ClientConnection, ClientEnd, ClientMemoryError, ClientPlace};

use super::s3_rdma_metrics::TransferOutcome;
use super::upload_body::UploadFeed;

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

/// What is to be read, and who takes it.
pub(crate) struct UploadOrder {
    pub(crate) client: ClientEnd,
    pub(crate) place: ClientPlace,
    pub(crate) bytes: u64,
    pub(crate) feed: UploadFeed,
}

/// Either.
pub(crate) enum MoveOrder<B> {
    Download(TransferOrder<B>),
    Upload(UploadOrder),
}

/// Moves what is ordered.
pub(crate) async fn move_order<B: Body<Data = Bytes> + Unpin>(
    connection: &mut dyn ClientConnection,
    order: MoveOrder<B>,
) -> Result<(), TransferOutcome> {
    match order {
        MoveOrder::Download(order) => move_body(connection, order).await,
        MoveOrder::Upload(order) => read_body(connection, order).await,
    }
}

/// Reads the body, as far ahead as the connection lets it. Where this fails, the body breaks off.
async fn read_body(
    connection: &mut dyn ClientConnection,
    order: UploadOrder,
) -> Result<(), TransferOutcome> {
    let UploadOrder { client, place, bytes, feed } = order;
    connection.connect_client(client).await.map_err(outcome_of)?;
    let (mut posted, mut taken) = (0, 0);
    while taken < bytes {
        while posted < bytes {
            let next = ClientPlace { address: place.address.wrapping_add(posted), ..place };
            match connection.post_read(next, bytes - posted).map_err(outcome_of)? {
                0 => break,
                more => posted += more,
            }
        }
        let piece = tokio::select! {
            biased;
            () = feed.await_write_end() => return Err(TransferOutcome::Unstored),
            piece = connection.take_read() => piece.map_err(outcome_of)?,
        };
        let piece = piece.ok_or(TransferOutcome::RailLost)?;
        taken += piece.len() as u64;
        feed.pass_piece(piece).await.map_err(|_| TransferOutcome::Unstored)?;
    }
    feed.end_body().await.map_err(|_| TransferOutcome::Unstored)
}

/// Writes the body. Pieces of it may be in the client's memory where this fails, and none comes
/// behind the connection's end.
async fn move_body<B: Body<Data = Bytes> + Unpin>(
    connection: &mut dyn ClientConnection,
    order: TransferOrder<B>,
) -> Result<(), TransferOutcome> {
    let TransferOrder { client, place, cookie, bytes, mut body } = order;
    connection.connect_client(client).await.map_err(outcome_of)?;
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
            connection.write_bytes(place_at(written), &held, None).await.map_err(outcome_of)?;
            written += held.len() as u64;
        }
        held = piece;
    }
    if held.is_empty() || written + held.len() as u64 != bytes {
        return Err(TransferOutcome::Unread);
    }
    connection.write_bytes(place_at(written), &held, Some(cookie)).await.map_err(outcome_of)?;
    // All is copied: a client that makes the device wait holds no memory of reads.
    drop((held, body));
    connection.await_written().await.map_err(outcome_of)
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
