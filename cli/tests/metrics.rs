//! `docs/metrics.md`, written from the crates' declarations, and these held against what a process
//! answers.
//!
//! After a change of a metric: `BLESS=1 cargo test --workspace --test metrics`.
#![allow(clippy::unwrap_used)]

mod described_metrics;
mod processes;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use described_metrics::{describe_metrics, describe_tables};
use processes::{Process, dev_key, get, get_object, put_object, text};
use verbs3_metrics::{LabelValue, MetricDescription, MetricsTableDescription};

const HEAD: &str = "# Metrics

<!-- Written from the declarations in the crates by the test `metrics` of cli. -->

`/metrics` of a process shows the tables of what is in it. A gateway and a worker have transports,
the arena, ports and UFSs; a coordinator with mounts has them, too, and the client of the workers.
`verbs3 dev` has everything, and there those of a worker have a label `worker` besides. A series
shows from its first use on.

A name is the table's prefix, the field's name in the code and, for a counter, `_total` or, for a
histogram, `_seconds`: `hedges` of the table `verbs3_client` is `verbs3_client_hedges_total`.
";

/// Longest line outside tables.
const COLUMNS_MAX: usize = 100;

fn write_table(table: &MetricsTableDescription) -> String {
    let title = table.documentation.split_once('.').map_or("", |(title, _)| title);
    let mut text = format!(
        "\n## {title}\n\nDeclared in `{}`.\n\n\
        | name | type | labels | meaning |\n|---|---|---|---|\n",
        table.file
    );
    for MetricDescription { name, help, kind, labels } in &table.metrics {
        let labels: Vec<_> = labels.iter().map(|label| label.name).collect();
        text += &format!("| `{name}` | {} | {} | {help} |\n", kind.as_str(), labels.join(", "));
    }
    let mut separator = "\n";
    for (values, families) in list_labels(table) {
        text += &format!("{separator}{}", wrap_item(&format!("- {families}: {values}.")));
        separator = "";
    }
    text
}

/// An item of a list, in lines as long as the document's others.
fn wrap_item(item: &str) -> String {
    let (mut text, mut columns) = (String::new(), 0);
    for word in item.split(' ') {
        let letters = word.chars().count();
        if columns > 0 && columns + 1 + letters > COLUMNS_MAX {
            text += "\n ";
            columns = 1;
        }
        if columns > 0 {
            text.push(' ');
            columns += 1;
        }
        text += word;
        columns += letters;
    }
    text + "\n"
}

/// The values of each label, with the families that have it.
fn list_labels(table: &MetricsTableDescription) -> Vec<(String, String)> {
    let mut lists: Vec<(String, String)> = Vec::new();
    for metric in &table.metrics {
        for label in metric.labels.iter().filter(|label| !label.values.is_empty()) {
            let values: Vec<_> = label.values.iter().map(write_value).collect();
            let (values, family) = (values.join(", "), format!("`{}`", metric.name));
            match lists.iter_mut().find(|(known, _)| *known == values) {
                Some((_, families)) => *families += &format!(", `{}` of {family}", label.name),
                None => lists.push((values, format!("`{}` of {family}", label.name))),
            }
        }
    }
    lists
}

/// A value, and in brackets what it means where its name does not say it.
fn write_value(value: &LabelValue) -> String {
    let LabelValue { text, documentation } = value;
    if documentation.is_empty() {
        return format!("`{text}`");
    }
    let meaning = documentation.trim_end_matches('.');
    let (first, rest) = meaning.split_at(1);
    // A word in capitals stays as it is.
    let is_word = rest.starts_with(|letter: char| !letter.is_uppercase());
    let first = if is_word { first.to_lowercase() } else { first.to_owned() };
    format!("`{text}` ({first}{rest})")
}

#[test]
fn the_document_lists_every_metric() {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md"));
    let mut wanted = HEAD.to_owned();
    for table in describe_tables() {
        wanted += &write_table(&table);
    }
    if std::env::var_os("BLESS").is_some_and(|value| value == "1") {
        fs::write(&path, wanted).unwrap();
        return;
    }
    let found = fs::read_to_string(&path).unwrap();
    let differing = |a: &str, b: &str| -> Vec<String> {
        a.lines().filter(|line| !b.lines().any(|other| other == *line)).map(str::to_owned).collect()
    };
    assert!(
        found == wanted,
        "docs/metrics.md differs from the declarations; run this test with BLESS=1.\nmissing: \
        {:#?}\nto go: {:#?}",
        differing(&wanted, &found),
        differing(&found, &wanted)
    );
}

#[test]
fn every_metric_has_a_name_of_its_own() {
    let mut names: Vec<_> = describe_metrics().map(|metric| metric.name).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[tokio::test]
async fn a_process_shows_what_the_tables_say() {
    let folder = tempfile::tempdir().unwrap();
    let small = ["--set", "worker.memory.capacity=32MiB", "--set", "gateway.memory.capacity=32MiB"];
    let dev = Process::start_dev(folder.path(), "dev", &small);
    let (access, secret) = dev_key(&folder.path().join("data"));
    let client = dev.client(&access, &secret);
    put_object(&client, "demo", "k", b"body").await;
    get_object(&client, "demo", "k").await;
    get_object(&client, "demo", "k").await;

    let described: BTreeMap<_, _> =
        describe_metrics().map(|metric| (metric.name, metric)).collect();
    let shown = text(&get(&dev.admin, "/metrics").body);
    let mut families = 0;
    for line in shown.lines() {
        if let Some((name, help)) =
            line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' '))
        {
            let metric = described.get(name).unwrap_or_else(|| panic!("{name} is not declared"));
            assert_eq!(help, metric.help, "{name}");
        } else if let Some((name, shown)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            assert_eq!(shown, described[name].kind.as_str(), "{name}");
            families += 1;
        } else {
            let (series, labels) = line
                .split_once('{')
                .map_or((line.split(' ').next().unwrap(), ""), |(name, rest)| {
                    (name, rest.rsplit_once('}').unwrap().0)
                });
            let metric = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| described.get(series.strip_suffix(end)?))
                .unwrap_or_else(|| &described[series]);
            // `worker` is this command's own, where several share a process.
            let labels: BTreeMap<&str, &str> = labels
                .split(',')
                .filter_map(|pair| pair.split_once('='))
                .filter(|(label, _)| !matches!(*label, "le" | "worker"))
                .collect();
            assert_eq!(labels.len(), metric.labels.len(), "{line}");
            for label in &metric.labels {
                let shown = labels.get(label.name).unwrap_or_else(|| panic!("{line}"));
                let is_declared =
                    label.values.iter().any(|value| *shown == format!("\"{}\"", value.text));
                assert!(label.values.is_empty() || is_declared, "{line}");
            }
        }
    }
    assert!(families > 60, "only {families} families:\n{shown}");
    for name in
        ["verbs3_ufs_local_objects{ufs=\"local\"} 1", "verbs3_read_requests_total{cache=\"hit\"} 1"]
    {
        assert!(shown.contains(name), "{name} is not in\n{shown}");
    }
}
