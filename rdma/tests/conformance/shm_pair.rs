//! A connected pair over shared memory: a server with its own arena, and its requesters.

use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use verbs3_rdma::arena::Arena;
use verbs3_rdma::calls::CallOptions;
use verbs3_rdma::shm::{ShmServer, ShmServerOptions, ShmTransport};
use verbs3_rdma::transport::{CallService, PeerConnection, WayTerms};
use verbs3_settings::ByteSize;

use crate::transport_fixture::call_options;

pub fn shm_options() -> CallOptions {
    call_options()
}

/// Hands over whatever lies in the arena, however short.
pub fn shm_server_options() -> ShmServerOptions {
    let mut options = ShmServerOptions::new(shm_options());
    options.settings.copy_max = ByteSize(0);
    options
}

pub fn socket(room: &TempDir) -> PathBuf {
    room.path().join("worker.sock")
}

pub async fn shm_pair(
    room: &TempDir,
    service: Arc<dyn CallService>,
    arena: Arena,
) -> (ShmServer, Arc<dyn PeerConnection>) {
    let server =
        ShmServer::bind(&socket(room), shm_server_options(), arena, service).await.unwrap();
    (server, connect(room).await)
}

pub async fn connect(room: &TempDir) -> Arc<dyn PeerConnection> {
    ShmTransport::new(shm_options())
        .connect_to(&socket(room), &WayTerms::with_name("conformance"))
        .await
        .unwrap()
}
