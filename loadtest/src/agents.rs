//! One scenario from several hosts at once: agents run the rounds, a conductor starts them at the same
//! moment and merges what they found. They speak JSON, a message on each line.
//!
//! Rates are summed. Latencies are merged as histograms, so that a percentile is one of all requests.
//! Does not start agents: the caller has their pipes.

mod agent;
mod conductor;
mod link;
mod merged_record;
mod protocol;
#[cfg(test)]
mod tests;

pub use agent::run_agent;
pub use conductor::{AgentConductor, AgentError, AgentPatience, AgentRounds};
pub use link::AgentLink;
pub use merged_record::merge_rounds;
pub use protocol::{AGENT_PROTOCOL, AgentPlan};
