//! The demonstration: a sample dataset, read twice through the socket, every byte checked.
//!
//! Owns the dataset and the table. It is a client like any other: what it shows of the cache it
//! reads from answers' headers, and from the metrics.

mod client;
mod dataset;
mod demo_table;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use prometheus::Registry;

use crate::dev::DevAccessKey;
use client::DemoClient;
use dataset::DemoSample;

/// Requests at once.
const READERS: usize = 8;

/// What is shown, and to whom.
pub struct DemoSetup {
    pub address: SocketAddr,
    pub key: DevAccessKey,
    pub bucket: &'static str,
    pub registry: Registry,
}

/// One reading of the whole dataset.
pub struct DemoReadPass {
    pub objects: usize,
    pub bytes: u64,
    pub took: Duration,
    /// Bytes that the store has given meanwhile.
    pub from_store: u64,
    /// Answers by their `x-verbs3-cache` header.
    pub verdicts: BTreeMap<String, usize>,
}

/// Makes the dataset where it is missing, reads it twice and prints what happened.
pub async fn run_demo(demo: &DemoSetup) -> anyhow::Result<()> {
    let client = Arc::new(DemoClient::new(demo.address, demo.key.clone(), demo.bucket));
    let samples: Arc<[DemoSample]> = dataset::demo_samples().into();
    let written =
        write_missing(&client, &samples).await.context("can't write the sample dataset")?;
    let bytes: u64 = samples.iter().map(|sample| sample.bytes).sum();
    demo_table::print_dataset(demo.bucket, samples.len(), bytes, written);
    let first = read(demo, &client, &samples).await.context("can't read the sample dataset")?;
    let second =
        read(demo, &client, &samples).await.context("can't read the sample dataset again")?;
    demo_table::print_passes(&first, &second);
    Ok(())
}

/// Says how many objects were written.
async fn write_missing(
    client: &Arc<DemoClient>,
    samples: &Arc<[DemoSample]>,
) -> anyhow::Result<usize> {
    let written = Arc::new(AtomicUsize::new(0));
    for_each_sample(samples, {
        let (client, written) = (client.clone(), written.clone());
        move |sample| {
            let (client, written) = (client.clone(), written.clone());
            async move {
                if client.object_length(&sample.key).await? != Some(sample.bytes) {
                    client.put_sample(&sample).await?;
                    written.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            }
        }
    })
    .await?;
    Ok(written.load(Ordering::Relaxed))
}

async fn read(
    demo: &DemoSetup,
    client: &Arc<DemoClient>,
    samples: &Arc<[DemoSample]>,
) -> anyhow::Result<DemoReadPass> {
    let (store_before, began) = (store_bytes(&demo.registry), Instant::now());
    let bytes = Arc::new(AtomicU64::new(0));
    let verdicts = Arc::new(std::sync::Mutex::new(BTreeMap::new()));
    for_each_sample(samples, {
        let (client, bytes, verdicts) = (client.clone(), bytes.clone(), verdicts.clone());
        move |sample| {
            let (client, bytes, verdicts) = (client.clone(), bytes.clone(), verdicts.clone());
            async move {
                let verdict = client.read(&sample).await?;
                bytes.fetch_add(sample.bytes, Ordering::Relaxed);
                let mut verdicts =
                    verdicts.lock().map_err(|_| anyhow::anyhow!("a reader panicked"))?;
                *verdicts.entry(verdict).or_insert(0) += 1;
                Ok(())
            }
        }
    })
    .await?;
    let took = began.elapsed();
    let verdicts = verdicts.lock().map_err(|_| anyhow::anyhow!("a reader panicked"))?.clone();
    let from_store = store_bytes(&demo.registry).saturating_sub(store_before);
    Ok(DemoReadPass {
        objects: samples.len(),
        bytes: bytes.load(Ordering::Relaxed),
        took,
        from_store,
        verdicts,
    })
}

/// Runs `work` on every sample, `READERS` at a time; the first failure ends it. Its tasks end with
/// it.
async fn for_each_sample<F, Fut>(samples: &Arc<[DemoSample]>, work: F) -> anyhow::Result<()>
where
    F: Fn(DemoSample) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = anyhow::Result<()>> + Send,
{
    let next = Arc::new(AtomicUsize::new(0));
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..READERS {
        let (samples, next, work) = (samples.clone(), next.clone(), work.clone());
        readers.spawn(async move {
            while let Some(sample) = samples.get(next.fetch_add(1, Ordering::Relaxed)) {
                work(sample.clone()).await.with_context(|| sample.key.clone())?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = readers.join_next().await {
        ended.context("a reader panicked")??;
    }
    Ok(())
}

/// Bytes of bodies that came from any UFS of this process.
fn store_bytes(registry: &Registry) -> u64 {
    let families = registry.gather();
    let family = families.iter().find(|family| family.name() == "verbs3_ufs_bytes_read_total");
    family.map_or(0, |family| {
        family.get_metric().iter().map(|metric| metric.get_counter().get_value() as u64).sum()
    })
}
