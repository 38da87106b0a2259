//! Merges what agents found into one record: rates are summed, histograms added.

use std::time::Duration;

use super::conductor::AgentRounds;
use crate::bench_limits::find_limits;
use crate::bench_record::{BenchAgentRecord, BenchFigures, BenchRecord, BenchSideRecord};
use crate::scenario::BenchScenario;

/// Makes the record of a run. `names` are those of the agents, in their order.
pub fn merge_rounds(scenario: BenchScenario, names: &[String], rounds: AgentRounds) -> BenchRecord {
    let AgentRounds { hosts, figures, by_agent, start_skew_max } = rounds;
    let side = BenchSideRecord::from_agents(&hosts, figures, &by_agent);
    let agents = names.iter().zip(&hosts).zip(&by_agent).map(|((name, host), outcome)| {
        let all = BenchFigures::from_agents(std::slice::from_ref(outcome));
        BenchAgentRecord {
            host: name.clone(),
            kernel: host.kernel.clone(),
            cpus: host.cpus,
            address: host.address.clone(),
            limits: find_limits(&all.effort),
            all,
        }
    });
    let agents: Vec<BenchAgentRecord> = agents.collect();
    let mut record = BenchRecord::new(scenario, vec![side]);
    record.limits = agents
        .iter()
        .flat_map(|agent| agent.limits.iter().map(move |limit| format!("{}: {limit}", agent.host)))
        .collect();
    record.agents = agents;
    record.start_skew_us_max = Some(whole_micros(start_skew_max));
    record
}

fn whole_micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
