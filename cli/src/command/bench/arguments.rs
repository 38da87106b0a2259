//! The command line of `verbs3 bench fabric`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};
use verbs3_fabric_bench::TransferDirection;
use verbs3_rdma::settings::FeatureSwitch;
use verbs3_rdma::transport::TransportKind;

use verbs3_loadtest::units;

/// From a word to a block of the default configuration.
const SIZES: &str = "64B,256B,1KiB,4KiB,16KiB,64KiB,256KiB,1MiB,4MiB";

/// Arguments of `verbs3 bench fabric`, for the serving and the measuring side.
#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("side").required(true).args(["host", "serve", "loopback"]), after_help = "\
Examples:
  gpu-01$ verbs3 bench fabric --serve --rail 10.1.0.1 --rail 10.2.0.1
  gpu-02$ verbs3 bench fabric gpu-01:9410                         all ways, all sizes, about two minutes
  gpu-02$ verbs3 bench fabric gpu-01:9410 --sizes 256KiB,1MiB --depth 64 --ways verbs
  gpu-02$ verbs3 bench fabric gpu-01:9410 --json --plot fabric.svg > fabric.json
  verbs3 bench fabric --loopback                                  this host with itself, for a quick look

The serving side tells its ways over tcp; each that works is measured, and for each that does not the reason is given.
A rail is an address of a port of an RDMA NIC (`rdma link`, `ip address`, `verbs3 doctor`). Without --rail, the serving
side offers the address that it listens on, or, listening on all, those that verbs.rails of --config means (without it:
all), and the measuring side uses the one from which the route to it leads.
Where several rails work, all of them at once are one more way; each has --depth calls in flight.
What is read is checked. Figures of a busy host are figures of a busy host: compare within a run, and use --rounds.
Compare `in` with ib_write_bw, and half of `echo` with ib_send_lat (loadtest/fabric.sh does both).
Status: 0 all figures, 1 some way failed under way, one that --ways names was not measured, or the host can't be reached,
2 the command line is wrong.")]
pub struct FabricArguments {
    /// The host that serves; without a port, 9410
    #[arg(value_name = "HOST[:PORT]")]
    pub host: Option<String>,
    /// Serve, until Ctrl-C
    #[arg(long)]
    pub serve: bool,
    /// Serve and measure in one process, over loopback and the given rails
    #[arg(long)]
    pub loopback: bool,
    /// Where to serve
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:9410")]
    pub listen: SocketAddr,
    /// Address of one of this side's rails. Can be repeated; the first is used with the other
    /// side's first
    #[arg(long = "rail", value_name = "IP")]
    pub rails: Vec<IpAddr>,
    /// Device for tcp, e.g. ib0 for IPoIB
    #[arg(long, value_name = "DEVICE")]
    pub bind_device: Option<String>,
    /// What to measure, and must be; without it, what works of all
    #[arg(long, value_delimiter = ',', value_enum)]
    pub ways: Vec<WayArgument>,
    /// Lengths, smallest first
    #[arg(long, value_delimiter = ',', value_parser = units::parse_bytes, default_value = SIZES)]
    pub sizes: Vec<u64>,
    /// Which way bytes go: read from the host, write to it, both at once
    #[arg(long, value_delimiter = ',', value_enum, default_value = "read,write,both")]
    pub directions: Vec<DirectionArgument>,
    /// Time for each figure
    #[arg(long, default_value_t = 1.0, value_parser = parse_seconds)]
    pub seconds: f64,
    /// Measure everything several times, taking turns; the table shows medians
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Calls in flight
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub depth: u32,
    /// Connections over each way, and plain streams
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub connections: u32,
    /// Unit of what is pushed; the same on both sides
    #[arg(long, value_name = "BYTES", value_parser = parse_page_bytes, default_value = "256KiB")]
    pub page: u64,
    /// Memory of the serving side, for each of its rails; of writes all that is in flight lies there
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes, default_value = "256MiB")]
    pub memory: u64,
    /// How long verbs poll before they wait for an event, in µs: latency for CPU time
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0)]
    pub busy_poll: u64,
    /// Whether this side opens its memory through memory windows, as `verbs.windows`
    #[arg(long, value_enum, default_value = "off")]
    pub windows: SwitchArgument,
    /// Whether transfers of this side's NICs may pass each other, as `verbs.relaxed_ordering`
    #[arg(long, value_enum, default_value = "auto")]
    pub relaxed_ordering: SwitchArgument,
    /// Leave out the plain TCP streams that tcp is held against
    #[arg(long)]
    pub no_plain: bool,
    /// Compare every byte instead of the ends of every page; the time that takes is in the figures
    #[arg(long)]
    pub verify: bool,
    /// Figures as JSON on standard output
    #[arg(long)]
    pub json: bool,
    /// Also draw the figures, as an SVG file
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// File with the secret that both sides know
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// Configuration file whose cluster.secret is used, and whose verbs.rails are served
    #[arg(long, value_name = "FILE", conflicts_with = "secret_file")]
    pub config: Option<PathBuf>,
}

impl FabricArguments {
    /// Returns the ways that are tried.
    pub fn tried_ways(&self) -> &[WayArgument] {
        const ALL: [WayArgument; 3] = [WayArgument::Shm, WayArgument::Verbs, WayArgument::Tcp];
        if self.ways.is_empty() { &ALL } else { &self.ways }
    }
}

/// A feature that some devices lack, as settings name its states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SwitchArgument {
    Auto,
    Off,
}

/// A transport as it is named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WayArgument {
    Shm,
    Verbs,
    Tcp,
}

/// The direction of a bandwidth measurement, as it is named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DirectionArgument {
    Read,
    Write,
    Both,
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|time| (0.001..=3600.0).contains(time))
        .ok_or_else(|| "0.001 to 3600".to_owned())
}

fn parse_page_bytes(text: &str) -> Result<u64, String> {
    units::parse_bytes(text).and_then(|bytes| {
        let fits = bytes.is_power_of_two() && ((4 << 10)..=(4 << 20)).contains(&bytes);
        if fits { Ok(bytes) } else { Err("a power of two from 4KiB to 4MiB".to_owned()) }
    })
}

impl From<SwitchArgument> for FeatureSwitch {
    fn from(switch: SwitchArgument) -> Self {
        match switch {
            SwitchArgument::Auto => Self::Auto,
            SwitchArgument::Off => Self::Off,
        }
    }
}

impl From<WayArgument> for TransportKind {
    fn from(way: WayArgument) -> Self {
        match way {
            WayArgument::Shm => Self::Shm,
            WayArgument::Verbs => Self::Verbs,
            WayArgument::Tcp => Self::Tcp,
        }
    }
}

impl From<DirectionArgument> for TransferDirection {
    fn from(direction: DirectionArgument) -> Self {
        match direction {
            DirectionArgument::Read => Self::Read,
            DirectionArgument::Write => Self::Write,
            DirectionArgument::Both => Self::Both,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        fabric: FabricArguments,
    }

    fn parsed(words: &[&str]) -> Option<FabricArguments> {
        Line::try_parse_from(["fabric"].iter().chain(words)).ok().map(|line| line.fabric)
    }

    #[test]
    fn exactly_one_side_is_chosen() {
        for good in [&["--serve"][..], &["--loopback"], &["gpu-01:9410"]] {
            assert!(parsed(good).is_some(), "{good:?}");
        }
        for wrong in
            [&[][..], &["--serve", "--loopback"], &["gpu-01:9410", "--serve"], &["--rounds", "2"]]
        {
            assert!(parsed(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn sizes_and_bounds_are_what_the_help_says() {
        let default = parsed(&["--loopback"]).unwrap();
        assert_eq!(default.sizes.first().zip(default.sizes.last()), Some((&64, &(4 << 20))));
        assert_eq!((default.depth, default.connections, default.page), (16, 2, 256 << 10));
        assert_eq!(parsed(&["--loopback", "--sizes", "64B,1MiB"]).unwrap().sizes, [64, 1 << 20]);
        for wrong in [
            ["--depth", "0"],
            ["--seconds", "0"],
            ["--page", "3KiB"],
            ["--sizes", "0"],
            ["--ways", "udp"],
        ] {
            assert!(parsed(&[&["--loopback"], &wrong[..]].concat()).is_none(), "{wrong:?}");
        }
    }
}
