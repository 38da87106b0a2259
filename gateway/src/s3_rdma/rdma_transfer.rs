//! Moves one body into a client's memory, or out of it. The last piece into it goes once the body
//! has ended as it should, with the value that tells the client that all of it is there.

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt as _;
use verbs3_rdma::client_memory::{ClientConnection, ClientEnd, ClientMemoryError, ClientPlace};

use super::pulled_body::PulledBodyFeed;
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

/// What is to be read, and who takes it.
pub(crate) struct UploadOrder {
    pub(crate) client: ClientEnd,
    pub(crate) place: ClientPlace,
    pub(crate) bytes: u64,
    pub(crate) feed: PulledBodyFeed,
}

/// Either.
pub(crate) enum MoveOrder<B> {
    Download(TransferOrder<B>),
    Upload(UploadOrder),
}

impl<B> MoveOrder<B> {
    /// Waits until there is something to do. A write waits under bounds of its own; nothing is read
    /// for one that is refused.
    pub(super) async fn await_need(&self) -> Result<(), TransferOutcome> {
        match self {
            Self::Download(_) => Ok(()),
            Self::Upload(order) => {
                order.feed.await_wanted().await.map_err(|_| TransferOutcome::Unstored)
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use async_trait::async_trait;
    use http_body_util::Empty;
    use verbs3_rdma::client_memory::{OwnEnd, PortGid};

    use super::super::pulled_body::make_pulled_body;
    use super::*;

    const PIECE_BYTES: u64 = 10;
    const AHEAD: usize = 3;

    /// A client whose byte at each address is that address.
    struct AddressClient {
        posted: VecDeque<(u64, u64)>,
        posts: usize,
    }

    #[async_trait]
    impl ClientConnection for AddressClient {
        fn own_end(&self) -> OwnEnd {
            OwnEnd { pair_number: 1, gid: PortGid([1; 16]), first_packet: 1, port: 1 }
        }
        async fn connect_client(&mut self, _: ClientEnd) -> Result<(), ClientMemoryError> {
            Ok(())
        }
        async fn write_bytes(
            &mut self,
            _: ClientPlace,
            _: &[u8],
            _: Option<u32>,
        ) -> Result<(), ClientMemoryError> {
            Err(ClientMemoryError::NoRail)
        }
        fn post_read(&mut self, place: ClientPlace, most: u64) -> Result<u64, ClientMemoryError> {
            if self.posted.len() == AHEAD {
                return Ok(0);
            }
            self.posts += 1;
            self.posted.push_back((place.address, most.min(PIECE_BYTES)));
            Ok(most.min(PIECE_BYTES))
        }
        async fn take_read(&mut self) -> Result<Option<Bytes>, ClientMemoryError> {
            let read = |(from, bytes)| (from..from + bytes).map(|at: u64| at as u8).collect();
            Ok(self.posted.pop_front().map(read))
        }
        async fn await_written(&mut self) -> Result<(), ClientMemoryError> {
            Ok(())
        }
        async fn await_loss(&self) {}
        async fn close_connection(self: Box<Self>) {}
    }

    fn order(bytes: u64, feed: PulledBodyFeed) -> MoveOrder<Empty<Bytes>> {
        let client =
            ClientEnd { pair_number: 1, gid: PortGid([1; 16]), first_packet: 1, reads_max: 1 };
        MoveOrder::Upload(UploadOrder {
            client,
            place: ClientPlace { address: 5, key: 1 },
            bytes,
            feed,
        })
    }

    #[tokio::test]
    async fn body_is_what_is_at_its_addresses_in_order() {
        for bytes in [1, 9, 10, 11, 30, 31, 95] {
            let mut client = AddressClient { posted: VecDeque::new(), posts: 0 };
            let (feed, body) = make_pulled_body(bytes);
            let moving = move_order(&mut client, order(bytes, feed));
            let (moved, body) = tokio::join!(moving, body.collect());
            assert_eq!(moved, Ok(()));
            let expected: Vec<u8> = (5..5 + bytes).map(|at| at as u8).collect();
            assert_eq!(body.ok().map(|body| body.to_bytes()), Some(expected.into()), "{bytes}");
        }
    }

    /// A store that is slow holds its own transfer up.
    #[tokio::test]
    async fn reads_wait_for_the_write_and_end_with_it() {
        let mut client = AddressClient { posted: VecDeque::new(), posts: 0 };
        let (feed, body) = make_pulled_body(1000);
        {
            let moving = move_order(&mut client, order(1000, feed));
            tokio::pin!(moving);
            for _ in 0..20 {
                assert!(futures::poll!(moving.as_mut()).is_pending());
            }
            drop(body);
            assert_eq!(moving.await, Err(TransferOutcome::Unstored));
        }
        // One waits for the write, one for its turn, and the others are read ahead.
        assert!(client.posts <= AHEAD + 2, "{}", client.posts);
    }
}
