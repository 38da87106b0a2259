//! One trace from a client through gateway and workers to the store: what the processes tell a
//! receiver, and what the store is told.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use bytes::BytesMut;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use verbs3_tests::proxy::Op;
use verbs3_tests::reading::{self, Seen};
use verbs3_tests::receiver::{Receiver, Told};
use verbs3_tests::{Cluster, PATIENT_TIER, Section};

const LENGTH: usize = 13 << 20;
const CLIENT: &str = "00f067aa0ba902b7";

/// A trace of the client's: one for each number.
fn trace(number: u128) -> String {
    format!("{:032x}", 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736 + number)
}

async fn get(cluster: &Cluster, bucket: &str, key: &str, traceparent: String) -> Seen {
    let client = reading::once(&cluster.gateways()[0].client);
    let asked =
        client.get_object().bucket(bucket).key(key).customize().mutate_request(move |request| {
            request.headers_mut().insert("traceparent", traceparent.clone());
        });
    reading::collect(asked.send().await.unwrap().body, BytesMut::new()).await
}

/// What was told of one trace, by id of the span.
struct Trace(HashMap<String, Told>);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Trace {
    fn of(told: &[Told], trace: &str) -> Self {
        let own = told.iter().filter(|told| hex(&told.span.trace_id) == trace);
        Self(own.map(|told| (hex(&told.span.span_id), told.clone())).collect())
    }

    /// Names and processes from a span up to the client's, which nobody here has told.
    fn way_up(&self, span: &str) -> Vec<(&str, SpanKind, bool)> {
        let (mut at, mut way) = (span.to_owned(), Vec::new());
        while at != CLIENT {
            let told =
                self.0.get(&at).unwrap_or_else(|| panic!("nobody has told of {at}, above {way:?}"));
            way.push((
                told.span.name.as_str(),
                told.span.kind(),
                told.process.starts_with("worker-"),
            ));
            at = hex(&told.span.parent_span_id);
        }
        way
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cold_read_traces_to_the_store_and_a_hot_one_to_the_workers() {
    let receiver = Receiver::start().await.unwrap();
    let builder = Cluster::builder().workers(2).faulty_store();
    let cluster = builder
        .settings(Section::Mount, &receiver.settings())
        // A request to the store for each block.
        .settings(Section::Worker, "[worker.fill]\nwhole_request_max = \"1MiB\"\n")
        .settings(Section::Gateway, PATIENT_TIER)
        .start()
        .await
        .unwrap();
    let bucket = cluster.bucket("traces").await.unwrap();
    reading::put_surely(&cluster.store(), &bucket, "key", 1, LENGTH).await;
    let (cold, hot) = (trace(1), trace(2));
    let seen = get(&cluster, &bucket, "key", format!("00-{cold}-{CLIENT}-01")).await;
    seen.is_whole("key", 1, LENGTH).unwrap();
    let (asked, parents) = (
        cluster.proxy().faults.seen(Op::Get, "key"),
        cluster.proxy().faults.traceparents(Op::Get, "key"),
    );
    let seen = get(&cluster, &bucket, "key", format!("00-{hot}-{CLIENT}-01")).await;
    seen.is_whole("key", 1, LENGTH).unwrap();
    // All is told by then.
    cluster.stop().await.unwrap();

    let told = receiver.told();
    let spans = Trace::of(&told, &cold);
    assert!(
        asked >= 4 && parents.len() == asked,
        "{asked} requests to the store, of which {parents:?} have a trace"
    );
    let ways: Vec<_> = parents
        .iter()
        .map(|parent| {
            let span = parent
                .strip_prefix(&format!("00-{cold}-"))
                .and_then(|rest| rest.strip_suffix("-01"));
            spans.way_up(span.unwrap_or_else(|| panic!("{parent} is of another trace")))
        })
        .collect();
    let through = |gateways: &'static str, workers: &'static str| {
        [
            ("GetObject", SpanKind::Client, true),
            (workers, SpanKind::Server, true),
            (gateways, SpanKind::Client, false),
            ("GetObject", SpanKind::Server, false),
        ]
    };
    assert!(ways.contains(&through("verbs3.open", "verbs3.worker.open").to_vec()), "{ways:#?}");
    assert!(ways.contains(&through("verbs3.span", "verbs3.worker.read").to_vec()), "{ways:#?}");

    let spans = Trace::of(&told, &hot);
    let by_worker: Vec<&Told> =
        spans.0.values().filter(|told| told.process.starts_with("worker-")).collect();
    assert!(by_worker.len() >= 4, "{by_worker:#?}");
    for told in by_worker {
        assert_eq!(spans.way_up(&hex(&told.span.span_id)).len(), 3, "{told:#?}");
        let mut attributes = told.span.attributes.iter();
        let cache = attributes.find(|attribute| attribute.key == "verbs3.cache").unwrap();
        let hit = Some(Value::StringValue("hit".to_owned()));
        assert_eq!(cache.value.as_ref().unwrap().value, hit, "{told:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unsampled_trace_reaches_the_store_and_no_receiver() {
    let receiver = Receiver::start().await.unwrap();
    let builder = Cluster::builder().faulty_store().settings(Section::Mount, &receiver.settings());
    let cluster = builder.start().await.unwrap();
    let bucket = cluster.bucket("traces").await.unwrap();
    for key in ["passed", "sampled"] {
        reading::put_surely(&cluster.store(), &bucket, key, 1, 1000).await;
    }
    let (passed, sampled) = (trace(3), trace(4));
    let seen = get(&cluster, &bucket, "passed", format!("00-{passed}-{CLIENT}-00")).await;
    seen.is_whole("passed", 1, 1000).unwrap();
    // Its spans come after all of the others.
    get(&cluster, &bucket, "sampled", format!("00-{sampled}-{CLIENT}-01"))
        .await
        .is_whole("sampled", 1, 1000)
        .unwrap();
    let parents = cluster.proxy().faults.traceparents(Op::Get, "passed");
    cluster.stop().await.unwrap();

    assert_eq!(parents.len(), 1, "{parents:?}");
    assert!(
        parents[0].starts_with(&format!("00-{passed}-")) && parents[0].ends_with("-00"),
        "{parents:?}"
    );
    assert!(
        !parents[0].contains(CLIENT),
        "the store is asked by a worker, not by the client: {parents:?}"
    );
    let told = receiver.told();
    assert!(Trace::of(&told, &passed).0.is_empty(), "{told:#?}");
    assert!(Trace::of(&told, &sampled).0.len() >= 4, "{told:#?}");
}
