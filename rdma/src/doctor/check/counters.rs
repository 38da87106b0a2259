//! The kernel's port counters: signs of trouble since the driver was loaded.

use crate::doctor::finding::{Check, Finding};
use crate::doctor::host::Rail;

/// What a counter that is not 0 means. From the IBTA's PortCounters, mlx5's and rxe's
/// `hw_counters`.
enum Trouble {
    /// Bits are damaged between two ends.
    Cable,
    /// The link went away.
    Link,
    /// Packets were lost, so the fabric drops.
    Loss,
    /// The other side had no receive posted.
    Receiver,
    /// The switch or the host could not take packets in time.
    Congestion,
}

const COUNTERS: [(&str, Trouble); 28] = [
    ("symbol_error", Trouble::Cable),
    ("link_error_recovery", Trouble::Cable),
    ("local_link_integrity_errors", Trouble::Cable),
    ("port_rcv_errors", Trouble::Cable),
    ("port_rcv_remote_physical_errors", Trouble::Cable),
    ("rx_icrc_encapsulated", Trouble::Cable),
    ("link_downed", Trouble::Link),
    ("out_of_sequence", Trouble::Loss),
    ("out_of_seq_request", Trouble::Loss),
    ("packet_seq_err", Trouble::Loss),
    ("rcvd_seq_err", Trouble::Loss),
    ("implied_nak_seq_err", Trouble::Loss),
    ("local_ack_timeout_err", Trouble::Loss),
    ("req_transport_retries_exceeded", Trouble::Loss),
    ("retry_exceeded_err", Trouble::Loss),
    ("completer_retry_err", Trouble::Loss),
    ("roce_slow_restart", Trouble::Loss),
    ("send_err", Trouble::Loss),
    ("rnr_nak_retry_err", Trouble::Receiver),
    ("req_rnr_retries_exceeded", Trouble::Receiver),
    ("retry_rnr_exceeded_err", Trouble::Receiver),
    ("rcvd_rnr_err", Trouble::Receiver),
    ("send_rnr_err", Trouble::Receiver),
    ("out_of_buffer", Trouble::Receiver),
    ("port_xmit_discards", Trouble::Congestion),
    ("excessive_buffer_overrun_errors", Trouble::Congestion),
    ("port_xmit_constraint_errors", Trouble::Congestion),
    ("port_rcv_constraint_errors", Trouble::Congestion),
];

impl Trouble {
    fn why(&self) -> &'static str {
        match self {
            Self::Cable => "packets arrive damaged: each is sent again",
            Self::Link => "the link went down: everything on it failed over",
            Self::Loss => {
                "packets were lost or came out of order: RDMA sends all that followed again"
            }
            Self::Receiver => "a SEND found no receive posted: the sender waits and tries again",
            Self::Congestion => "a port could not pass packets on in time and dropped them",
        }
    }

    fn remedy(&self) -> &'static str {
        match self {
            Self::Cable | Self::Link => {
                "reseat or replace cable and transceiver (ethtool -m DEVICE, ibqueryerrors)"
            }
            Self::Loss => {
                "RoCE: priority flow control and ECN on NIC and switches (mlnx_qos, ethtool -S); \
                InfiniBand: ibqueryerrors"
            }
            Self::Receiver => {
                "raise the receive ring, or look for a starved peer (its CPU, its process stopped)"
            }
            Self::Congestion => {
                "look at the switch port's counters; ECN, more rails, or fewer senders at once"
            }
        }
    }
}

pub(super) fn check(rail: Rail<'_>) -> Vec<Finding> {
    let counters = &rail.port.counters;
    let known: Vec<_> = COUNTERS.iter().filter(|(name, _)| counters.contains_key(*name)).collect();
    if known.is_empty() {
        return Vec::new();
    }
    let high: Vec<_> = known.iter().filter(|(name, _)| counters[*name] > 0).collect();
    if high.is_empty() {
        return vec![Finding::ok(
            Check::Counters,
            rail.name(),
            format!("{} error counters, all 0", known.len()),
        )];
    }
    let seen: Vec<_> = high.iter().map(|(name, _)| format!("{name} {}", counters[*name])).collect();
    let mut whys: Vec<&str> = Vec::new();
    let mut remedies = vec![
        "they count since the driver was loaded: run this again under load, and act if they grow",
    ];
    for (_, trouble) in high {
        if !whys.contains(&trouble.why()) {
            whys.push(trouble.why());
        }
        if !remedies.contains(&trouble.remedy()) {
            remedies.push(trouble.remedy());
        }
    }
    vec![
        Finding::warn(Check::Counters, rail.name(), seen.join(", "))
            .remedy(whys.join("; "), remedies.join("; ")),
    ]
}
