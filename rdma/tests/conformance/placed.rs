//! Replies that lie in an arena, as a worker's do, whatever the case's handler makes them of.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use verbs3_rdma::arena::Arena;
use verbs3_rdma::landing::Landing;
use verbs3_rdma::transport::{Incoming, Reply, ReplyDriver, Service, TransportError};

use crate::rig::PAGE;

/// `bytes` in the memory of `arena`, in cells; `None` where there is no room.
pub fn placed(arena: &Arena, bytes: &[u8]) -> Option<Vec<Bytes>> {
    let mut pieces = Vec::new();
    for page in bytes.chunks(PAGE) {
        let (mut writer, reader) = arena.lease(page.len())?.split();
        writer.spare().copy_from_slice(page);
        writer.advance(page.len());
        pieces.push(reader.bytes(0..page.len()).unwrap());
    }
    Some(pieces)
}

/// A service whose replies lie in an arena.
pub struct Placed {
    service: Arc<dyn Service>,
    arena: Arena,
}

impl Placed {
    pub fn service(service: Arc<dyn Service>, arena: Arena) -> Arc<dyn Service> {
        Arc::new(Self { service, arena })
    }
}

#[async_trait]
impl Service for Placed {
    async fn serve(&self, request: Incoming, reply: Reply) {
        let reply =
            Reply::new(Box::new(PlacedReply { reply: Some(reply), arena: self.arena.clone() }));
        self.service.serve(request, reply).await;
    }
}

struct PlacedReply {
    /// Taken by the last part.
    reply: Option<Reply>,
    arena: Arena,
}

#[async_trait]
impl ReplyDriver for PlacedReply {
    async fn part(
        &mut self,
        message: Bytes,
        offset: u64,
        data: Vec<Bytes>,
        last: bool,
    ) -> Result<(), TransportError> {
        let data = placed(&self.arena, &data.concat()).expect("room for a reply");
        if last {
            self.reply.take().expect("one last part").last(message, offset, data).await
        } else {
            self.reply.as_mut().expect("no part follows the last").part(message, offset, data).await
        }
    }

    async fn pull(
        &mut self,
        message: Bytes,
        landing: Landing,
    ) -> Result<Vec<Bytes>, TransportError> {
        self.reply.as_mut().expect("no pull follows the last part").pull(message, landing).await
    }
}
