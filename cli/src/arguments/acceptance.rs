//! The flags of `verbs3 doctor --acceptance`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use verbs3_loadtest::units;

/// Arguments of an acceptance run.
#[derive(Debug, Args)]
pub struct AcceptanceArguments {
    /// Measure what docs/hardware.md asks of real NICs, into one file: alone, or with a host where
    /// `verbs3 bench fabric --serve` runs (port 9410)
    #[arg(long, value_name = "HOST[:PORT]", num_args = 0..=1, conflicts_with_all = ["peer", "json"])]
    pub acceptance: Option<Option<String>>,
    /// The file of an acceptance run; default: verbs3-acceptance-HOST-TIME.json, here
    #[arg(long, value_name = "FILE", requires = "acceptance")]
    pub out: Option<PathBuf>,
    /// Address of a rail to measure. Can be repeated; default: every rail that can be used
    #[arg(long = "rail", value_name = "IP", requires = "acceptance")]
    pub rails: Vec<IpAddr>,
    /// Memory that is touched and registered; best as much as worker.memory.capacity
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes, default_value = "1GiB", requires = "acceptance")]
    pub memory: u64,
    /// Time for each figure
    #[arg(long, default_value_t = 1.0, value_parser = parse_seconds, requires = "acceptance")]
    pub seconds: f64,
    /// Rounds of each figure; medians are judged
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000), requires = "acceptance")]
    pub rounds: u32,
    /// File with the secret of `verbs3 bench fabric --serve` there
    #[arg(long, value_name = "FILE", requires = "acceptance")]
    pub secret_file: Option<PathBuf>,
    /// verbs3 on other hosts, where ssh does not find it by its name
    #[arg(long, value_name = "PROGRAM", default_value = "verbs3")]
    pub remote_program: String,
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|time| (0.001..=3600.0).contains(time))
        .ok_or_else(|| "0.001 to 3600".to_owned())
}
