//! `verbs3 doctor --fleet`: asks many hosts for their diagnosis over ssh, and shows them in one
//! table. Owns the asking: so many at once, each with a deadline. `differences` finds the odd one
//! out, `report` prints.

mod differences;
mod report;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::remote_report::{RemoteReport, fetch_report};
use crate::arguments::acceptance::AcceptanceArguments;
use crate::arguments::doctor::DoctorArguments;
use crate::arguments::fleet::FleetArguments;
use crate::process::MISCONFIGURED;
use crate::ssh::{SshHost, printable_text, read_host_list};
use differences::{FleetDifference, find_differences};

/// One host, and what it said or why it said nothing.
struct FleetMember {
    host: SshHost,
    answer: Result<RemoteReport, String>,
}

/// Everything that is printed.
struct FleetReport {
    members: Vec<FleetMember>,
    differences: Vec<FleetDifference>,
}

impl FleetReport {
    /// 0: all well and alike. 1: warnings, or differences. 2: a host has a failure or can't be asked.
    fn exit_status(&self) -> u8 {
        let of_host = |member: &FleetMember| match &member.answer {
            Ok(report) => report.exit_status.min(2),
            Err(_) => 2,
        };
        let worst = self.members.iter().map(of_host).max().unwrap_or(0);
        worst.max(u8::from(!self.differences.is_empty()))
    }
}

/// Asks the hosts and prints the table. Status 2 also where the list can't be used.
pub(super) fn run_fleet(hosts: &str, arguments: &DoctorArguments) -> ExitCode {
    let hosts = match read_host_list(hosts) {
        Ok(hosts) => hosts,
        Err(error) => {
            eprintln!("--fleet: {}", super::explain_error(&error));
            return ExitCode::from(MISCONFIGURED);
        }
    };
    let members = ask_hosts(hosts, &arguments.fleet, &arguments.acceptance);
    let answered =
        members.iter().filter_map(|member| Some((&member.host, member.answer.as_ref().ok()?)));
    let differences = find_differences(&answered.collect::<Vec<_>>());
    let report = FleetReport { members, differences };
    let printed = if arguments.json {
        format!("{:#}\n", report::report_json(&report))
    } else {
        report::render_table(&report)
    };
    // Whoever closed the pipe has read enough; the status still says it.
    let _ = std::io::stdout().write_all(printed.as_bytes());
    ExitCode::from(report.exit_status())
}

fn ask_hosts(
    hosts: Vec<SshHost>,
    fleet: &FleetArguments,
    remote: &AcceptanceArguments,
) -> Vec<FleetMember> {
    let (next, answers) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let ask = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(host) = hosts.get(place) else { return };
            let answer = fetch_report(host, &remote.remote_program, fleet.host_deadline)
                .map_err(|error| printable_text(&super::explain_error(&error)));
            let member = FleetMember { host: host.clone(), answer };
            if let Ok(mut answers) = answers.lock() {
                answers.push((place, member));
            }
        }
    };
    std::thread::scope(|threads| {
        for _ in 1..usize::from(fleet.at_once).min(hosts.len()) {
            threads.spawn(ask);
        }
        ask();
    });
    let mut members = answers.into_inner().unwrap_or_default();
    // In the order of the list, whoever answered first.
    members.sort_by_key(|(place, _)| *place);
    members.into_iter().map(|(_, member)| member).collect()
}
