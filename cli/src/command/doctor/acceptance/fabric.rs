//! The steps that `verbs3 bench fabric` does: tcp beside plain streams, verbs beside perftest, one
//! rail and all, memory windows and relaxed ordering. Owns their command lines, and what each figure
//! is held against. The command that a step names is the one that is run.

use std::collections::BTreeMap;

use clap::Parser;
use verbs3_fabric_bench::ALL_RAILS;
use verbs3_loadtest::units;
use verbs3_rdma::transport::TransportKind;
use verbs3_rdma::verbs::has_memory_windows;

use super::AcceptanceRun;
use super::perftest::PerftestFigures;
use super::rails::AcceptanceRails;
use super::step::{AcceptanceStep, FigureLimit, StepFigure, StepReason, StepTitle};
use crate::arguments::{CommandLine, TopLevelCommand};
use crate::command::bench::fabric::measure_record;
use crate::command::bench::{BenchCommand, FabricRecord, median_micros, mib_per_second};

const TCP: &str = "tcp";
const VERBS: &str = "verbs";
const VERBS_LATENCY: &str = "verbs, latency";
const WINDOWS: &str = "memory windows";
const ORDERING: &str = "relaxed ordering";
const DOCUMENT: &str = "docs/fabric/measuring.md";

/// Parts that verbs3 is to reach: of plain streams, by length; of `ib_write_bw`, and of the sum of
/// single rails (docs/fabric/measuring.md). At 1 MiB it expects 1: a tenth is left for noise.
const PLAIN_PART_MIN: [(u64, f64); 2] = [(256 << 10, 0.8), (1 << 20, 0.9)];
const PERFTEST_PART_MIN: f64 = 0.9;
const SUM_PART_MIN: f64 = 0.95;
/// The wire, less 2 % for perftest and a tenth for verbs3 (the same document).
const WIRE_PART_MIN: f64 = 0.98 * PERFTEST_PART_MIN;
/// An echo's half is to be five times `ib_send_lat` at most (the same document).
const SEND_TIMES_MAX: f64 = 5.0;
/// A setting that is called harmless may cost this part, which is noise (docs/hardware.md).
const HARMLESS_PART_MIN: f64 = 0.95;
/// No real NIC was measured with windows. Each landing costs two work requests more.
const WINDOWS_PART_MIN: f64 = 0.8;
const LARGE: &str = "1MiB";
const GBITS_PER_MIB: f64 = 1_048_576.0 * 8.0 / 1e9;

/// Runs every step of `verbs3 bench fabric`. `perftest` has what the rails gave without verbs3, by
/// label.
pub fn measure_fabric(
    run: &AcceptanceRun<'_>,
    rails: &AcceptanceRails,
    perftest: &BTreeMap<String, PerftestFigures>,
) -> Vec<AcceptanceStep> {
    let fabric = FabricSteps { run, rails, perftest };
    let mut steps = vec![fabric.measure_tcp()];
    if rails.rails.is_empty() {
        let skip = |name| {
            let words = fabric.words(&["--ways", "verbs", "--sizes", LARGE]);
            StepTitle::new(name, "host", words.join(" ")).not_run(rails.none.clone())
        };
        steps.extend([VERBS, VERBS_LATENCY, WINDOWS, ORDERING].map(skip));
        return steps;
    }
    let base = fabric.run_verbs(&["--connections", "4", "--depth", "32", "--sizes", LARGE]);
    steps.push(fabric.judge_verbs(&base));
    steps.push(fabric.measure_latency());
    steps.push(fabric.measure_windows(&base));
    steps.push(fabric.measure_ordering(&base));
    steps
}

struct FabricSteps<'a> {
    run: &'a AcceptanceRun<'a>,
    rails: &'a AcceptanceRails,
    perftest: &'a BTreeMap<String, PerftestFigures>,
}

/// One run of `verbs3 bench fabric` with its command.
struct FabricRun {
    command: String,
    record: Result<FabricRecord, StepReason>,
}

impl FabricRun {
    /// Gb/s by name of the way. Ways without a figure have none.
    fn gbits_by_way(&self) -> BTreeMap<&str, f64> {
        let Ok(record) = &self.record else { return BTreeMap::new() };
        let Some(row) = record.rows.first() else { return BTreeMap::new() };
        let mut by_way = BTreeMap::new();
        for ((name, _), cell) in record.ways.iter().zip(&row.cells) {
            if let Some(moved) = mib_per_second(&cell.read) {
                by_way.insert(name.as_str(), moved * GBITS_PER_MIB);
            }
        }
        by_way
    }
}

impl FabricSteps<'_> {
    fn words(&self, rest: &[&str]) -> Vec<String> {
        let arguments = self.run.arguments;
        let (seconds, rounds) = (arguments.seconds.to_string(), arguments.rounds.to_string());
        let mut words = vec!["verbs3", "bench", "fabric"];
        let host = self.run.fabric_host();
        words.push(host.as_deref().unwrap_or("--loopback"));
        words.extend(rest);
        words.extend(["--directions", "read", "--seconds", &seconds, "--rounds", &rounds]);
        let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        if let Some(path) = &arguments.secret_file {
            words.extend(["--secret-file".to_owned(), path.display().to_string()]);
        }
        words
    }

    fn run_words(&self, words: &[String]) -> FabricRun {
        let command = words.join(" ");
        let remedy = match self.run.fabric_host() {
            Some(_) => {
                "on the other host: verbs3 bench fabric --serve, with a --rail for each of its rails"
            }
            None => "run the command alone; docs/fabric/measuring.md",
        };
        let record = match CommandLine::try_parse_from(words).map(|line| line.command) {
            Ok(TopLevelCommand::Bench(BenchCommand::Fabric(arguments))) => {
                measure_record(&arguments).map_err(|error| format!("{error:#}"))
            }
            Ok(_) => Err("it is no command of bench fabric".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        FabricRun { command, record: record.map_err(|reason| StepReason::new(reason, remedy)) }
    }

    fn run_verbs(&self, rest: &[&str]) -> FabricRun {
        let mut words = self.words(&[&["--ways", "verbs", "--no-plain"], rest].concat());
        for address in self.rails.addresses() {
            words.extend(["--rail".to_owned(), address.to_string()]);
        }
        let mut ran = self.run_words(&words);
        if let Ok(record) = &ran.record
            && let Some(because) = find_verbs_failure(record)
        {
            ran.record = Err(because);
        }
        ran
    }

    fn measure_tcp(&self) -> AcceptanceStep {
        let words = self.words(&["--ways", "tcp", "--sizes", "64B,256KiB,1MiB"]);
        let ran = self.run_words(&words);
        let title = StepTitle::new(TCP, "host", ran.command);
        let record = match ran.record {
            Ok(record) => record,
            Err(because) => return title.failed(because),
        };
        let failed =
            record.rows.iter().flat_map(|row| &row.cells).find_map(|cell| cell.failed.clone());
        if let Some(reason) = failed {
            return title.failed(StepReason::new(reason, "run the command alone"));
        }
        let mut figures = Vec::new();
        for row in &record.rows {
            let Some(cell) = row.cells.first() else { continue };
            let size = units::show_bytes(row.bytes);
            if let Some(echo) = median_micros(&cell.echo, |trips| trips.p50) {
                figures.push(StepFigure::recorded(format!("{size}, one way"), echo / 2.0, "µs"));
            }
            let Some(part) = PLAIN_PART_MIN.iter().find(|(bytes, _)| *bytes == row.bytes) else {
                continue;
            };
            if let Some(moved) = mib_per_second(&cell.read) {
                figures.push(StepFigure::recorded(
                    format!("{size}, read"),
                    moved * GBITS_PER_MIB,
                    "Gb/s",
                ));
            }
            if let Some(ratio) = row.over_plain(cell) {
                let source = format!("{DOCUMENT}, \"Beside plain streams\"");
                let figure =
                    StepFigure::recorded(format!("{size}, of plain streams"), ratio, "times");
                figures.push(figure.with_limit(FigureLimit::AtLeast(part.1), source));
            }
        }
        AcceptanceStep { record: Some(record.to_json()), ..title.measured(figures) }
    }

    /// Holds each rail against perftest, or else against its wire, and all rails against their sum.
    fn judge_verbs(&self, base: &FabricRun) -> AcceptanceStep {
        let title = StepTitle::new(VERBS, "all rails", &base.command);
        let record = match &base.record {
            Ok(record) => record,
            Err(because) => return title.failed(because.clone()),
        };
        let by_way = base.gbits_by_way();
        let sum: f64 =
            by_way.iter().filter(|(way, _)| **way != ALL_RAILS).map(|(_, gbits)| gbits).sum();
        let figures = by_way.iter().map(|(way, gbits)| {
            let figure = StepFigure::recorded(format!("{way}, read"), *gbits, "Gb/s");
            if *way == ALL_RAILS {
                let source = format!("{sum:.1} Gb/s of the rails one by one, less 5 %: {DOCUMENT}");
                return figure.with_limit(FigureLimit::AtLeast(sum * SUM_PART_MIN), source);
            }
            self.expect_of_rail(figure, way)
        });
        let figures = figures.collect();
        AcceptanceStep { record: Some(record.to_json()), ..title.measured(figures) }
    }

    fn expect_of_rail(&self, figure: StepFigure, way: &str) -> StepFigure {
        let label = way.strip_prefix("verbs ").unwrap_or(way);
        let written = self.perftest.get(label).and_then(|found| found.gbits);
        let rail = self.rails.rails.iter().find(|rail| rail.label() == label);
        match (written, rail.and_then(|rail| rail.wire_gbits)) {
            (Some(written), _) => {
                let source = format!(
                    "nine tenths of ib_write_bw, {written:.1} Gb/s in this run: {DOCUMENT}"
                );
                figure.with_limit(FigureLimit::AtLeast(written * PERFTEST_PART_MIN), source)
            }
            (None, Some(wire)) => {
                let source = format!(
                    "{wire:.0} Gb/s of data on this wire, less 2 % and a tenth: {DOCUMENT}"
                );
                figure.with_limit(FigureLimit::AtLeast(wire * WIRE_PART_MIN), source)
            }
            (None, None) => figure,
        }
    }

    fn measure_latency(&self) -> AcceptanceStep {
        let ran = self.run_verbs(&[
            "--sizes",
            "64B",
            "--busy-poll",
            "100",
            "--connections",
            "1",
            "--depth",
            "1",
        ]);
        let title = StepTitle::new(VERBS_LATENCY, "all rails", &ran.command);
        let record = match &ran.record {
            Ok(record) => record,
            Err(because) => return title.failed(because.clone()),
        };
        let mut figures = Vec::new();
        for ((way, _), cell) in
            record.ways.iter().zip(record.rows.iter().flat_map(|row| &row.cells))
        {
            let Some(echo) = median_micros(&cell.echo, |trips| trips.p50) else { continue };
            let figure = StepFigure::recorded(format!("{way}, one way"), echo / 2.0, "µs");
            let label = way.strip_prefix("verbs ").unwrap_or(way);
            let sent = self.perftest.get(label).and_then(|found| found.send_micros);
            figures.push(match sent {
                Some(sent) => {
                    let source =
                        format!("five times ib_send_lat, {sent:.2} µs in this run: {DOCUMENT}");
                    figure.with_limit(FigureLimit::AtMost(sent * SEND_TIMES_MAX), source)
                }
                None => figure,
            });
        }
        AcceptanceStep { record: Some(record.to_json()), ..title.measured(figures) }
    }

    fn measure_windows(&self, base: &FabricRun) -> AcceptanceStep {
        let rest = ["--connections", "4", "--depth", "32", "--sizes", LARGE, "--windows", "auto"];
        let lacking = self.rails.rails.iter().find_map(|rail| {
            match has_memory_windows(rail.identity.address) {
                Ok(true) => None,
                Ok(false) => Some(format!("{} has no memory windows of type 2", rail.label())),
                Err(error) => Some(format!("{}: {error}", rail.label())),
            }
        });
        if let Some(reason) = lacking {
            let command = self.words(&rest).join(" ");
            let because =
                StepReason::new(reason, "nothing: verbs.windows = \"off\" is the default");
            return StepTitle::new(WINDOWS, "all rails", command).not_run(because);
        }
        let on = self.run_verbs(&rest);
        let source = "a bound of this tool: no real NIC was measured with windows";
        judge_pair(
            WINDOWS,
            SwitchedRuns { on: &on, off: base },
            FigureLimit::AtLeast(WINDOWS_PART_MIN),
            source,
        )
    }

    fn measure_ordering(&self, base: &FabricRun) -> AcceptanceStep {
        let off = self.run_verbs(&[
            "--connections",
            "4",
            "--depth",
            "32",
            "--sizes",
            LARGE,
            "--relaxed-ordering",
            "off",
        ]);
        let source =
            "no host is known that loses by it, some gain a third; 5 % are noise: docs/hardware.md";
        judge_pair(
            ORDERING,
            SwitchedRuns { on: base, off: &off },
            FigureLimit::AtLeast(HARMLESS_PART_MIN),
            source,
        )
    }
}

/// A feature on, and off.
struct SwitchedRuns<'a> {
    on: &'a FabricRun,
    off: &'a FabricRun,
}

fn judge_pair(
    name: &'static str,
    runs: SwitchedRuns<'_>,
    limit: FigureLimit,
    source: &str,
) -> AcceptanceStep {
    let command = format!("{}; {}", runs.on.command, runs.off.command);
    let title = StepTitle::new(name, "all rails", command);
    if let Some(because) = [runs.on, runs.off].iter().find_map(|run| run.record.as_ref().err()) {
        return title.failed(because.clone());
    }
    let (on, off) = (runs.on.gbits_by_way(), runs.off.gbits_by_way());
    let mut figures = Vec::new();
    for (way, on) in &on {
        let Some(off) = off.get(way).filter(|off| **off > 0.0) else { continue };
        figures.push(StepFigure::recorded(format!("{way}, on"), *on, "Gb/s"));
        figures.push(StepFigure::recorded(format!("{way}, off"), *off, "Gb/s"));
        let figure = StepFigure::recorded(format!("{way}, on ÷ off"), on / off, "times");
        figures.push(figure.with_limit(limit, source));
    }
    title.measured(figures)
}

/// Returns why a run over verbs does not count: a rail that did not open, or that failed under way.
fn find_verbs_failure(record: &FabricRecord) -> Option<StepReason> {
    let remedy = "verbs3 doctor, on both hosts; then the command alone";
    // What the other side lacks of shared memory is no matter of verbs.
    let left = record.left_out.iter().find(|left| left.kind == TransportKind::Verbs);
    let left = left.map(|left| format!("{}: {}", left.way, left.cause));
    let failed = || {
        let cells = record.rows.iter().flat_map(|row| record.ways.iter().zip(&row.cells));
        let mut failed =
            cells.filter_map(|((way, _), cell)| Some(format!("{way}: {}", cell.failed.as_ref()?)));
        failed.next()
    };
    let none = || record.ways.is_empty().then(|| "no rail was measured".to_owned());
    left.or_else(failed).or_else(none).map(|reason| StepReason::new(reason, remedy))
}
