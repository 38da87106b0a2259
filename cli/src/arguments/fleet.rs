//! The flags of `verbs3 doctor --fleet`.

use std::time::Duration;

use clap::Args;
use verbs3_loadtest::units;

/// Arguments of a look at many hosts.
#[derive(Debug, Args)]
pub struct FleetArguments {
    /// Look at many hosts over ssh, and name those that differ: gpu-01,gpu-02, or a file with a name on
    /// each line
    #[arg(long, value_name = "HOSTS", conflicts_with_all = ["acceptance", "peer", "config"])]
    pub fleet: Option<String>,
    /// Hosts that are asked at the same time
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256), requires = "fleet")]
    pub at_once: u16,
    /// How long one host may take: 30s
    #[arg(long, value_name = "TIME", value_parser = units::parse_time, default_value = "30s", requires = "fleet")]
    pub host_deadline: Duration,
}
