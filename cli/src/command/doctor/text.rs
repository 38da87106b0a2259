//! The report as lines: one for each finding, and what to do below those that need it.

use std::fmt::Write;

use verbs3_doctor::{FindingSeverity, worst_severity};

use super::DoctorReport;

/// Column of the text, after severity and check.
const INDENT: &str = "                    ";

pub(super) fn render_text(report: &DoctorReport) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        let (severity, check) = (finding.severity, finding.check);
        // Writing to a string can't fail.
        let _ = writeln!(text, "{severity:<5} {check:<13} {}: {}", finding.subject, finding.seen);
        let (why, remedy) =
            if severity == FindingSeverity::Ok { ("note", "option") } else { ("why", "remedy") };
        if !finding.why.is_empty() {
            let _ = writeln!(text, "{INDENT}{why}: {}", finding.why);
        }
        if let Some(what) = &finding.remedy {
            let _ = writeln!(text, "{INDENT}{remedy}: {what}");
        }
    }
    let count =
        |severity| report.findings.iter().filter(|finding| finding.severity == severity).count();
    let counted = |severity, noun: &str| match count(severity) {
        1 => format!("1 {noun}"),
        number => format!("{number} {noun}s"),
    };
    let (fails, warns, fine) = (
        counted(FindingSeverity::Fail, "failure"),
        counted(FindingSeverity::Warn, "warning"),
        count(FindingSeverity::Ok),
    );
    let meaning = match worst_severity(&report.findings) {
        FindingSeverity::Ok => "all well",
        FindingSeverity::Warn => "it works, and could work better",
        FindingSeverity::Fail => "something does not work",
    };
    let _ = writeln!(text, "\n{fails}, {warns}, {fine} fine: {meaning}");
    text
}
