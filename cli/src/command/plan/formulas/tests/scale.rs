//! The tables of docs/hardware.md, "Scale", against the formulas of a plan, the default settings and
//! the caps of the code. A setting that changes fails here until the tables are written anew.

use super::*;

/// Rails of a node in the tables.
const RAILS: u64 = 8;
/// Bytes of a work request in a send queue, at most, and of a completion
/// (docs/fabric/queue-pairs.md; mlx5's completion queue entry).
const REQUEST_BYTES: u64 = 128;
const COMPLETION_BYTES: u64 = 64;
/// Shared buffers for each connection that has none of its own.
const SHARED_BUFFERS_EACH: u64 = 8;
/// What others found: 375 bytes of a NIC's cache for a connection, and some 2 MB of it
/// (eRPC, NSDI 2019).
const CACHE_BYTES_EACH: u64 = 375;
const CACHE_BYTES: u64 = 2 << 20;

/// What `nodes` nodes need.
struct ScaleRow {
    pairs_of_process: u64,
    pairs_of_nic: u64,
    buffer_bytes: u64,
    queue_bytes: u64,
    cache_bytes: u64,
}

fn scale(nodes: u32) -> ScaleRow {
    let settings = RootSettings::default();
    let plan = compute_plan(&CapacityInput { nodes, nics: RAILS as u32, ..input() }, &settings);
    let verbs = &settings.verbs;
    let (send, all) = (u64::from(verbs.send_queue), u64::from(verbs.shared_receives));
    let queue = |receives| send * REQUEST_BYTES + (send + receives + 1) * COMPLETION_BYTES;
    // Whoever shares buffers may take all of them before its completions are read.
    let peers = u64::from(nodes) - 1;
    let shared = peers.min(all / SHARED_BUFFERS_EACH);
    let own = u64::from(verbs.receive_count) + SPARE_RECEIVES;
    let queues_of_rail = shared * queue(all) + (peers - shared) * queue(own);
    let pairs_of_process = plan.nic.process_queue_pairs_max;
    ScaleRow {
        pairs_of_process,
        pairs_of_nic: plan.nic.queue_pairs_max,
        buffer_bytes: plan.node_memory.verbs_buffers,
        queue_bytes: 2 * RAILS * queues_of_rail,
        cache_bytes: plan.nic.queue_pairs_max * CACHE_BYTES_EACH,
    }
}

fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let head = digits.len() % 3;
    let mut groups: Vec<&str> = vec![&digits[..head]];
    groups.extend((head..digits.len()).step_by(3).map(|at| &digits[at..at + 3]));
    groups.retain(|group| !group.is_empty());
    groups.join(",")
}

fn show_memory(bytes: u64) -> String {
    let (unit, of) = match bytes {
        0..0x10_0000 => ("KiB", 1024.0),
        0x10_0000..0x4000_0000 => ("MiB", 1024.0 * 1024.0),
        _ => ("GiB", 1024.0 * 1024.0 * 1024.0),
    };
    let value = bytes as f64 / of;
    if value < 9.95 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

fn assert_in_document(row: &str) {
    let document = include_str!("../../../../../../docs/hardware.md");
    assert!(document.contains(row), "docs/hardware.md, \"Scale\", should have: {row}");
}

#[test]
fn the_table_of_scale_is_what_the_formulas_give() {
    for nodes in [64, 1000, 10_000] {
        let row = scale(nodes);
        assert_in_document(&format!(
            "| {} | {} | {} | {} | {} | {} |",
            show_count(u64::from(nodes)),
            show_count(row.pairs_of_process),
            show_count(row.pairs_of_nic),
            show_memory(row.buffer_bytes),
            show_memory(row.queue_bytes),
            show_memory(row.cache_bytes),
        ));
    }
}

#[test]
fn caps_follow_from_the_nics_cache_and_the_settings() {
    let default = u64::from(RootSettings::default().verbs.connections_max);
    assert_in_document(&format!(
        "{} queue pairs of a process, the default, are {} peers over verbs",
        show_count(default),
        default / RAILS
    ));
    // Two processes share a NIC; each has its connections spread over all of them.
    let pairs_of_nic = CACHE_BYTES / CACHE_BYTES_EACH;
    let most = pairs_of_nic / 2 * RAILS;
    assert_in_document(&format!("{} queue pairs a NIC", show_count(pairs_of_nic)));
    assert_in_document(&format!("{} of a process", show_count(most)));
    for nodes in [64, 1000, 10_000] {
        let needed = scale(nodes).pairs_of_process;
        let cap = match needed {
            fits if fits <= default => default,
            fits if fits <= most => fits,
            _ => most / 1024 * 1024,
        };
        let peers = (cap / RAILS).min(u64::from(nodes) - 1);
        assert_in_document(&format!(
            "| {} | {} | {} of {} |",
            show_count(u64::from(nodes)),
            show_count(cap),
            show_count(peers),
            show_count(u64::from(nodes) - 1)
        ));
    }
}

#[test]
fn figures_are_shown_as_people_read_them() {
    assert_eq!(
        (show_count(63), show_count(7992), show_count(1_234_567)),
        ("63".into(), "7,992".into(), "1,234,567".into())
    );
    assert_eq!((show_memory(3 << 20), show_memory(40 << 30)), ("3.0 MiB".into(), "40 GiB".into()));
}
