//! Ties one store to one cluster. The first coordinator writes the cluster's name there.
//! Coordinators of another cluster then refuse to start.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use verbs3_coordinator_client::proof::ClusterSecret;
use verbs3_protocol::RANKING;

use crate::store::{ClusterStore, ClusterStoreError, EntryDamage, EntryPrecondition};

const KEY: &str = "cluster";

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

/// Claims the store for this cluster, or confirms that it is ours already.
pub(crate) async fn claim_store(
    store: &dyn ClusterStore,
    name: &str,
    secret: &ClusterSecret,
) -> Result<(), ClusterClaimError> {
    let ours = ClusterClaim { name: name.to_owned(), id: secret.cluster_id(), ranking: RANKING };
    let value = Bytes::from(serde_json::to_vec(&ours).unwrap_or_default());
    match store.put_entry(KEY, value, EntryPrecondition::Absent, None).await {
        Ok(_) => return Ok(()),
        Err(ClusterStoreError::Conflict { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let found = store
        .get_entry(KEY)
        .await?
        .map(|entry| serde_json::from_slice::<ClusterClaim>(&entry.value));
    match found {
        Some(Ok(found)) if found == ours => Ok(()),
        Some(Ok(found)) if (&found.name, &found.id) == (&ours.name, &ours.id) => {
            Err(ClusterClaimError::Ranking {
                store: store.store_name().to_owned(),
                found: found.ranking,
            })
        }
        Some(Ok(found)) => {
            let same_name = found.name == ours.name;
            Err(ClusterClaimError::Other {
                store: store.store_name().to_owned(),
                owner: found.name,
                same_name,
            })
        }
        Some(Err(error)) => {
            let damage = EntryDamage::Json { key: KEY, error: Arc::new(error) };
            Err(ClusterStoreError::Damaged { store: store.store_name().to_owned(), damage }.into())
        }
        // A person removed the entry in between, and may do it again.
        None => Err(ClusterStoreError::Conflict { key: KEY.to_owned() }.into()),
    }
}
