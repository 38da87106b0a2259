//! Replies that lie in an arena, like a worker's, whatever the case's handler makes them from.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use verbs3_rdma::arena::Arena;
use verbs3_rdma::landing::Landing;
use verbs3_rdma::transport::{CallService, IncomingCall, ReplyDriver, ReplySender, TransportError};

use crate::transport_fixture::PAGE;

/// Copies `bytes` into the memory of `arena`, in cells. Returns `None` where there is no room.
pub fn placed(arena: &Arena, bytes: &[u8]) -> Option<Vec<Bytes>> {
    let mut pieces = Vec::new();
    for page in bytes.chunks(PAGE) {
        let (mut writer, reader) = arena.allocate_cell(page.len())?.split_writer_reader();
        writer.spare_bytes().copy_from_slice(page);
        writer.publish_bytes(page.len());
        pieces.push(reader.pinned_bytes(0..page.len()).unwrap());
    }
    Some(pieces)
}

/// A service whose replies lie in an arena.
pub struct Placed {
    service: Arc<dyn CallService>,
    arena: Arena,
}

impl Placed {
    pub fn service(service: Arc<dyn CallService>, arena: Arena) -> Arc<dyn CallService> {
        Arc::new(Self { service, arena })
    }
}

#[async_trait]
impl CallService for Placed {
    async fn serve_call(&self, request: IncomingCall, reply: ReplySender) {
        let reply = ReplySender::new(Box::new(PlacedReply {
            reply: Some(reply),
            arena: self.arena.clone(),
        }));
        self.service.serve_call(request, reply).await;
    }
}

struct PlacedReply {
    /// Taken by the last part.
    reply: Option<ReplySender>,
    arena: Arena,
}

#[async_trait]
impl ReplyDriver for PlacedReply {
    async fn send_part(
        &mut self,
        message: Bytes,
        offset: u64,
        data: Vec<Bytes>,
        last: bool,
    ) -> Result<(), TransportError> {
        let data = placed(&self.arena, &data.concat()).expect("room for a reply");
        if last {
            self.reply.take().expect("one last part").send_last(message, offset, data).await
        } else {
            self.reply
                .as_mut()
                .expect("no part follows the last")
                .send_part(message, offset, data)
                .await
        }
    }

    async fn pull_data(
        &mut self,
        message: Bytes,
        landing: Landing,
    ) -> Result<Vec<Bytes>, TransportError> {
        self.reply
            .as_mut()
            .expect("no pull follows the last part")
            .pull_data(message, landing)
            .await
    }
}
