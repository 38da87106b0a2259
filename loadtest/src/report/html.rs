//! Renders one page that needs nothing else: no script, no font, no network. It also holds the
//! figures as JSON.

use std::fmt::Write as _;

use super::plot::{self, BenchPlotSeries, escape_xml};
use super::{in_words, render_text};
use crate::bench_record::{BenchFigures, BenchRecord, COMPARED};

const STYLE: &str = "\
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;\
max-width:860px;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.4rem}pre{overflow-x:auto;font-size:12px;line-height:1.4}\
svg{width:100%;height:auto;margin:.5rem 0 1.5rem}\
svg text{font:12px system-ui,sans-serif;fill:currentColor}\
svg .title{font-size:14px;font-weight:600}\
svg .line{stroke:currentColor;opacity:.15}svg .one{stroke:currentColor;opacity:.6}\
.limit{border-left:4px solid #d55e00;padding:.3rem .8rem}details{margin-top:2rem}";

/// Returns the whole page as text.
pub fn render_html(record: &BenchRecord) -> String {
    let scenario = &record.scenario;
    let title = format!("{}: {}", scenario.name, scenario.description);
    // Writing to a String can't fail, here and below.
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{0}</title>\n<style>{STYLE}</style></head><body>\n<h1>{0}</h1>\n\
         <p>verbs3 {1}, Linux {2}, {3} CPUs</p>\n",
        escape_xml(&title),
        record.version,
        escape_xml(&record.kernel),
        record.cpus
    );
    for limit in &record.limits {
        let _ = writeln!(page, "<p class=\"limit\">{}</p>", escape_xml(limit));
    }
    if let [target, against] = record.sides.as_slice() {
        let names =
            format!("{} ÷ {}, paired by round, 95 % intervals", target.label, against.label);
        let found: Vec<_> = COMPARED
            .iter()
            .filter_map(|(name, _)| Some((in_words(name), *record.ratios.get(name)?)))
            .collect();
        page.push_str(&plot::plot_ratios(&names, &found));
    }
    let curves: Vec<BenchPlotSeries> = record
        .sides
        .iter()
        .map(|side| {
            let points =
                side.latency_curve.iter().map(|(at, micros)| (*at, *micros as f64 / 1e3)).collect();
            (side.label.clone(), points)
        })
        .collect();
    page.push_str(&plot::plot_percentiles(&curves));
    page.push_str(&over_rounds(record, "MiB/s by round", |figures| Some(figures.mib_per_second)));
    page.push_str(&over_rounds(record, "requests/s by round", |figures| {
        Some(figures.requests_per_second)
    }));
    page.push_str(&over_rounds(record, "server CPU by round, µs a request", |figures| {
        figures.server_cpu_us_per_request
    }));
    let _ = writeln!(page, "<pre>{}</pre>", escape_xml(&render_text(record)));
    // A record consists of numbers and text, so it always has a JSON form. `<` can't end the
    // element that holds it.
    let json = serde_json::to_string_pretty(record).unwrap_or_default();
    let _ = writeln!(
        page,
        "<details><summary>JSON</summary><pre>{}</pre></details>\n</body></html>",
        escape_xml(&json)
    );
    page
}

/// Writes nothing if no side has the figure.
fn over_rounds(
    record: &BenchRecord,
    title: &str,
    figure: impl Fn(&BenchFigures) -> Option<f64>,
) -> String {
    let series: Vec<BenchPlotSeries> = record
        .sides
        .iter()
        .map(|side| {
            let numbered = side.rounds.iter().enumerate();
            let points = numbered
                .filter_map(|(round, figures)| Some((round as f64 + 1.0, figure(figures)?)))
                .collect();
            (side.label.clone(), points)
        })
        .collect();
    if series.iter().all(|(_, points)| points.is_empty()) {
        String::new()
    } else {
        plot::plot_rounds(title, &series)
    }
}
