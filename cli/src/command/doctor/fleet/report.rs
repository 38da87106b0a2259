//! The table of a fleet, and its JSON. Owns their shape, which has a number.

use std::fmt::Write;

use serde_json::{Value, json};

use super::differences::{FleetDifference, SharedValue};
use super::{FleetMember, FleetReport};
use crate::command::doctor::remote_report::{RemoteFinding, RemoteReport};
use crate::ssh::printable_text;

/// Rises when a field changes its meaning or goes away.
const SHAPE: u32 = 1;
/// Hosts that a line names; the others are counted. `--json` has all.
const NAMED_MAX: usize = 8;

/// Returns the table, and below it what differs.
pub fn render_table(report: &FleetReport) -> String {
    let wide =
        report.members.iter().map(|member| member.host.as_str().len()).max().unwrap_or(0).max(4);
    let mut text = String::new();
    // Writing to a string can't fail.
    let _ = writeln!(text, "{:<wide$}  verdict  rails up  problems", "host");
    for member in &report.members {
        let _ = match &member.answer {
            Ok(answer) => writeln!(
                text,
                "{:<wide$}  {:<7}  {:<8}  {}",
                member.host,
                verdict_text(answer),
                format!("{} of {}", answer.usable_rails.len(), count_ports(answer)),
                problem_text(answer)
            ),
            Err(reason) => {
                writeln!(text, "{:<wide$}  {:<7}  {:<8}  {reason}", member.host, "unknown", "-")
            }
        };
    }
    let answered = report.members.iter().filter(|member| member.answer.is_ok()).count();
    let _ = writeln!(text, "\n{answered} of {} hosts answered", report.members.len());
    if report.differences.is_empty() {
        let _ = writeln!(text, "no difference between those that answered");
    }
    for difference in &report.differences {
        let _ = writeln!(text, "differs: {}", difference_text(difference));
    }
    text
}

/// Returns the same as a document.
pub fn report_json(report: &FleetReport) -> Value {
    json!({
        "shape": SHAPE,
        "exit_status": report.exit_status(),
        "hosts": report.members.iter().map(member_json).collect::<Vec<_>>(),
        "differences": report.differences,
    })
}

fn member_json(member: &FleetMember) -> Value {
    match &member.answer {
        Ok(answer) => json!({
            "host": member.host.as_str(),
            "verdict": verdict_text(answer),
            "usable_rails": answer.usable_rails,
            "ports": count_ports(answer),
            "version": answer.version,
            "kernel": answer.kernel,
            "page_bytes": answer.page_bytes,
            "problems": list_problems(answer),
            "reason": null,
        }),
        Err(reason) => json!({ "host": member.host.as_str(), "verdict": null, "reason": reason }),
    }
}

fn verdict_text(answer: &RemoteReport) -> &'static str {
    match answer.exit_status {
        0 => "ok",
        1 => "warn",
        _ => "fail",
    }
}

fn count_ports(answer: &RemoteReport) -> usize {
    answer.devices.iter().map(|device| device.ports.len()).sum()
}

/// Returns failures, then warnings.
fn list_problems(answer: &RemoteReport) -> Vec<&RemoteFinding> {
    let of = |severity: &'static str| {
        answer.findings.iter().filter(move |finding| finding.severity == severity)
    };
    of("fail").chain(of("warn")).collect()
}

fn problem_text(answer: &RemoteReport) -> String {
    let problems = list_problems(answer);
    match problems.as_slice() {
        [] => "none".to_owned(),
        [first, rest @ ..] => {
            let said =
                printable_text(&format!("{} {}: {}", first.check, first.subject, first.seen));
            match rest.len() {
                0 => said,
                more => format!("{said}; {more} more: verbs3 doctor there"),
            }
        }
    }
}

fn difference_text(difference: &FleetDifference) -> String {
    let named = |shared: &SharedValue| {
        let names = shared.hosts.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
        match shared.hosts.len().saturating_sub(NAMED_MAX) {
            0 => format!("{} on {names}", shared.value),
            more => format!("{} on {names} and {more} more", shared.value),
        }
    };
    let odd = difference.odd.iter().map(named).collect::<Vec<_>>().join("; ");
    let property = &difference.property;
    match &difference.usual {
        Some(usual) => {
            let count = usual.hosts.len();
            let hosts = if count == 1 { "host" } else { "hosts" };
            format!("{property}: {odd}; {count} {hosts} have {}", usual.value)
        }
        None => format!("{property}: {odd}"),
    }
}
