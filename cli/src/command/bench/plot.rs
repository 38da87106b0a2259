//! The picture: one SVG file that needs nothing else. Bandwidth above, round trips below, over the
//! sizes.

use std::fmt::Write as _;

use super::record::{FabricCell, FabricRecord, median_figure, median_micros, mib_per_second};
use verbs3_loadtest::units;

const WIDE: f64 = 900.0;
const HIGH: f64 = 340.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 190.0;
const ABOVE: f64 = 40.0;
const BELOW: f64 = 40.0;

/// Told apart by people who see colours differently (Okabe and Ito).
const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// A name, and a point for each size; sizes that were not measured are left out.
type FabricPlotSeries = (String, Vec<Option<f64>>);

/// Draws the whole SVG document: bandwidth above, round trips below.
pub fn render_svg(record: &FabricRecord) -> String {
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDE} {}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        2.0 * HIGH
    );
    let of_way = |at: usize, figure: &dyn Fn(&FabricCell) -> Option<f64>| {
        record.rows.iter().map(|row| row.cells.get(at).and_then(figure)).collect::<Vec<_>>()
    };
    let names = || record.ways.iter().map(|(name, _)| name.clone()).enumerate();
    let mut bandwidth: Vec<FabricPlotSeries> =
        names().map(|(at, name)| (name, of_way(at, &|cell| mib_per_second(&cell.read)))).collect();
    let plain: Vec<_> =
        record.rows.iter().map(|row| median_figure(row.plain.iter().copied())).collect();
    if plain.iter().any(Option::is_some) {
        bandwidth.push(("plain TCP streams".into(), plain));
    }
    let trips: Vec<FabricPlotSeries> = names()
        .map(|(at, name)| {
            (name, of_way(at, &|cell| median_micros(&cell.read_trips, |trips| trips.p50)))
        })
        .collect();
    let labels: Vec<_> = record.rows.iter().map(|row| units::show_bytes(row.bytes)).collect();
    let title =
        format!("read bandwidth from {}, MiB/s, {} calls in flight", record.host, record.depth);
    draw_panel(&mut text, 0.0, &title, &labels, &bandwidth);
    draw_panel(&mut text, HIGH, "one read at a time, median, µs", &labels, &trips);
    text.push_str("</svg>\n");
    text
}

/// Both axes are logarithmic: sizes by their order, figures by decades.
fn draw_panel(
    text: &mut String,
    top: f64,
    title: &str,
    labels: &[String],
    series: &[FabricPlotSeries],
) {
    let figures = || {
        series
            .iter()
            .flat_map(|(_, points)| points.iter().flatten().copied())
            .filter(|figure| *figure > 0.0)
    };
    let low = figures().fold(f64::INFINITY, f64::min).log10().floor();
    let high = figures().fold(0.0, f64::max).log10().ceil().max(low + 1.0);
    let x = |at: usize| LEFT + (WIDE - LEFT - RIGHT) * at as f64 / (labels.len().max(2) - 1) as f64;
    let y = |figure: f64| {
        top + HIGH - BELOW - (HIGH - ABOVE - BELOW) * (figure.log10() - low) / (high - low)
    };
    // Writing to a String can't fail, here and below.
    let _ = writeln!(
        text,
        "<text x=\"{LEFT}\" y=\"{}\" font-size=\"14\">{}</text>",
        top + 24.0,
        escape_xml(title)
    );
    if !low.is_finite() {
        return;
    }
    for decade in low as i32..=high as i32 {
        let (figure, right) = (10f64.powi(decade), WIDE - RIGHT);
        let at = y(figure);
        let _ = writeln!(text, "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#ddd\"/>");
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{figure}</text>",
            LEFT - 8.0,
            at + 4.0
        );
    }
    for (at, label) in labels.iter().enumerate() {
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
            x(at),
            top + HIGH - 18.0
        );
    }
    for (number, (name, points)) in series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let known = points
            .iter()
            .enumerate()
            .filter_map(|(at, figure)| Some((x(at), y((*figure).filter(|f| *f > 0.0)?))));
        let line: Vec<_> = known.clone().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            line.join(" ")
        );
        for (x, y) in known {
            let _ =
                writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let at = top + ABOVE + 18.0 * number as f64 + 8.0;
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{at}\" fill=\"{colour}\">{}</text>",
            WIDE - RIGHT + 16.0,
            escape_xml(name)
        );
    }
}

fn escape_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::record::FabricRow;
    use super::*;
    use std::time::Duration;
    use verbs3_fabric_bench::{BandwidthResult, TransferCost};

    #[test]
    fn a_picture_has_a_line_for_each_way_and_is_well_formed() {
        let read = |bytes| {
            let usage = TransferCost::default();
            let moved = BandwidthResult {
                calls: 1,
                bytes,
                took: Duration::from_secs(1),
                here: usage,
                there: None,
            };
            FabricCell { read: vec![moved], ..FabricCell::default() }
        };
        let row = |bytes| FabricRow {
            bytes,
            cells: vec![read(bytes), FabricCell::default()],
            plain: vec![3.0],
        };
        let ways = vec![("verbs <1>".into(), "verbs"), ("tcp".into(), "tcp")];
        let record = FabricRecord {
            ways,
            rows: vec![row(1 << 20), row(4 << 20)],
            ..FabricRecord::default()
        };
        let svg = render_svg(&record);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(
            svg.matches("<polyline").count(),
            3,
            "two ways and plain streams; there are no round trips"
        );
        assert_eq!(svg.matches("<circle").count(), 4, "nothing where nothing was measured");
        assert!(svg.contains("verbs &lt;1&gt;") && !svg.contains("NaN") && !svg.contains("inf"));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }
}
