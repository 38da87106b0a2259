//! Owns the check of the kernel's port counters: signs of trouble since the driver was loaded.

use crate::finding::{HostCheckKind, HostFinding};
use crate::host::HostRailView;

/// The meaning of a counter that is not 0. From the IBTA's PortCounters, mlx5's and rxe's
/// `hw_counters`.
enum CounterMeaning {
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

const COUNTERS: [(&str, CounterMeaning); 28] = [
    ("symbol_error", CounterMeaning::Cable),
    ("link_error_recovery", CounterMeaning::Cable),
    ("local_link_integrity_errors", CounterMeaning::Cable),
    ("port_rcv_errors", CounterMeaning::Cable),
    ("port_rcv_remote_physical_errors", CounterMeaning::Cable),
    ("rx_icrc_encapsulated", CounterMeaning::Cable),
    ("link_downed", CounterMeaning::Link),
    ("out_of_sequence", CounterMeaning::Loss),
    ("out_of_seq_request", CounterMeaning::Loss),
    ("packet_seq_err", CounterMeaning::Loss),
    ("rcvd_seq_err", CounterMeaning::Loss),
    ("implied_nak_seq_err", CounterMeaning::Loss),
    ("local_ack_timeout_err", CounterMeaning::Loss),
    ("req_transport_retries_exceeded", CounterMeaning::Loss),
    ("retry_exceeded_err", CounterMeaning::Loss),
    ("completer_retry_err", CounterMeaning::Loss),
    ("roce_slow_restart", CounterMeaning::Loss),
    ("send_err", CounterMeaning::Loss),
    ("rnr_nak_retry_err", CounterMeaning::Receiver),
    ("req_rnr_retries_exceeded", CounterMeaning::Receiver),
    ("retry_rnr_exceeded_err", CounterMeaning::Receiver),
    ("rcvd_rnr_err", CounterMeaning::Receiver),
    ("send_rnr_err", CounterMeaning::Receiver),
    ("out_of_buffer", CounterMeaning::Receiver),
    ("port_xmit_discards", CounterMeaning::Congestion),
    ("excessive_buffer_overrun_errors", CounterMeaning::Congestion),
    ("port_xmit_constraint_errors", CounterMeaning::Congestion),
    ("port_rcv_constraint_errors", CounterMeaning::Congestion),
];

impl CounterMeaning {
    fn explain_cause(&self) -> &'static str {
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

    fn suggest_remedy(&self) -> &'static str {
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

pub(super) fn check_counters(rail: HostRailView<'_>) -> Vec<HostFinding> {
    let counters = &rail.port.counters;
    let known: Vec<_> = COUNTERS.iter().filter(|(name, _)| counters.contains_key(*name)).collect();
    if known.is_empty() {
        return Vec::new();
    }
    let high: Vec<_> = known.iter().filter(|(name, _)| counters[*name] > 0).collect();
    if high.is_empty() {
        return vec![HostFinding::new_ok(
            HostCheckKind::Counters,
            rail.rail_name(),
            format!("{} error counters, all 0", known.len()),
        )];
    }
    let seen: Vec<_> = high.iter().map(|(name, _)| format!("{name} {}", counters[*name])).collect();
    let mut whys: Vec<&str> = Vec::new();
    let mut remedies = vec![
        "they count since the driver was loaded: run this again under load, and act if they grow",
    ];
    for (_, trouble) in high {
        if !whys.contains(&trouble.explain_cause()) {
            whys.push(trouble.explain_cause());
        }
        if !remedies.contains(&trouble.suggest_remedy()) {
            remedies.push(trouble.suggest_remedy());
        }
    }
    vec![
        HostFinding::new_warning(HostCheckKind::Counters, rail.rail_name(), seen.join(", "))
            .with_explanation(whys.join("; "), remedies.join("; ")),
    ]
}
