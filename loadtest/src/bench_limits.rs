//! Decides whether the server was the bottleneck. Pure: judges a round's figures of this tool, the
//! host and the schedule.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Part of the time on a CPU from which a thread was too busy to send more requests.
const BUSY: f64 = 0.9;
/// Part of the time ready to run but without a CPU that counts as a limit.
const WAITING: f64 = 0.1;
/// Idle part of the host's time below which the host is full.
const IDLE: f64 = 0.05;
/// Part of the CPUs from which the tool affects the server.
const NOTICEABLE: f64 = 0.1;
/// Part of an open loop's operations that counts as a limit if missed.
const MISSED: f64 = 0.01;
/// Lateness from which a wake-up missed the schedule. The kernel's timers alone are 50 to 100 µs
/// late.
pub const LATE: Duration = Duration::from_millis(1);

/// What the tool and the host used in a round.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct BenchEffort {
    /// CPUs that all connections together used, and the number that this process has.
    pub cpus_used: f64,
    pub cpus: f64,
    /// Largest part of the time that one connection was on a CPU.
    pub busiest: f64,
    /// Part of the time that connections were ready to run without a CPU.
    pub waiting: f64,
    /// Idle part of the host's time.
    pub host_idle: f64,
    /// Parts of an open loop's operations: started late by a late wake-up; found no free
    /// connection; never sent.
    pub woken_late: f64,
    pub queued: f64,
    pub not_sent: f64,
}

/// Returns everything that was a limit besides the server, in words. If empty, the server was
/// measured.
pub fn find_limits(effort: &BenchEffort) -> Vec<String> {
    let percent = |part: f64| format!("{:.0} %", 100.0 * part);
    let mut all = Vec::new();
    if effort.not_sent > 0.0 {
        all.push(format!(
            "{} of the requests were due and never sent: lower the rate",
            percent(effort.not_sent)
        ));
    }
    if effort.queued > MISSED {
        let part = percent(effort.queued);
        all.push(format!(
            "{part} of the requests found every connection busy: latency has that \
            wait in it; raise load.connections if the server is not slow"
        ));
    }
    if effort.woken_late > MISSED {
        let part = percent(effort.woken_late);
        all.push(format!(
            "this tool was late for {part} of the requests: the host is too busy for this rate"
        ));
    }
    if effort.cpus_used > BUSY * effort.cpus {
        all.push(format!(
            "this tool used {:.2} of {} CPUs: it was the limit",
            effort.cpus_used, effort.cpus
        ));
    } else if effort.busiest > BUSY {
        let part = percent(effort.busiest);
        all.push(format!(
            "a connection of this tool was busy for {part} of the time: raise load.connections"
        ));
    }
    if effort.host_idle < IDLE && effort.cpus_used > NOTICEABLE * effort.cpus {
        let (used, waiting) = (effort.cpus_used, percent(effort.waiting));
        all.push(format!(
            "the host had no idle CPU; this tool used {used:.2} and waited for one \
            for {waiting} of the time: rates and latencies are the host's, CPU per request is the \
            server's"
        ));
    } else if effort.waiting > WAITING {
        all.push(format!("this tool waited for a CPU for {} of the time", percent(effort.waiting)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: BenchEffort = BenchEffort {
        cpus_used: 0.5,
        cpus: 8.0,
        busiest: 0.2,
        waiting: 0.01,
        host_idle: 0.6,
        woken_late: 0.0,
        queued: 0.0,
        not_sent: 0.0,
    };

    #[test]
    fn a_tool_at_ease_says_nothing() {
        assert_eq!(find_limits(&FREE), Vec::<String>::new());
        assert!(
            find_limits(&BenchEffort { woken_late: 0.005, queued: 0.005, busiest: 0.85, ..FREE })
                .is_empty()
        );
        // A full host is not the tool's doing where it hardly runs.
        assert!(find_limits(&BenchEffort { host_idle: 0.0, cpus_used: 0.1, ..FREE }).is_empty());
    }

    #[test]
    fn every_limit_is_told_by_its_own_words() {
        for (effort, words) in [
            (BenchEffort { cpus_used: 7.5, ..FREE }, "it was the limit"),
            (BenchEffort { busiest: 0.95, ..FREE }, "raise load.connections"),
            (BenchEffort { waiting: 0.3, ..FREE }, "waited for a CPU"),
            (BenchEffort { host_idle: 0.01, cpus_used: 1.0, ..FREE }, "no idle CPU"),
            (BenchEffort { woken_late: 0.02, ..FREE }, "late for 2 %"),
            (
                BenchEffort { queued: 0.5, ..FREE },
                "50 % of the requests found every connection busy",
            ),
            (BenchEffort { not_sent: 0.2, ..FREE }, "never sent"),
        ] {
            let found = find_limits(&effort);
            assert!(found.len() == 1 && found[0].contains(words), "{words}: {found:?}");
        }
    }
}
