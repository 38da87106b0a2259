//! The table that people read.

use std::fmt::Write as _;

use super::record::{
    FabricCell, FabricRecord, FabricRow, median_figure, median_micros, mib_per_second, per_mib,
};
use verbs3_loadtest::units;

const LEGEND: &str = "\
echo    a message there and back, one at a time: median and 99th percentile, µs
read    from a call to its checked bytes, one at a time, µs
in, out, both   MiB/s with many calls in flight: into this side, into the host, the sum of both at once; shm hands memory over and
        moves nothing, so --verify is what makes it comparable
CPU     µs of all threads for each MiB of `in`, of this process / of the host's (of both together in one process)
WR, CQE work requests and completions for each MiB of `in`, the sum of both sides; copied: KiB for each MiB
plain   `in` divided by what plain TCP streams read in the same round";

/// The whole table, with what was left out.
pub fn render_table(record: &FabricRecord) -> String {
    let mut text = String::new();
    // Writing to a String can't fail.
    let _ = writeln!(
        text,
        "{}: {} connections a way, {} calls in flight, pages of {}, {} s a figure, {} compared\n",
        record.host,
        record.connections,
        record.depth,
        units::show_bytes(record.page_bytes as u64),
        record.seconds,
        if record.whole { "every byte" } else { "the ends of every page" },
    );
    let wide = record.ways.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(4);
    let _ = writeln!(
        text,
        "{:>9}  {:wide$} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>13} {:>6} {:>6} {:>6} {:>6}",
        "bytes",
        "way",
        "echo",
        "p99",
        "read",
        "p99",
        "in",
        "out",
        "both",
        "CPU",
        "WR",
        "CQE",
        "copied",
        "plain"
    );
    for row in &record.rows {
        for ((name, kind), cell) in record.ways.iter().zip(&row.cells) {
            let _ = writeln!(
                text,
                "{:>9}  {name:wide$} {}",
                units::show_bytes(row.bytes),
                format_row(row, cell, *kind == "verbs")
            );
            if let Some(reason) = &cell.failed {
                let _ = writeln!(text, "{:>9}  {name:wide$} failed: {reason}", "");
            }
        }
        if let Some(plain) = median_figure(row.plain.iter().copied()) {
            let _ = writeln!(
                text,
                "{:>9}  {:wide$} {:>35} {:>8}",
                "",
                "plain",
                "",
                format_figure(Some(plain))
            );
        }
    }
    for left in &record.left_out {
        let _ = writeln!(text, "\nnot measured: {}: {}", left.way, left.cause);
    }
    let _ = writeln!(text, "\n{LEGEND}");
    text
}

fn format_row(row: &FabricRow, cell: &FabricCell, verbs: bool) -> String {
    let cpu = match per_mib(&cell.read, |usage| usage.cpu_micros) {
        (here, Some(there)) => format!("{} / {}", format_figure(here), format_figure(Some(there))),
        (here, None) => format_figure(here),
    };
    let of_verbs = |value: Option<f64>| if verbs { format_figure(value) } else { "-".into() };
    let both_sides =
        |(here, there): (Option<f64>, Option<f64>)| here.map(|here| here + there.unwrap_or(0.0));
    [
        (8, format_figure(median_micros(&cell.echo, |trips| trips.p50))),
        (8, format_figure(median_micros(&cell.echo, |trips| trips.p99))),
        (8, format_figure(median_micros(&cell.read_trips, |trips| trips.p50))),
        (8, format_figure(median_micros(&cell.read_trips, |trips| trips.p99))),
        (8, format_figure(mib_per_second(&cell.read))),
        (8, format_figure(mib_per_second(&cell.write))),
        (8, format_figure(mib_per_second(&cell.both))),
        (13, cpu),
        (6, of_verbs(both_sides(per_mib(&cell.read, |usage| usage.work_requests)))),
        (6, of_verbs(both_sides(per_mib(&cell.read, |usage| usage.completions)))),
        (6, of_verbs(both_sides(per_mib(&cell.read, |usage| usage.copied_bytes / 1024)))),
        (6, row.over_plain(cell).map_or("-".into(), |ratio| format!("{ratio:.2}"))),
    ]
    .map(|(wide, text)| format!("{text:>wide$}"))
    .join(" ")
}

/// Three digits that count.
fn format_figure(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) if value >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;
    use verbs3_fabric_bench::{BandwidthResult, LeftOut, LeftOutCause, TransferCost};
    use verbs3_rdma::transport::TransportKind;

    pub fn record() -> FabricRecord {
        let usage =
            TransferCost { cpu_micros: 400, work_requests: 10, completions: 4, copied_bytes: 2048 };
        let read = BandwidthResult {
            calls: 2,
            bytes: 2 << 20,
            took: Duration::from_millis(20),
            here: usage,
            there: Some(usage),
        };
        let cell = FabricCell { read: vec![read], ..FabricCell::default() };
        let failed = FabricCell { failed: Some("it broke".into()), ..FabricCell::default() };
        FabricRecord {
            host: "10.0.0.1:9410".into(),
            ways: vec![("verbs mlx5_0:1".into(), "verbs"), ("tcp".into(), "tcp")],
            left_out: vec![LeftOut {
                kind: TransportKind::Shm,
                way: "shm".into(),
                cause: LeftOutCause::OnHost("another host".into()),
            }],
            depth: 16,
            connections: 2,
            page_bytes: 256 << 10,
            seconds: 1.0,
            rows: vec![FabricRow { bytes: 1 << 20, cells: vec![cell, failed], plain: vec![200.0] }],
            ..FabricRecord::default()
        }
    }

    #[test]
    fn a_line_has_what_was_measured_and_says_what_was_not() {
        let table = render_table(&record());
        let verbs = table.lines().find(|line| line.contains("1 MiB  verbs mlx5_0:1")).unwrap();
        let words: Vec<_> = verbs.split_whitespace().collect();
        assert_eq!(
            words[4..],
            [
                "-", "-", "-", "-", "100", "-", "-", "200", "/", "200", "10.0", "4.00", "2.00",
                "0.50"
            ]
        );
        assert!(table.contains("tcp            failed: it broke"), "{table}");
        assert!(table.contains("not measured: shm: on the host: another host"));
    }

    #[test]
    fn json_has_the_same() {
        let json = record().to_json();
        let figure = &json["figures"][0];
        assert_eq!(figure["read"][0]["mib_per_s"], 100.0);
        assert_eq!(figure["read"][0]["there"]["work_requests_per_mib"], 5.0);
        assert_eq!(figure["read_over_plain"], 0.5);
        assert_eq!(json["figures"][1]["failed"], "it broke");
        assert_eq!(json["left_out"][0]["reason"], "on the host: another host");
    }
}
