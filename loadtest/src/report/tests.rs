//! Reports of made-up rounds.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use super::*;
use crate::bench_limits::BenchEffort;
use crate::bench_record::{BenchRecord, BenchSideRecord};
use crate::bench_round::BenchRoundOutcome;
use crate::client::BenchStepResult;
use crate::endpoint::BenchEndpoint;
use crate::exchange_error::BenchExchangeError;
use crate::request_plan::ExchangeKind;
use crate::scenario::{BenchScenario, shipped_scenario};
use crate::tally::BenchRoundTally;

/// A second of `count` requests of 1 MiB, each of which took `millis`.
fn outcome(count: u32, millis: u64, cpu: Option<Duration>) -> BenchRoundOutcome {
    let mut tally = BenchRoundTally::default();
    for _ in 0..count {
        let done = BenchStepResult {
            bytes: 1 << 20,
            first_byte: None,
            ended: Instant::now(),
            cache: Some("hit".into()),
            outcome: Ok(()),
        };
        let ended = Duration::from_millis(millis);
        tally.record_exchange(ExchangeKind::Get, Duration::ZERO, Some(ended / 2), ended, done);
    }
    let effort = BenchEffort { cpus: 2.0, host_idle: 0.5, ..BenchEffort::default() };
    BenchRoundOutcome { tally, took: Duration::from_secs(1), server_cpu: cpu, effort }
}

fn side(label: &str, outcomes: &[BenchRoundOutcome]) -> BenchSideRecord {
    let endpoint = BenchEndpoint::parse("http://127.0.0.1:1/b", label, None, &[]).unwrap();
    BenchSideRecord::from_outcomes(&endpoint, outcomes)
}

fn record() -> BenchRecord {
    let cpu = |millis| Some(Duration::from_millis(millis));
    let target = [outcome(100, 10, cpu(200)), outcome(50, 20, cpu(100))];
    let against = [outcome(200, 5, cpu(100)), outcome(100, 10, cpu(50))];
    let scenario = BenchScenario::parse(shipped_scenario("hot-1m").unwrap()).unwrap();
    BenchRecord::new(scenario, vec![side("gateway <1>", &target), side("direct", &against)])
}

#[test]
fn ratios_are_of_the_figures_of_each_round() {
    let record = record();
    let mean = |name| record.ratios[name].mean;
    assert!(
        (mean("requests_per_second") - 0.5).abs() < 1e-9
            && (mean("mib_per_second") - 0.5).abs() < 1e-9
    );
    assert!(
        (mean("latency_p50") - 2.0).abs() < 0.01 && (mean("first_byte_p50") - 2.0).abs() < 0.01
    );
    assert!((mean("server_cpu_per_request") - 4.0).abs() < 1e-9);
    let target = &record.sides[0];
    assert_eq!(
        (target.all.requests, target.all.bytes, target.all.cache["hit"]),
        (150, 150 << 20, 150)
    );
    assert_eq!(target.rounds[1].server_cpu_us_per_request, Some(2000.0));
    assert_eq!((record.error_count(), record.limits.len()), (0, 0));
}

#[test]
fn json_has_the_figures_under_their_names() {
    let json = serde_json::to_value(record()).unwrap();
    assert_eq!(json["schema"], 1);
    assert_eq!(json["scenario"]["access"]["pattern"], "uniform");
    assert_eq!(json["sides"][1]["rounds"][0]["requests_per_second"], 200.0);
    assert_eq!(json["sides"][1]["all"]["latency"]["p50"].as_u64().unwrap() / 1000, 5);
    assert_eq!(json["ratios"]["mib_per_second"]["rounds"], 2);
}

#[test]
fn a_page_needs_nothing_else_and_is_well_formed() {
    let page = render_html(&record());
    for outside in ["src=", "href=", "@import", "<script", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("gateway &lt;1&gt;") && !page.contains("gateway <1>"));
    assert!(!page.contains("NaN") && !page.contains("inf"), "every figure is a number");
    for element in ["svg", "text", "title", "pre", "details", "p", "html", "body"] {
        let opened = page.matches(&format!("<{element}>")).count()
            + page.matches(&format!("<{element} ")).count();
        assert_eq!(opened, page.matches(&format!("</{element}>")).count(), "{element}");
    }
    assert_eq!(page.matches("<svg").count(), 5);
}

#[test]
fn pages_and_tables_can_do_with_nothing_measured() {
    let scenario = BenchScenario::parse(shipped_scenario("checkpoint").unwrap()).unwrap();
    let mut failed = outcome(0, 0, None);
    let done = BenchStepResult {
        bytes: 0,
        first_byte: None,
        ended: Instant::now(),
        cache: None,
        outcome: Err(BenchExchangeError::Timeout),
    };
    failed.tally.record_exchange(ExchangeKind::Put, Duration::ZERO, None, Duration::ZERO, done);
    let record = BenchRecord::new(scenario, vec![side("a", &[failed])]);
    let (page, table) = (render_html(&record), render_text(&record));
    assert!(!page.contains("NaN") && !page.contains("inf"));
    assert!(
        table.contains("errors timeout 1")
            && table.contains("put: no answer within the time allowed"),
        "{table}"
    );
    assert_eq!(record.error_count(), 1);
}

#[test]
fn a_table_says_what_was_compared_and_what_was_a_limit() {
    let mut record = record();
    record.limits.push("direct: x".into());
    let table = render_text(&record);
    assert!(
        table.contains("gateway <1> ÷ direct") && table.contains("limit: direct: x"),
        "{table}"
    );
    assert!(
        table.contains("server CPU per request") && table.contains("4.000 (4.000–4.000)"),
        "{table}"
    );
}
