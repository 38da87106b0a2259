//! Changes behind the gateways: they show once their key came in a listing, however long attributes
//! are kept.
#![allow(clippy::unwrap_used)]

use aws_sdk_s3::primitives::ByteStream;
use verbs3_tests::{Cluster, Gateway, PATIENT_TIER, Section};

async fn get(gateway: &Gateway, bucket: &str, key: &str) -> Option<Vec<u8>> {
    let answer = gateway.client.get_object().bucket(bucket).key(key).send().await;
    match answer {
        Ok(output) => Some(output.body.collect().await.unwrap().to_vec()),
        Err(error) => {
            let error = error.into_service_error();
            assert!(error.is_no_such_key(), "{error:?}");
            None
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_through_any_gateway_ends_stale_attributes_for_all() {
    // Around the tier, a reader would see what the store has.
    let builder = Cluster::builder().gateways(2).workers(2);
    let builder = builder.settings(Section::Gateway, PATIENT_TIER);
    let cluster = builder.start().await.unwrap();
    let bucket = cluster.bucket("listing").await.unwrap();
    let store = cluster.store();
    let put = async |key: &str, bytes: &'static [u8]| {
        let body = ByteStream::from_static(bytes);
        store.put_object().bucket(&bucket).key(key).body(body).send().await.unwrap();
    };
    let [reader, lister] = &cluster.gateways()[..] else { panic!("two gateways were asked for") };
    let keys: Vec<String> = (0..12).map(|n| format!("a key/{n}+ü")).collect();
    for key in &keys {
        put(key, b"old").await;
        assert_eq!(get(reader, &bucket, key).await.unwrap(), b"old");
    }
    assert_eq!(get(reader, &bucket, "new").await, None);
    for key in &keys[..6] {
        put(key, b"newer").await;
    }
    put("new", b"there").await;
    assert_eq!(
        get(reader, &bucket, &keys[0]).await.unwrap(),
        b"old",
        "attributes are kept for an hour"
    );
    assert_eq!(get(reader, &bucket, "new").await, None, "so is an absence");

    let listed = lister.client.list_objects_v2().bucket(&bucket).send().await.unwrap();
    assert_eq!(listed.contents().len(), 13);
    for (index, key) in keys.iter().enumerate() {
        let wanted: &[u8] = if index < 6 { b"newer" } else { b"old" };
        assert_eq!(get(reader, &bucket, key).await.unwrap(), wanted, "{key}");
    }
    assert_eq!(get(reader, &bucket, "new").await.unwrap(), b"there");
    cluster.stop().await.unwrap();
}
