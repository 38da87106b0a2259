//! Every formula of a capacity plan. Pure: figures and settings in, a plan out. Bounds and lengths
//! come from the settings themselves. Each constant below says where its figure was measured or is
//! declared, and a test holds it against that place where there is something to hold.

use std::time::Duration;

use verbs3_config::RootSettings;
use verbs3_coordinator::membership::ClusterDocument;
use verbs3_protocol::{ClusterMember, Epoch, MemberRoster, WorkerId};

use super::capacity_input::{CELL_BYTES_MIN, CapacityInput};
use super::capacity_plan::{
    CapacityPlan, ClusterStorePlan, DataSetExtent, EpochForecast, NicPlan, NodeMemoryPlan,
    TierFill, WarmUpLimit, WarmUpPlan,
};

/// Room that is planned over what the data takes: for growth, and for workers that own up to 1.15
/// of their share of the slots (coordinator/SIMULATION.md, *imbalance*).
pub const HEADROOM: f64 = 1.2;
/// Part of the room from which on a plan warns, so that there is time to buy.
pub const WARN_PART: f64 = 0.6;
/// Part of the room from which on something has to be done: above 1 ÷ 1.2 the headroom is gone.
pub const ACT_PART: f64 = 0.8;
/// Part of the store's bandwidth that cold reads and preload jobs reach: the aim of
/// loadtest/PERFORMANCE.md (cold 16 MiB ÷ direct ≥ 0.9), which preload jobs of large objects meet.
pub const STORE_PART: f64 = 0.9;
/// Part of a drive that the cache is given. ext4 keeps 5 % for root, and the segments need some
/// room for the file system's own.
pub const DRIVE_PART: f64 = 0.95;
/// Bytes of memory for each page in the index of the memory tier: the bound that
/// `a_small_object_costs_at_most_200_bytes_of_index` holds in cache-worker/src/memory/tests.rs.
pub const MEMORY_INDEX_BYTES: u64 = 200;
/// The same of the disk tier: the help of `worker.disk.pages_max` ("some 110 bytes").
pub const DISK_INDEX_BYTES: u64 = 110;
/// Bytes for each object whose attributes are kept: the help of `worker.index.attributes_max`
/// ("half a KiB each").
pub const ATTRIBUTES_BYTES: u64 = 512;
/// Bytes of a slot in `worker.index.generation_slots`: its help ("8 bytes each").
pub const GENERATION_BYTES: u64 = 8;
/// What a process takes besides what is counted here: code, stacks, buffers of sockets. The bound
/// on memory in loadtest/PERFORMANCE.md leaves it (832 MiB for two processes with arenas of 320).
pub const PROCESS_BYTES: u64 = 256 << 20;
/// Steps for each doubling of cells, and of slots on drives (the same two files).
const CELL_STEPS: u64 = 8;
const SLOT_STEPS: u64 = 4;
/// Header of a page on a drive (cache-worker/src/disk/disk_headers.rs).
const SLOT_HEADER_BYTES: u64 = 128;
/// Receive buffers of a connection besides those that its peer has credits for, and buffers for
/// grants besides those for sending (`SPARE_RECEIVES`, `GRANT_SLOTS` of rdma/src/verbs).
const SPARE_RECEIVES: u64 = 4;
const GRANT_SLOTS: u64 = 2;
/// Shared receive buffers that a connection is sure of: the help of `verbs.shared_receives`.
const SURE_RECEIVES: u64 = 8;
/// Keys of one answer to a listing of the store (S3), and passes of a preload job over its list.
const LIST_KEYS: u64 = 1000;
const LIST_PASSES: u64 = 3;
/// Bytes of a preload job's progress in the coordinators' store: counters, the last key (1 KiB at
/// most), and 20 failures. An estimate.
const PROGRESS_BYTES: u64 = 4 << 10;

/// Computes the plan of `input` for processes with `settings`.
pub fn compute_plan(input: &CapacityInput, settings: &RootSettings) -> CapacityPlan {
    let plan = plan_for_nodes(input, settings);
    CapacityPlan { nodes_needed: find_nodes_needed(input, settings, &plan), ..plan }
}

/// Returns the number of nodes whose room holds the data with headroom. What a node has room for
/// changes with their number: buffers grow with it, indexes shrink. So each number is tried.
fn find_nodes_needed(
    input: &CapacityInput,
    settings: &RootSettings,
    plan: &CapacityPlan,
) -> Option<u64> {
    let most = u64::from(settings.coordinator.workers_max);
    let mut tier = plan.holding_tier().clone();
    let mut nodes = u64::from(input.nodes);
    for _ in 0..NODE_TRIES {
        let per_node = tier.capacity_bytes / nodes;
        nodes = tier.planned_bytes.div_ceil(per_node.max(1)).max(u64::from(input.copies));
        let tried = u32::try_from(nodes).ok().filter(|tried| u64::from(*tried) <= most)?;
        tier = plan_for_nodes(&CapacityInput { nodes: tried, ..input.clone() }, settings)
            .holding_tier()
            .clone();
        if tier.planned_bytes <= tier.capacity_bytes {
            return Some(nodes);
        }
    }
    None
}

/// Tries until a number of nodes holds the data: a second one corrects the first by a node or two.
const NODE_TRIES: u32 = 16;

fn plan_for_nodes(input: &CapacityInput, settings: &RootSettings) -> CapacityPlan {
    let data = measure_data(input, settings);
    let nodes = u64::from(input.nodes);
    let folder_bytes = (input.drive_bytes as f64 * DRIVE_PART) as u64;
    let node_disk = folder_bytes * u64::from(input.drives);
    // Copies of everything, and what hot blocks have besides.
    let copies = u64::from(data.copies);
    let disk_needed = data.disk_bytes * copies + data.hot_bytes;
    let memory_needed = data.memory_bytes * copies + data.hot_bytes;
    // What lies on one node's drives: what fits, or its share of the data.
    let mean_slot = data.disk_bytes.div_ceil(data.pages.max(1)).max(1);
    let share = |whole: u64| (whole as f64 * HEADROOM / nodes as f64).ceil() as u64;
    let disk_pages_max = match node_disk {
        0 => u64::from(settings.worker.disk.pages_max),
        _ => (node_disk / mean_slot).min(share(data.pages * copies)).max(LEAST_PAGES),
    };
    let attributes_max = share(data.objects).max(u64::from(settings.worker.index.attributes_max));
    let landing = landing_bytes(input, settings);
    let nic_buffers = process_buffer_bytes(input, settings);
    let mut node_memory = NodeMemoryPlan {
        landing,
        disk_index: if node_disk > 0 { disk_pages_max * DISK_INDEX_BYTES } else { 0 },
        object_index: attributes_max * ATTRIBUTES_BYTES
            + u64::from(settings.worker.index.generation_slots) * GENERATION_BYTES,
        neighbours: settings.worker.neighbours.memory.0,
        gateway_bodies: settings.gateway.limits.bodies_max.0
            + settings.gateway.limits.forms_max.0
            + settings.gateway.limits.http2_answers_max.0
            + settings.gateway.tier.small_memory_max.0,
        verbs_buffers: 2 * nic_buffers * u64::from(input.nics),
        processes: 2 * PROCESS_BYTES,
        ..NodeMemoryPlan::default()
    };
    let left = input.memory_bytes.saturating_sub(node_memory.sum_bytes());
    // Each cell of the arena brings its entry of the index along.
    let mean_cell = data.memory_bytes.div_ceil(data.pages.max(1)).max(1);
    let arena = left as f64 * mean_cell as f64 / (mean_cell + MEMORY_INDEX_BYTES) as f64;
    node_memory.worker_arena = (arena as u64) >> 20 << 20;
    node_memory.memory_index = node_memory.worker_arena / mean_cell * MEMORY_INDEX_BYTES;
    // What `worker.fill.reserve` keeps free holds no page.
    let node_pages_bytes =
        (node_memory.worker_arena as f64 * (1.0 - settings.worker.fill.reserve)) as u64;
    let memory_tier = fill_tier(node_pages_bytes * nodes, memory_needed);
    let disk_tier = fill_tier(node_disk * nodes, disk_needed);
    let nic = plan_nics(input, settings, &node_memory, nic_buffers);
    let part_of = |tier: &TierFill| tier.part.map_or(0.0, |part| (1.0 / part).min(1.0));
    let (held, in_memory) = (part_of(&memory_tier).max(part_of(&disk_tier)), part_of(&memory_tier));
    CapacityPlan {
        warm_up: forecast_warm_up(input, settings, &data),
        store: plan_store(input, settings, &data),
        epochs: (1..=input.epochs)
            .map(|epoch| forecast_epoch(input, &data, epoch, held, in_memory))
            .collect(),
        nodes_needed: None,
        data,
        node_memory,
        memory_tier,
        disk_tier,
        folder_bytes,
        disk_pages_max,
        attributes_max,
        nic,
    }
}

fn fill_tier(capacity_bytes: u64, needed_bytes: u64) -> TierFill {
    let part = (capacity_bytes > 0).then(|| needed_bytes as f64 / capacity_bytes as f64);
    let planned_bytes = (needed_bytes as f64 * HEADROOM) as u64;
    TierFill { capacity_bytes, needed_bytes, planned_bytes, part }
}

/// Least of `worker.disk.pages_max`: its range.
const LEAST_PAGES: u64 = 1000;

/// Returns the width of what holds `bytes`: `steps` widths for each doubling, and at least 4 KiB.
pub fn cell_width(bytes: u64, steps: u64) -> u64 {
    let bytes = bytes.max(1);
    // Widths above a power of two grow by a step of it.
    let below = if bytes.is_power_of_two() { bytes } else { bytes.next_power_of_two() / 2 };
    bytes.max(CELL_BYTES_MIN).next_multiple_of((below / steps).max(1))
}

/// Returns the width of a page's slot on a drive: multiples of 4 KiB.
fn slot_width(bytes: u64) -> u64 {
    cell_width(bytes.next_multiple_of(CELL_BYTES_MIN), SLOT_STEPS).next_multiple_of(CELL_BYTES_MIN)
}

fn measure_data(input: &CapacityInput, settings: &RootSettings) -> DataSetExtent {
    let (block, page) = (settings.cluster.block.0, settings.cluster.page.0);
    let mut data = DataSetExtent {
        objects: 0,
        bytes: 0,
        blocks: 0,
        pages: 0,
        memory_bytes: 0,
        disk_bytes: 0,
        copies: input.copies,
        hot_bytes: 0,
    };
    for class in &input.sizes {
        let (whole, tail) = (class.bytes / page, class.bytes % page);
        let (tail_cell, tail_slot) = match tail {
            0 => (0, 0),
            _ => (cell_width(tail, CELL_STEPS), slot_width(tail) + SLOT_HEADER_BYTES),
        };
        data.objects += class.count;
        data.bytes += class.count * class.bytes;
        data.blocks += class.count * class.bytes.div_ceil(block);
        data.pages += class.count * (whole + u64::from(tail > 0));
        data.memory_bytes += class.count * (whole * page + tail_cell);
        data.disk_bytes += class.count * (whole * (page + SLOT_HEADER_BYTES) + tail_slot);
    }
    let hot = &settings.coordinator.hot;
    let more_workers = u64::from(hot.workers_max).min(u64::from(input.nodes)).saturating_sub(1);
    data.hot_bytes = data.bytes.min(u64::from(hot.blocks_max) * block) * more_workers;
    data
}

/// Returns the memory of a gateway that replies land in. Each body has its window, or as much as
/// its object is long; the node's own worker is read by shared memory, which is not counted on.
fn landing_bytes(input: &CapacityInput, settings: &RootSettings) -> u64 {
    let (window, first) = (settings.gateway.read.window.0, settings.gateway.tier.open_landing.0);
    let longest = input.sizes.iter().map(|class| class.bytes).max().unwrap_or(0);
    let each = longest.min(window).max(first);
    let wanted = (u64::from(input.readers) * each) as f64 * HEADROOM;
    (wanted as u64).next_multiple_of(1 << 20).max(settings.gateway.memory.capacity.0)
}

/// Connections between two processes over one NIC, when few and when many calls are under way.
fn connections_per_nic(input: &CapacityInput, settings: &RootSettings) -> (u64, u64) {
    let nics = u64::from(input.nics);
    if nics == 0 {
        return (0, 0);
    }
    (1, u64::from(settings.gateway.peers.connections_max).div_ceil(nics).max(1))
}

/// Returns the registered buffers of one process on one NIC, besides its arena.
fn process_buffer_bytes(input: &CapacityInput, settings: &RootSettings) -> u64 {
    let verbs = &settings.verbs;
    let pairs = u64::from(input.nodes - 1) * connections_per_nic(input, settings).1;
    if input.nics == 0 {
        return 0;
    }
    let (count, buffer) = (u64::from(verbs.receive_count), verbs.receive_buffer.0);
    let shared = u64::from(verbs.shared_receives);
    // Who finds no room among the shared ones has a ring of its own.
    let with_own_ring = pairs.saturating_sub(shared / SURE_RECEIVES);
    let receive = (shared + with_own_ring * (count + SPARE_RECEIVES)) * buffer;
    let send = pairs * (count + GRANT_SLOTS) * buffer;
    receive + send
}

fn plan_nics(
    input: &CapacityInput,
    settings: &RootSettings,
    memory: &NodeMemoryPlan,
    buffers: u64,
) -> NicPlan {
    let (few, many) = connections_per_nic(input, settings);
    let peers = u64::from(input.nodes - 1);
    let registered_bytes = match input.nics {
        0 => 0,
        // Every NIC registers all of both arenas, and its own buffers.
        _ => memory.worker_arena + memory.landing + memory.neighbours + 2 * buffers,
    };
    NicPlan {
        nics: input.nics,
        // The gateway's to other nodes' workers, and the worker's from other nodes' gateways.
        queue_pairs: 2 * peers * few,
        queue_pairs_max: 2 * peers * many,
        process_queue_pairs_max: peers * many * u64::from(input.nics),
        registered_bytes,
        locked_bytes: registered_bytes * u64::from(input.nics),
    }
}

/// The document as it is written, with names of the usual length.
fn plan_store(
    input: &CapacityInput,
    settings: &RootSettings,
    data: &DataSetExtent,
) -> ClusterStorePlan {
    let members = (0..input.nodes).map(|number| ClusterMember {
        id: WorkerId(format!("gpu-{number:04}")),
        address: format!("gpu-{number:04}.cluster.example:9400"),
        weight: 512.0,
        zone: format!("rack-{:03}", number / 32),
        draining: false,
    });
    let roster = MemberRoster::new(Epoch(u64::MAX), settings.cluster.replicas, members.collect());
    let mut document = ClusterDocument::new(Epoch(u64::MAX), settings.cluster.replicas);
    document.places = roster.members.iter().map(|one| (one.id.clone(), u64::MAX)).collect();
    document.former = roster.clone();
    document.active = roster;
    let document_bytes = serde_json::to_vec(&document).map_or(0, |bytes| bytes.len() as u64);
    // deploy/ compacts after an hour. Each restart is a map without the worker and one with it.
    let history = document_bytes * 2 * u64::from(input.nodes);
    let pages = data.objects.div_ceil(LIST_KEYS) * LIST_PASSES;
    let jobs = u64::from(settings.coordinator.preload.jobs_max) * PROGRESS_BYTES;
    let etcd_bytes = document_bytes + history + jobs + pages * PROGRESS_BYTES;
    ClusterStorePlan { document_bytes, etcd_bytes }
}

fn forecast_warm_up(
    input: &CapacityInput,
    settings: &RootSettings,
    data: &DataSetExtent,
) -> WarmUpPlan {
    let nics = f64::from(input.nics.max(1));
    let network = f64::from(input.nodes) * nics * input.nic_gbits * 1e9 / 8.0;
    let at_once = f64::from(settings.coordinator.preload.blocks_per_ufs_max);
    let candidates = [
        (
            data.bytes as f64 / (input.store_bytes_per_second as f64 * STORE_PART),
            WarmUpLimit::StoreBandwidth,
        ),
        (data.blocks as f64 * input.store_first_byte_seconds / at_once, WarmUpLimit::StoreRequests),
        (data.bytes as f64 * f64::from(data.copies) / network, WarmUpLimit::Network),
    ];
    let longest = candidates.into_iter().max_by(|one, other| one.0.total_cmp(&other.0));
    let (seconds, limit) = longest.unwrap_or((0.0, WarmUpLimit::StoreBandwidth));
    WarmUpPlan { seconds, limit }
}

/// Bounds of the hit ratio of epochs that each read everything once, in an order of their own,
/// where `held` of the data fits.
///
/// Below is what least recently used would give: a page is still there if less than `held` of the
/// data was read since. With uniform positions x and y in two epochs that is
/// P(x·(1 − y) ≥ 1 − held). Above is a cache that keeps the same `held` of the data.
pub fn reuse_bounds(held: f64) -> [f64; 2] {
    if held >= 1.0 {
        return [1.0, 1.0];
    }
    let rest = 1.0 - held;
    [(held + rest * rest.ln()).max(0.0), held.max(0.0)]
}

fn forecast_epoch(
    input: &CapacityInput,
    data: &DataSetExtent,
    epoch: u32,
    held: f64,
    in_memory: f64,
) -> EpochForecast {
    let is_cold = epoch == 1 && !input.warmed;
    let [least, most] = if is_cold { [0.0, 0.0] } else { reuse_bounds(held) };
    // Of several nodes that read an object at about the same time, one brings it: a page has one
    // fill in the whole cluster.
    let readers = f64::from(input.readers_per_object);
    let with_sharing = |first: f64| (first + readers - 1.0) / readers;
    EpochForecast {
        epoch,
        hit_ratio_min: with_sharing(least),
        hit_ratio_max: with_sharing(most),
        memory_ratio_max: with_sharing(if is_cold { 0.0 } else { in_memory }),
        store_bytes_max: (data.bytes as f64 * (1.0 - least)) as u64,
    }
}

/// Returns a plan's time as a duration, for people; a plan without end is as long as can be told.
pub fn plan_duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests;
