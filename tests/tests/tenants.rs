//! Tenants, from the identities file of a gateway to the accounts of workers.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use verbs3_tests::metrics::eventually;
use verbs3_tests::{Cluster, PATIENT_TIER, Section, reading};

/// Generous: the machine may be busy with other tests.
const WITHIN: Duration = Duration::from_secs(120);
/// More than one block of each worker, the last one short.
const LARGE: usize = (13 << 20) + 3;
const SMALL: usize = 5000;
/// More than the cells of the last pages have beyond their bytes.
const ROUNDING: usize = 1 << 20;

/// Bytes in memory that workers hold for a tenant; for all, where none is named.
async fn held_bytes(cluster: &Cluster, tenant: Option<&str>) -> usize {
    let label = tenant.map(|tenant| format!("tenant=\"{tenant}\""));
    let labels: Vec<&str> = label.iter().map(String::as_str).chain(["tier=\"memory\""]).collect();
    cluster.sum_of("worker", "verbs3_worker_tenant_bytes", &labels).await.unwrap() as usize
}

/// First pages come by the open of an object, others by reads of its blocks.
#[tokio::test(flavor = "multi_thread")]
async fn pages_count_for_the_tenant_whose_reads_brought_them() {
    let builder = Cluster::builder().workers(2).settings(Section::Gateway, PATIENT_TIER);
    let builder = builder.identity("GREEDY", "greedy").identity("MODEST", "modest");
    let cluster = builder.start().await.unwrap();
    let bucket = cluster.bucket("tenants").await.unwrap();
    let gateway = cluster.gateways().remove(0);
    for (key, access_key, tenant, length) in
        [("large", "GREEDY", "greedy", LARGE), ("small", "MODEST", "modest", SMALL)]
    {
        reading::put_surely(&cluster.store(), &bucket, key, 1, length).await;
        let client = reading::once(&gateway.client_by(access_key));
        reading::get(&client, &bucket, key).await.is_whole(key, 1, length).unwrap();
        // What is read ahead comes later.
        let all = async || match held_bytes(&cluster, Some(tenant)).await {
            bytes if (length..length + ROUNDING).contains(&bytes) => Ok(()),
            bytes => Err(format!("{tenant} holds {bytes} bytes for {length}")),
        };
        eventually(WITHIN, all).await.unwrap();
    }
    let of_both =
        held_bytes(&cluster, Some("greedy")).await + held_bytes(&cluster, Some("modest")).await;
    assert_eq!(held_bytes(&cluster, None).await, of_both, "nothing is nobody's");
    cluster.stop().await.unwrap();
}
