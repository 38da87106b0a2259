//! Draws plots as SVG text: latency over percentiles, a figure over rounds, ratios with their
//! intervals. Owns no page.

use std::fmt::Write as _;

use crate::statistics::RatioEstimate;

const WIDE: f64 = 760.0;
const HIGH: f64 = 300.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const ABOVE: f64 = 40.0;
const BELOW: f64 = 40.0;
/// Height of one ratio's row.
const ROW: f64 = 34.0;

/// Colours that people with colour-vision deficiencies can tell apart (Okabe and Ito).
pub const COLOURS: [&str; 4] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"];

/// A name and its points.
pub type BenchPlotSeries = (String, Vec<(f64, f64)>);

/// Escapes text for the inside of an element or of an attribute in double quotes.
pub fn escape_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn open_frame(text: &mut String, high: f64, title: &str) {
    // Writing to a String can't fail, here and below.
    let _ = writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDE} {high}\" role=\"img\" \
         aria-label=\"{0}\">\n\
         <text x=\"{LEFT}\" y=\"20\" class=\"title\">{0}</text>",
        escape_xml(title)
    );
}

/// Plots latency over percentiles. Each further nine of the percentile has the same width;
/// milliseconds go by decades.
pub fn plot_percentiles(series: &[BenchPlotSeries]) -> String {
    let nines = |percentile: f64| -(1.0 - (percentile / 100.0).min(0.99999)).log10();
    let points: Vec<BenchPlotSeries> = series
        .iter()
        .map(|(name, points)| {
            let placed =
                points.iter().filter(|(_, ms)| *ms > 0.0).map(|(at, ms)| (nines(*at), ms.log10()));
            (name.clone(), placed.collect())
        })
        .collect();
    let marks = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99].map(|at| (nines(at), format!("{at} %")));
    let (low, high) = value_bounds(&points);
    let (low, high) = (low.floor(), high.ceil().max(low.floor() + 1.0));
    let lines: Vec<(f64, String)> =
        (low as i32..=high as i32).map(|ten| (f64::from(ten), format_power_of_ten(ten))).collect();
    let across = ChartAxis { low: 0.0, high: 5.0, labels: &marks };
    let up = ChartAxis { low, high, labels: &lines };
    draw_chart("latency by percentile, ms", &points, across, up)
}

fn format_power_of_ten(ten: i32) -> String {
    format!("{}", 10f64.powi(ten))
}

/// Plots a figure in the order of rounds, from 0.
pub fn plot_rounds(title: &str, series: &[BenchPlotSeries]) -> String {
    let count = series.iter().map(|(_, points)| points.len()).max().unwrap_or(0).max(2);
    let top = value_bounds(series).1.max(1e-9) * 1.1;
    let marks: Vec<(f64, String)> =
        (1..=count).map(|round| (round as f64, round.to_string())).collect();
    let lines: Vec<(f64, String)> = (0..=4)
        .map(|part| top * f64::from(part) / 4.0)
        .map(|at| (at, format_three_digits(at)))
        .collect();
    let across = ChartAxis { low: 0.5, high: count as f64 + 0.5, labels: &marks };
    draw_chart(title, series, across, ChartAxis { low: 0.0, high: top, labels: &lines })
}

/// Formats a figure with three digits.
fn format_three_digits(figure: f64) -> String {
    let places = if figure <= 0.0 {
        0
    } else {
        (2 - figure.abs().log10().floor() as i32).clamp(0, 6) as usize
    };
    format!("{figure:.places$}")
}

fn value_bounds(series: &[BenchPlotSeries]) -> (f64, f64) {
    let figures = || series.iter().flat_map(|(_, points)| points.iter().map(|(_, figure)| *figure));
    let (low, high) =
        (figures().fold(f64::INFINITY, f64::min), figures().fold(f64::NEG_INFINITY, f64::max));
    if low.is_finite() && high.is_finite() { (low, high) } else { (0.0, 1.0) }
}

/// The values that a chart shows in one direction, and what stands beside some of them.
struct ChartAxis<'a> {
    low: f64,
    high: f64,
    labels: &'a [(f64, String)],
}

impl ChartAxis<'_> {
    /// Returns where a value lies: 0 at the low end, 1 at the high one.
    fn position_of(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }
}

fn draw_chart(
    title: &str,
    series: &[BenchPlotSeries],
    across: ChartAxis<'_>,
    up: ChartAxis<'_>,
) -> String {
    let mut text = String::new();
    open_frame(&mut text, HIGH, title);
    let x = |at: f64| LEFT + (WIDE - LEFT - RIGHT) * across.position_of(at);
    let y = |at: f64| HIGH - BELOW - (HIGH - ABOVE - BELOW) * up.position_of(at);
    for (at, label) in up.labels {
        let at = y(*at);
        let _ = writeln!(text, "<path d=\"M{LEFT} {at:.1}H{}\" class=\"line\"/>", WIDE - RIGHT);
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            LEFT - 8.0,
            at + 4.0
        );
    }
    for (at, label) in across.labels {
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
            x(*at),
            HIGH - 16.0
        );
    }
    for (number, (name, points)) in series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let placed: Vec<(f64, f64)> =
            points.iter().map(|(at, figure)| (x(*at), y(*figure))).collect();
        let line: Vec<String> = placed.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            line.join(" ")
        );
        for ((x, y), (_, figure)) in placed.iter().zip(points) {
            let name = escape_xml(name);
            let _ = writeln!(
                text,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"><title>{name} \
                {figure:.3}</title></circle>"
            );
        }
        let at = WIDE - RIGHT - 160.0 * (series.len() - number) as f64 + 20.0;
        let _ = writeln!(
            text,
            "<text x=\"{at}\" y=\"20\" fill=\"{colour}\">● {}</text>",
            escape_xml(name)
        );
    }
    text.push_str("</svg>\n");
    text
}

/// Plots ratios with their intervals around 1. Each doubling has the same width.
pub fn plot_ratios(title: &str, ratios: &[(&str, RatioEstimate)]) -> String {
    let mut text = String::new();
    let high = ABOVE + ROW * ratios.len() as f64 + BELOW;
    open_frame(&mut text, high, title);
    let reach = ratios
        .iter()
        .flat_map(|(_, ratio)| [ratio.low, ratio.high])
        .map(|end| end.log2().abs())
        .fold(0.5, f64::max);
    let (left, right) = (LEFT + 160.0, WIDE - RIGHT - 140.0);
    let x = |figure: f64| left + (right - left) * (figure.log2() / reach + 1.0) / 2.0;
    for end in [-reach, -reach / 2.0, 0.0, reach / 2.0, reach] {
        let (at, class) = (x(end.exp2()), if end == 0.0 { "one" } else { "line" });
        let _ = writeln!(text, "<path d=\"M{at:.1} {ABOVE}V{}\" class=\"{class}\"/>", high - BELOW);
        let _ = writeln!(
            text,
            "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{:.2}</text>",
            high - 16.0,
            end.exp2()
        );
    }
    for (row, (name, ratio)) in ratios.iter().enumerate() {
        let at = ABOVE + ROW * (row as f64 + 0.5);
        let (low, middle, high) = (x(ratio.low), x(ratio.mean), x(ratio.high));
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 8.0,
            at + 4.0,
            escape_xml(name)
        );
        let _ = writeln!(
            text,
            "<path d=\"M{low:.1} {at:.1}H{high:.1}\" stroke=\"{}\" stroke-width=\"3\"/>",
            COLOURS[0]
        );
        let _ = writeln!(
            text,
            "<circle cx=\"{middle:.1}\" cy=\"{at:.1}\" r=\"5\" fill=\"{}\"/>",
            COLOURS[0]
        );
        let shown = format!("{:.3} ({:.3}–{:.3})", ratio.mean, ratio.low, ratio.high);
        let _ = writeln!(text, "<text x=\"{}\" y=\"{:.1}\">{shown}</text>", right + 10.0, at + 4.0);
    }
    text.push_str("</svg>\n");
    text
}
