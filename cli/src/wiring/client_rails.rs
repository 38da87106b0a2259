//! The rails over which clients of other hosts get payloads, and put them (S3 over RDMA): those of
//! `[verbs]`, where the configuration wants it. Without one, such clients are told to use HTTP.

use std::sync::Arc;

use anyhow::Context;
use futures::future::join_all;
use verbs3_gateway::S3OverRdmaSettings;
use verbs3_rdma::arena::{Arena, ArenaOptions};
use verbs3_rdma::client_memory::ClientMemoryRail;
use verbs3_rdma::settings::VerbsSettings;
use verbs3_rdma::verbs::{CLIENT_PIECE_BYTES, VerbsClientRail};

use super::transports::places_of;

/// The rails of one gateway, and the memory that they write from and read into.
#[derive(Default)]
pub struct ClientRails(Vec<Arc<VerbsClientRail>>);

impl ClientRails {
    /// Starts to open the rails. None, if the settings don't want them.
    pub fn start(settings: &S3OverRdmaSettings, verbs: &VerbsSettings) -> anyhow::Result<Self> {
        if !settings.enabled {
            return Ok(Self::default());
        }
        let places = places_of(verbs)?;
        if places.is_empty() {
            tracing::warn!(
                "gateway.s3_over_rdma is enabled, and there is no rail: clients are told to use \
                HTTP"
            );
            return Ok(Self::default());
        }
        let arena = Arena::map_memory(ArenaOptions {
            capacity_bytes: settings.memory_bytes(),
            cell_bytes_max: CLIENT_PIECE_BYTES,
            populate: true,
        })
        .context("gateway.s3_over_rdma.transfers_max: 2 MiB of memory for each")?;
        let start = |place| Arc::new(VerbsClientRail::start(place, verbs, arena.clone()).0);
        Ok(Self(places.into_iter().map(start).collect()))
    }

    /// Returns them as a gateway has them.
    pub fn shared_rails(&self) -> Vec<Arc<dyn ClientMemoryRail>> {
        self.0.iter().map(|rail| rail.clone() as Arc<dyn ClientMemoryRail>).collect()
    }

    /// Waits until nothing of them is at work. The gateway has to have ended.
    pub async fn shutdown(&self) {
        join_all(self.0.iter().map(|rail| rail.shutdown())).await;
    }
}
