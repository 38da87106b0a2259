//! Renders the table that people read in a terminal.

use std::fmt::Write as _;
use std::time::Duration;

use super::in_words;
use crate::bench_record::{
    BenchFigures, BenchRecord, BenchSideRecord, COMPARED, ExchangeKindFigures, LatencyPercentiles,
    median_over_rounds,
};
use crate::units::show_time;

/// Renders the whole table. Writing to a String can't fail, here and below.
pub fn render_text(record: &BenchRecord) -> String {
    let (scenario, mut text) = (&record.scenario, String::new());
    let rounds = &scenario.rounds;
    let _ = writeln!(text, "{}: {}", scenario.name, scenario.description);
    let _ = writeln!(
        text,
        "{} connections, {} rounds of {}, {:.0} % of the bodies checked, seed {}\n",
        scenario.load.connections,
        rounds.count,
        show_time(rounds.time),
        100.0 * scenario.verify,
        scenario.seed
    );
    let wide = record.sides.iter().map(|side| side.label.chars().count()).max().unwrap_or(0).max(8);
    let _ = writeln!(
        text,
        "{:wide$} {:>9} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9} {:>7}",
        "",
        "requests",
        "per s",
        "MiB/s",
        "p50",
        "p99",
        "p99.9",
        "max",
        "first byte",
        "CPU µs",
        "errors"
    );
    for side in &record.sides {
        let _ = writeln!(text, "{:wide$} {}", side.label, side_line(side));
        for (kind, of_kind) in side.all.kinds.iter().filter(|_| side.all.kinds.len() > 1) {
            let _ = writeln!(text, "{:>wide$} {}", kind, kind_line(of_kind));
        }
    }
    for agent in &record.agents {
        let all = &agent.all;
        let _ = writeln!(
            text,
            "{:>wide$} {:>9} {:>10.1} {:>9.1} {}",
            agent.host,
            all.requests,
            all.requests_per_second,
            all.mib_per_second,
            format_percentiles(all.latency)
        );
    }
    if let Some(skew) = record.start_skew_us_max {
        let count = record.agents.len();
        let _ = writeln!(
            text,
            "\n{count} hosts, each with these connections; rounds start within {}",
            format_micros(skew)
        );
    }
    for side in &record.sides {
        write_remarks(&mut text, side);
    }
    if let [target, against] = record.sides.as_slice() {
        let _ = writeln!(
            text,
            "\n{} ÷ {}, paired by round (95 % interval)",
            target.label, against.label
        );
        for (name, _) in COMPARED {
            if let Some(ratio) = record.ratios.get(name) {
                let _ = writeln!(
                    text,
                    "  {:26} {:>6.3} ({:.3}–{:.3})",
                    in_words(name),
                    ratio.mean,
                    ratio.low,
                    ratio.high
                );
            }
        }
    }
    for limit in &record.limits {
        let _ = writeln!(text, "\nlimit: {limit}");
    }
    text
}

fn side_line(side: &BenchSideRecord) -> String {
    let all = &side.all;
    let per_second = |figure: fn(&BenchFigures) -> f64| {
        median_over_rounds(side, |figures| Some(figure(figures))).unwrap_or(0.0)
    };
    let cpu = median_over_rounds(side, |figures| figures.server_cpu_us_per_request)
        .map_or("-".into(), |cpu| format!("{cpu:.1}"));
    format!(
        "{:>9} {:>10.1} {:>9.1} {} {:>10} {cpu:>9} {:>7}",
        all.requests,
        per_second(|figures| figures.requests_per_second),
        per_second(|figures| figures.mib_per_second),
        format_percentiles(all.latency),
        all.first_byte.map_or("-".into(), |first| format_micros(first.p50)),
        all.errors_in_all(),
    )
}

fn kind_line(of_kind: &ExchangeKindFigures) -> String {
    let first = of_kind.first_byte.map_or("-".into(), |first| format_micros(first.p50));
    format!(
        "{:>9} {:>10} {:>9} {} {first:>10}",
        of_kind.requests,
        "",
        "",
        format_percentiles(of_kind.latency)
    )
}

fn format_percentiles(found: Option<LatencyPercentiles>) -> String {
    let shown = found.map_or(["-".into(), "-".into(), "-".into(), "-".into()], |found| {
        [found.p50, found.p99, found.p999, found.max].map(format_micros)
    });
    shown.map(|time| format!("{time:>9}")).join(" ")
}

fn format_micros(micros: u64) -> String {
    show_time(Duration::from_micros(micros))
}

/// Writes what does not fit into columns.
fn write_remarks(text: &mut String, side: &BenchSideRecord) {
    let listed = |names: &std::collections::BTreeMap<String, u64>| {
        names.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
    };
    if !side.all.cache.is_empty() {
        let _ = writeln!(text, "\n{}: cache {}", side.label, listed(&side.all.cache));
    }
    if !side.all.errors.is_empty() {
        let _ = writeln!(text, "\n{}: errors {}", side.label, listed(&side.all.errors));
        side.examples.iter().for_each(|example| {
            let _ = writeln!(text, "  {example}");
        });
    }
}
