//! The document and the summary of an acceptance run. Owns their shape, which has a number.

use std::fmt::Write;

use serde_json::{Value, json};

use super::AcceptanceRecord;
use super::step::{AcceptanceStep, FigureLimit, StepFigure, StepOutcome, StepVerdict};

/// Rises when a field of the file changes its meaning or goes away.
const SHAPE: u32 = 1;
/// Columns of verdict and name in the summary.
const VERDICT_WIDE: usize = 12;
const NAME_WIDE: usize = 27;

/// Returns the document of a run, with its summary.
pub fn record_json(record: &AcceptanceRecord) -> Value {
    let verdict = record.worst_verdict();
    json!({
        "shape": SHAPE,
        "version": env!("CARGO_PKG_VERSION"),
        "host": record.host,
        "peer": record.peer,
        "began_unix": record.began_unix,
        "transports": record.transports,
        "verdict": verdict.as_str(),
        "exit_status": record.exit_status(),
        "steps": record.steps.iter().map(AcceptanceStep::to_json).collect::<Vec<_>>(),
        "summary": render_summary(record).lines().collect::<Vec<_>>(),
    })
}

/// Returns the summary: a line for each figure, and what to do below what was not run.
pub fn render_summary(record: &AcceptanceRecord) -> String {
    let mut text = String::new();
    // Writing to a string can't fail.
    let _ = writeln!(
        text,
        "acceptance of {} with {}: {}\n",
        record.host,
        record.peer.as_deref().unwrap_or("itself"),
        record.transports.join(" and ")
    );
    for step in &record.steps {
        write_step(&mut text, step);
    }
    let count = |verdict| record.steps.iter().filter(|step| step.verdict() == verdict).count();
    let _ = writeln!(
        text,
        "\n{} as expected, {} recorded, {} below, {} failed, {} not run",
        count(StepVerdict::AsExpected),
        count(StepVerdict::Recorded),
        count(StepVerdict::Below),
        count(StepVerdict::Failed),
        count(StepVerdict::NotRun),
    );
    text
}

fn write_step(text: &mut String, step: &AcceptanceStep) {
    let named = format!("{} ({})", step.title.name, step.title.subject);
    let start = |verdict: StepVerdict| {
        format!("{:<VERDICT_WIDE$} {named:<NAME_WIDE$}", verdict.as_str().replace('_', " "))
    };
    let indent = " ".repeat(VERDICT_WIDE + 1);
    match &step.outcome {
        StepOutcome::Measured(figures) => {
            for figure in figures {
                let _ = writeln!(text, "{} {}", start(figure.verdict()), figure_text(figure));
            }
            if figures.is_empty() {
                let _ = writeln!(text, "{} no figure", start(step.verdict()));
            }
            if step.verdict() >= StepVerdict::Below {
                let _ = writeln!(text, "{indent}command: {}", step.title.command);
            }
        }
        StepOutcome::NotRun(because) | StepOutcome::Failed(because) => {
            let _ = writeln!(text, "{} {}", start(step.verdict()), because.seen);
            let _ = writeln!(text, "{indent}remedy: {}", because.remedy);
        }
    }
}

fn figure_text(figure: &StepFigure) -> String {
    let value = show_value(figure.value);
    let said = format!("{}: {value} {}", figure.what, figure.unit);
    match &figure.expected {
        None => said,
        Some(expected) => {
            let bound = match expected.limit {
                FigureLimit::AtLeast(bound) => format!("at least {}", show_value(bound)),
                FigureLimit::AtMost(bound) => format!("at most {}", show_value(bound)),
            };
            format!("{said}; expected {bound} ({})", expected.source)
        }
    }
}

/// Three digits that count.
fn show_value(value: f64) -> String {
    if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}
