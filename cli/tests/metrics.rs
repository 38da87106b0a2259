//! `METRICS.md`, held against the crates' tables and against what a process answers.
//!
//! After a change of a table: `BLESS=1 cargo test --workspace --test metrics`.
#![allow(clippy::unwrap_used)]

mod processes;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use aws_sdk_s3::primitives::ByteStream;
use processes::{Process, dev_key, get, get_object, text};

/// Labels and meaning.
type Rows = BTreeMap<&'static str, (Vec<&'static str>, &'static str)>;

/// All tables as one. A name may have a row for each value of its label, but only one meaning.
fn rows() -> Rows {
    let tables = [
        verbs3_rdma::metrics::TABLE,
        verbs3_ufs::metrics::TABLE,
        verbs3_ufs::metrics::LOCAL_TABLE,
        verbs3_cache_worker::metrics::TABLE,
        verbs3_cache_worker::DISK_METRICS,
        verbs3_client::metrics::TABLE,
        verbs3_gateway::metrics::TABLE,
        verbs3_gateway::metrics::READ_TABLE,
        verbs3_telemetry::TABLE,
        verbs3_coordinator::metrics::TABLE,
        verbs3_preload::metrics::TABLE,
    ];
    let mut rows = Rows::new();
    for &(name, labels, help) in tables.into_iter().flatten() {
        let mut labels = labels.to_vec();
        labels.sort_unstable();
        let row = (labels, help);
        let before = rows.insert(name, row.clone());
        assert!(before.is_none_or(|before| before == row), "{name} means two things");
    }
    rows
}

/// Prometheus's own convention, which `a_process_shows_what_the_tables_say` holds against the
/// types.
fn kind(name: &str) -> &'static str {
    match name {
        _ if name.ends_with("_total") => "counter",
        _ if name.ends_with("_seconds") => "histogram",
        _ => "gauge",
    }
}

#[test]
fn the_document_lists_every_metric() {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../METRICS.md"));
    let found = fs::read_to_string(&path).unwrap();
    const HEAD: &str = "| name | type | labels | meaning |\n|---|---|---|---|\n";
    // What stands before the table is written by hand.
    let (before, _) = found.split_once(HEAD).unwrap();
    let mut wanted = format!("{before}{HEAD}");
    for (name, (labels, help)) in rows() {
        wanted += &format!("| `{name}` | {} | {} | {help} |\n", kind(name), labels.join(", "));
    }
    if std::env::var_os("BLESS").is_some_and(|value| value == "1") {
        fs::write(&path, wanted).unwrap();
        return;
    }
    let differing = |a: &str, b: &str| -> Vec<String> {
        a.lines().filter(|line| !b.lines().any(|other| other == *line)).map(str::to_owned).collect()
    };
    assert!(
        found == wanted,
        "METRICS.md differs from the tables; run this test with BLESS=1.\nmissing: {:#?}\nto go: \
        {:#?}",
        differing(&wanted, &found),
        differing(&found, &wanted)
    );
}

#[tokio::test]
async fn a_process_shows_what_the_tables_say() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let words = ["dev", "--no-demo", "--listen", "127.0.0.1:0", "--dir", dir.to_str().unwrap()];
    let small = ["--set", "worker.memory.capacity=32MiB", "--set", "gateway.memory.capacity=32MiB"];
    let dev = Process::start(folder.path(), "dev", &[&words[..], &small[..]].concat());
    let (access, secret) = dev_key(&dir);
    let client = dev.client(&access, &secret);
    client
        .put_object()
        .bucket("demo")
        .key("k")
        .body(ByteStream::from_static(b"body"))
        .send()
        .await
        .unwrap();
    get_object(&client, "demo", "k").await;
    get_object(&client, "demo", "k").await;

    let rows = rows();
    let shown = text(&get(&dev.admin, "/metrics").body);
    let mut families = 0;
    for line in shown.lines() {
        if let Some((name, help)) =
            line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' '))
        {
            let row = rows.get(name).unwrap_or_else(|| panic!("{name} is in no table"));
            assert_eq!(help, row.1, "{name}");
        } else if let Some((name, shown)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            assert_eq!(shown, kind(name), "{name}");
            families += 1;
        } else {
            let (series, labels) = line
                .split_once('{')
                .map_or((line.split(' ').next().unwrap(), ""), |(name, rest)| {
                    (name, rest.rsplit_once('}').unwrap().0)
                });
            let name = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| series.strip_suffix(end).filter(|name| kind(name) == "histogram"))
                .unwrap_or(series);
            // `worker` is this command's own, where several share a process.
            let mut labels: Vec<&str> = labels
                .split(',')
                .filter_map(|pair| pair.split_once('=').map(|(label, _)| label))
                .filter(|label| !matches!(*label, "le" | "worker"))
                .collect();
            labels.sort_unstable();
            assert_eq!(labels, rows[name].0, "{line}");
        }
    }
    assert!(families > 60, "only {families} families:\n{shown}");
    for name in
        ["verbs3_ufs_local_objects{ufs=\"local\"} 1", "verbs3_read_requests_total{cache=\"hit\"} 1"]
    {
        assert!(shown.contains(name), "{name} is not in\n{shown}");
    }
}
