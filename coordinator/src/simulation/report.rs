//! Writes the report: what was measured, as tables in `SIMULATION.md`.

use std::fmt::Write as _;
use std::time::Duration;

use super::scenario::SimulationMeasurement;
use super::world::SimulationScale;

pub(super) fn render_table(scale: &SimulationScale, all: &[SimulationMeasurement]) -> String {
    let SimulationScale { workers, gateways, racks, .. } = scale;
    let mut text =
        format!("{workers} workers in {racks} racks, {gateways} gateways, 3 coordinators.\n\n");
    text.push_str(
        "| what happens | all in a map after | all have their share after | maps | slots moved | of which their share | most by one map | \
         imbalance | answers to workers | answers to gateways | requests | longest without standing |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for measured in all {
        let SimulationMeasurement {
            name,
            in_a_map,
            converged,
            maps,
            moved,
            moved_at_once,
            share,
            imbalance,
            ..
        } = measured;
        let SimulationMeasurement {
            bytes_to_workers,
            bytes_to_gateways,
            requests,
            asking_longest,
            ..
        } = measured;
        // Writing to a string can't fail.
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {maps} | {:.2} % | {:.2} % | {:.2} % | {imbalance:.3} | {} | {} \
            | {requests} | {} |",
            format_seconds(*in_a_map),
            format_seconds(*converged),
            moved * 100.0,
            share * 100.0,
            moved_at_once * 100.0,
            format_bytes(*bytes_to_workers),
            format_bytes(*bytes_to_gateways),
            format_seconds(*asking_longest),
        );
    }
    text
}

fn format_seconds(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}

fn format_bytes(bytes: u64) -> String {
    match bytes as f64 / 1e6 {
        mega if mega >= 1000.0 => format!("{:.2} GB", mega / 1000.0),
        mega if mega >= 10.0 => format!("{mega:.0} MB"),
        mega => format!("{mega:.2} MB"),
    }
}

fn part_marks(part: &str) -> (String, String) {
    (format!("<!-- {part} -->\n"), format!("<!-- end of {part} -->"))
}

/// Returns the report's text between the marks of a part.
pub(super) fn find_part<'a>(report: &'a str, part: &str) -> Option<&'a str> {
    let (begin, end) = part_marks(part);
    let (_, rest) = report.split_once(&begin)?;
    Some(rest.split_once(&end)?.0)
}

/// Returns the report with this part's table replaced.
pub(super) fn replace_part(report: &str, part: &str, table: &str) -> String {
    let (begin, end) = part_marks(part);
    match report.split_once(&begin).and_then(|(head, rest)| Some((head, rest.split_once(&end)?.1)))
    {
        Some((head, tail)) => format!("{head}{begin}{table}{end}{tail}"),
        None => format!("{report}\n{begin}{table}{end}\n"),
    }
}
