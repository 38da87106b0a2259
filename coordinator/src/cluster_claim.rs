//! Ties one store to one cluster. The first coordinator writes the cluster's name there.
//! Coordinators of another cluster then refuse to start. When the cluster's secret changes, its
//! coordinators write the claim anew.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use verbs3_coordinator_client::ClusterSecrets;
use verbs3_protocol::RANKING;

use crate::store::{ClusterStoreError, EntryDamage, EntryPrecondition, SharedClusterStore};

const KEY: &str = "cluster";
/// Pause after a claim that could not be renewed.
const PAUSE: Duration = Duration::from_secs(1);

/// Error that says why the store does not belong to this cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterClaimError {
    #[error(
        "{store} belongs to cluster {owner:?}{}; give each cluster a prefix or folder of its own",
        if *.same_name { " with another secret" } else { "" }
    )]
    Other { store: String, owner: String, same_name: bool },
    #[error(
        "{store} holds a map ranked by rules {found}, and this release ranks by {RANKING}; stop \
        all processes of the cluster, remove what lies there or give another prefix or folder, and \
        start them in one release (cached blocks stay usable)"
    )]
    Ranking { store: String, found: u16 },
    #[error(transparent)]
    Store(#[from] ClusterStoreError),
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ClusterClaim {
    name: String,
    /// Derived from name and secret; reveals nothing about the secret.
    id: String,
    #[serde(default)]
    ranking: u16,
}

/// What a coordinator claims its store with.
pub(crate) struct StoreClaim {
    pub(crate) store: SharedClusterStore,
    /// The cluster's.
    pub(crate) name: String,
    pub(crate) secrets: ClusterSecrets,
}

impl StoreClaim {
    /// Claims the store for this cluster, or confirms that it is ours already.
    pub(crate) async fn claim_store(&self) -> Result<(), ClusterClaimError> {
        let Self { store, name, secrets } = self;
        let id = secrets.used_secret().cluster_id();
        let ours = ClusterClaim { name: name.clone(), id, ranking: RANKING };
        let value = Bytes::from(serde_json::to_vec(&ours).unwrap_or_default());
        match store.put_entry(KEY, value.clone(), EntryPrecondition::Absent, None).await {
            Ok(_) => return Ok(()),
            Err(ClusterStoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let found = store
            .get_entry(KEY)
            .await?
            .map(|entry| (serde_json::from_slice::<ClusterClaim>(&entry.value), entry.revision));
        let accepted = secrets.accepted_secrets();
        let is_ours = |found: &ClusterClaim| {
            found.name == ours.name && accepted.iter().any(|one| one.cluster_id() == found.id)
        };
        match found {
            Some((Ok(found), _)) if found == ours => Ok(()),
            Some((Ok(found), _)) if is_ours(&found) && found.ranking != RANKING => {
                Err(ClusterClaimError::Ranking {
                    store: store.store_name().to_owned(),
                    found: found.ranking,
                })
            }
            // Written under another secret, which is accepted still. It will not be for ever.
            Some((Ok(found), revision)) if is_ours(&found) => {
                let unchanged = EntryPrecondition::Revision(revision);
                Ok(store.put_entry(KEY, value, unchanged, None).await.map(|_| ())?)
            }
            Some((Ok(found), _)) => {
                let same_name = found.name == ours.name;
                Err(ClusterClaimError::Other {
                    store: store.store_name().to_owned(),
                    owner: found.name,
                    same_name,
                })
            }
            Some((Err(error), _)) => {
                let damage = EntryDamage::Json { key: KEY, error: Arc::new(error) };
                Err(ClusterStoreError::Damaged { store: store.store_name().to_owned(), damage }
                    .into())
            }
            // A person removed the entry in between, and may do it again.
            None => Err(ClusterStoreError::Conflict { key: KEY.to_owned() }.into()),
        }
    }

    /// Claims the store again whenever the cluster's secret has changed, so that coordinators which
    /// start after the change find their own claim. Ends when the coordinator stops.
    pub(crate) async fn renew_claim(self: Arc<Self>, stop: CancellationToken) {
        let secrets = &self.secrets;
        let renewing = async {
            let mut claimed = String::new();
            loop {
                secrets.wait_for_other(&claimed).await;
                let id = secrets.used_secret().cluster_id();
                match self.claim_store().await {
                    Ok(()) => claimed = id,
                    Err(error) => {
                        tracing::warn!(%error, "the store could not be claimed under a new secret");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        };
        stop.run_until_cancelled(renewing).await;
    }
}
