//! The plan as people read it.

use std::fmt::Write as _;

use super::capacity_input::CapacityInput;
use super::capacity_plan::{CapacityPlan, TierFill, WarmUpLimit};
use super::findings::PlanFinding;
use super::formulas::plan_duration;
use super::shown_figures::{show_percent, show_size};

/// Column of the figures.
const NAME_WIDTH: usize = 26;

/// `2 h 5 min`
fn show_seconds(seconds: f64) -> String {
    let whole = plan_duration(seconds.ceil()).as_secs();
    let (hours, minutes, rest) = (whole / 3600, whole / 60 % 60, whole % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest} s"),
        (0, _) => format!("{minutes} min {rest} s"),
        _ => format!("{hours} h {minutes} min"),
    }
}

/// A line for each figure, then one for each finding.
pub fn render_plan(input: &CapacityInput, plan: &CapacityPlan, findings: &[PlanFinding]) -> String {
    let mut text = String::new();
    write_data(&mut text, plan);
    write_node(&mut text, input, plan);
    write_cluster(&mut text, plan);
    write_epochs(&mut text, plan);
    text.push('\n');
    for finding in findings {
        let PlanFinding { severity, subject, seen, remedy } = finding;
        // Writing to a string can't fail.
        let _ = writeln!(text, "{severity:<6}{subject}: {seen}");
        if let Some(remedy) = remedy {
            let _ = writeln!(text, "      do: {remedy}");
        }
    }
    text
}

fn write_figure(text: &mut String, name: &str, figure: &str) {
    let _ = writeln!(text, "  {name:NAME_WIDTH$}{figure}");
}

fn write_data(text: &mut String, plan: &CapacityPlan) {
    let data = &plan.data;
    text.push_str("data\n");
    write_figure(text, "objects", &format!("{}, {}", data.objects, show_size(data.bytes)));
    write_figure(text, "blocks, pages", &format!("{}, {}", data.blocks, data.pages));
    let copies = format!("{}, and {} of hot blocks", data.copies, show_size(data.hot_bytes));
    write_figure(text, "copies", &copies);
}

fn write_node(text: &mut String, input: &CapacityInput, plan: &CapacityPlan) {
    let memory = &plan.node_memory;
    let _ = writeln!(text, "\neach of {} nodes", input.nodes);
    let gateway = memory.landing + memory.gateway_bodies;
    for (name, bytes) in [
        ("worker's arena", memory.worker_arena),
        ("index of memory", memory.memory_index),
        ("index of drives", memory.disk_index),
        ("attributes, generations", memory.object_index),
        ("neighbours", memory.neighbours),
        ("gateway's landings", memory.landing),
        ("gateway in all", gateway),
        ("buffers of verbs", memory.verbs_buffers),
        ("memory in all", memory.sum_bytes()),
    ] {
        write_figure(text, name, &show_size(bytes));
    }
    if input.drives > 0 {
        let drives = format!("{} of {}", input.drives, show_size(plan.folder_bytes));
        write_figure(text, "drives", &drives);
    }
    let nic = &plan.nic;
    if nic.nics > 0 {
        let pairs = format!("{}, up to {}", nic.queue_pairs, nic.queue_pairs_max);
        write_figure(text, "queue pairs a NIC", &pairs);
        write_figure(text, "registered with each NIC", &show_size(nic.registered_bytes));
        write_figure(text, "locked, of all NICs", &show_size(nic.locked_bytes));
    }
}

fn write_cluster(text: &mut String, plan: &CapacityPlan) {
    text.push_str("\nthe cluster\n");
    for (name, tier) in [("memory tier", &plan.memory_tier), ("disk tier", &plan.disk_tier)] {
        write_figure(text, name, &show_tier(tier));
    }
    let nodes = plan.nodes_needed.map_or("no number".to_owned(), |nodes| nodes.to_string());
    write_figure(text, "nodes with headroom", &nodes);
    write_figure(text, "etcd", &show_size(plan.store.etcd_bytes));
    let limit = match plan.warm_up.limit {
        WarmUpLimit::StoreBandwidth => "the store's bandwidth",
        WarmUpLimit::StoreRequests => "the store's first byte",
        WarmUpLimit::Network => "the nodes' network",
    };
    let warm_up = format!("{}, bound by {limit}", show_seconds(plan.warm_up.seconds));
    write_figure(text, "warm-up", &warm_up);
}

fn show_tier(tier: &TierFill) -> String {
    match tier.part {
        None => "none".to_owned(),
        Some(part) => format!(
            "{}, needed {} ({})",
            show_size(tier.capacity_bytes),
            show_size(tier.needed_bytes),
            show_percent(part)
        ),
    }
}

fn write_epochs(text: &mut String, plan: &CapacityPlan) {
    text.push_str("\nepoch   hits, of bytes   from memory   from the store\n");
    for one in &plan.epochs {
        let [least, most] = [one.hit_ratio_min, one.hit_ratio_max].map(show_percent);
        let hits = if least == most { most } else { format!("{least} to {most}") };
        let memory = format!("to {}", show_percent(one.memory_ratio_max));
        let store = format!("to {}", show_size(one.store_bytes_max));
        let _ = writeln!(text, "{:>5}   {hits:<17}{memory:<14}{store}", one.epoch);
    }
}
