//! The steps of the acceptance that hands have to do: cables, resets, a day of load. Owns their list
//! (docs/hardware.md has the table). None is ever begun here.

use super::step::{AcceptanceStep, StepReason, StepTitle};

struct ManualStep {
    name: &'static str,
    command: &'static str,
    passes: &'static str,
}

const BY_HAND: [ManualStep; 6] = [
    ManualStep {
        name: "host tuning",
        command: "deploy/host/hardware.sh; deploy/host/tune.sh --check",
        passes: "no line is low, none differs",
    },
    ManualStep {
        name: "whole memory",
        command: "verbs3 worker --config worker.toml",
        passes: "it answers over tcp within seconds; verbs3_verbs_registered_bytes reaches the arena",
    },
    ManualStep {
        name: "port",
        command: "pull the cable of one rail under load (or: ip link set DEV down), and plug it in",
        passes: "no client sees an error; verbs3_verbs_rail_up falls and returns",
    },
    ManualStep {
        name: "device",
        command: "echo 1 > /sys/class/net/DEV/device/reset, under load",
        passes: "no client sees an error; verbs3_verbs_rail_up falls and returns",
    },
    ManualStep {
        name: "peer",
        command: "kill -STOP a worker under load, kill -CONT it after a minute",
        passes: "no client sees an error or a wrong byte",
    },
    ManualStep {
        name: "long run",
        command: "a day of `verbs3 bench s3` with checks, both sides restarted in turn",
        passes: "verbs3_verbs_shared_receives{state=\"lost\"} stays 0",
    },
];

/// Returns the steps that are not done here, each with how to do it.
pub fn list_manual_steps() -> Vec<AcceptanceStep> {
    let steps = BY_HAND.iter().map(|step| {
        let remedy = format!("by hand: {}; passes if: {}", step.command, step.passes);
        let because = StepReason::new("not done here: it needs hands, a load, or a day", remedy);
        StepTitle::new(step.name, "host", step.command).not_run(because)
    });
    steps.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_by_hand_is_one_of_the_documents_table() {
        let document = include_str!("../../../../../docs/hardware.md");
        for step in BY_HAND {
            let title = format!(". {} |", step.name);
            let row = document.lines().find(|line| line.contains(&title)).unwrap_or("");
            let row = row.replace('`', "");
            // "as 6" stands for what the row of that number says.
            assert!(row.contains(step.passes) || row.contains("| as 6 |"), "{}: {row}", step.name);
        }
        assert_eq!(list_manual_steps().len(), BY_HAND.len());
    }
}
