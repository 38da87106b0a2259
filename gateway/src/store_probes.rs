//! Learns whether the stores behind the mounts answer, and says so in `/readyz`.
//!
//! Requests of clients show it, too, so a store is asked only if it has not answered for a while. A
//! gateway without its store still serves what is cached: it stays ready, unless the settings say
//! otherwise.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use verbs3_admin::ReadinessCheck;
use verbs3_ufs::Ufs;

use crate::mount::MountTable;
use crate::settings::GatewayStoreProbeSettings;

/// Each store behind the mounts, with a bucket to ask for; `None`: one that is mounted as a whole.
type ProbedStores = Vec<(Ufs, Option<String>)>;

/// Asks stores that have not answered for `settings.every`, until `stop`. Returns the condition of
/// `/readyz` that tells of their silence.
pub(crate) fn start_store_probes(
    mounts: &MountTable,
    settings: &GatewayStoreProbeSettings,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> ReadinessCheck {
    let bucket_of = |ufs: &Ufs| {
        let mount = mounts.iter().find(|mount| mount.ufs.ufs_name() == ufs.ufs_name());
        mount.map(|mount| mount.bucket.clone())
    };
    let stores: ProbedStores =
        mounts.distinct_stores().map(|ufs| (ufs.clone(), bucket_of(ufs))).collect();
    let every = settings.every.0;
    if !every.is_zero() {
        for (ufs, bucket) in stores.clone() {
            let probing = probe_repeatedly(ufs, bucket, every);
            tasks.spawn(stop.clone().run_until_cancelled_owned(probing));
        }
    }
    let unready_after = settings.unready_after.0;
    ReadinessCheck::with_notice("stores", move || describe_silence(&stores, unready_after))
}

/// May be cancelled at any time.
async fn probe_repeatedly(ufs: Ufs, bucket: Option<String>, every: Duration) {
    loop {
        if !ufs.has_answered_within(every) {
            ufs.probe_store(bucket.as_deref()).await;
        }
        tokio::time::sleep(every).await;
    }
}

/// Returns what there is to say of silent stores: an error where one is silent for longer than
/// `unready_after`, unless that is zero.
fn describe_silence(
    stores: &ProbedStores,
    unready_after: Duration,
) -> Result<Option<String>, String> {
    let (mut said, mut is_ready) = (Vec::new(), true);
    for (ufs, _) in stores {
        let Some(silence) = ufs.current_silence() else { continue };
        is_ready &= unready_after.is_zero() || silence.lasted < unready_after;
        let (name, lasted_s) = (ufs.ufs_name(), silence.lasted.as_secs());
        said.push(format!("{name} has not answered for {lasted_s} s ({})", silence.cause));
    }
    let said = said.join("; ");
    match is_ready {
        true => Ok((!said.is_empty()).then_some(said)),
        false => Err(said),
    }
}
