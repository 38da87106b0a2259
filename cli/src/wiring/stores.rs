//! The UFSs of a process, by name.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, bail};
use prometheus::Registry;
use verbs3_ufs::local::{LocalOptions, LocalStore};
use verbs3_ufs::s3::connect_store;
use verbs3_ufs::{Ufs, UfsKind, UfsSettings};

/// Every configured UFS, ready to be asked.
pub async fn open_stores(
    list: &[UfsSettings],
    registry: &Registry,
) -> anyhow::Result<HashMap<String, Ufs>> {
    let mut stores = HashMap::new();
    for ufs in list {
        let store = open_one(ufs, registry)
            .await
            .with_context(|| format!("can't open ufs {}", ufs.name))?;
        stores.insert(ufs.name.clone(), store);
    }
    Ok(stores)
}

async fn open_one(settings: &UfsSettings, registry: &Registry) -> anyhow::Result<Ufs> {
    let store: Arc<dyn s3s::S3> = match settings.kind {
        UfsKind::S3 => connect_store(settings).await?,
        UfsKind::Local => {
            let Some(root) = &settings.path else { bail!("kind = \"local\" needs a path") };
            let options = LocalOptions {
                name: settings.name.clone(),
                region: settings.region.clone(),
                sync: settings.sync,
                ..LocalOptions::new(root)
            };
            let opened = tokio::task::spawn_blocking(move || LocalStore::open_store(options)).await;
            let store = opened.context("the store's thread panicked")??;
            store.register_metrics(registry)?;
            Arc::new(store)
        }
    };
    Ok(Ufs::new(store, settings.clone()))
}
