//! The plan as a configuration file of all roles: what differs from the defaults, each with its
//! reason. `verbs3 config check` judges it, like any other.

use std::fmt::Write as _;

use verbs3_config::{ByteSize, RootSettings};

use super::capacity_input::CapacityInput;
use super::capacity_plan::CapacityPlan;
use super::formulas::HEADROOM;
use crate::arguments::plan::PlannedPlaces;

/// Returns the file's text.
pub fn write_configuration(
    input: &CapacityInput,
    settings: &RootSettings,
    plan: &CapacityPlan,
    places: &PlannedPlaces,
) -> String {
    let mut text = String::from(
        "# Written by `verbs3 plan`: one file for all roles and hosts, with what differs from the \
        defaults.\n# config/examples has every setting. Of each host: VERBS3_WORKER__ID, and \
        VERBS3_WORKER__ZONE.\n# Of each process: VERBS3_CLUSTER__SECRET_FILE.\n",
    );
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let listed = |texts: &[String]| {
        format!("[{}]", texts.iter().map(|one| quoted(one)).collect::<Vec<_>>().join(", "))
    };
    let path = |path: &std::path::Path| quoted(&path.display().to_string());
    // Writing to a string can't fail.
    let _ = writeln!(
        text,
        "\n[cluster]\nreplicas = {}\ncoordinators = {}",
        input.replicas,
        listed(&places.coordinators)
    );
    let _ = writeln!(
        text,
        "\n[[ufs]]\nname = \"store\"\nendpoint = {}\n\n[[mount]]\nname = \"*\"\nufs = \"store\"",
        quoted(&places.endpoint)
    );
    let _ = writeln!(
        text,
        "\n[gateway]\nidentities = {}\n\n[gateway.memory]\n# {} readers of a node, a window \
        each.\ncapacity = {}",
        path(&places.identities),
        input.readers,
        quoted(&ByteSize(plan.node_memory.landing).to_string())
    );
    let _ = writeln!(
        text,
        "\n[worker.memory]\n# What is left of the node's {} after indexes, buffers and the \
        gateway.\ncapacity = {}",
        ByteSize(input.memory_bytes),
        quoted(&ByteSize(plan.node_memory.worker_arena).to_string())
    );
    if plan.attributes_max > u64::from(settings.worker.index.attributes_max) {
        let _ = writeln!(
            text,
            "\n[worker.index]\n# A node's share of the objects, with headroom.\nattributes_max = {}",
            plan.attributes_max
        );
    }
    write_folders(&mut text, input, plan);
    write_store(&mut text, places, &listed);
    write_verbs(&mut text, input, settings, plan);
    text
}

fn write_folders(text: &mut String, input: &CapacityInput, plan: &CapacityPlan) {
    if input.drives == 0 {
        return;
    }
    let _ = writeln!(
        text,
        "\n[worker.disk]\n# What the drives hold, or a node's share of the data.\npages_max = {}",
        plan.disk_pages_max
    );
    for drive in 0..input.drives {
        let _ = writeln!(
            text,
            "\n[[worker.disk.folders]]\npath = \"/mnt/nvme{drive}/verbs3\"\ncapacity = \"{}\"",
            ByteSize(plan.folder_bytes >> 20 << 20)
        );
    }
}

fn write_store(text: &mut String, places: &PlannedPlaces, listed: &dyn Fn(&[String]) -> String) {
    if !places.etcd.is_empty() {
        let _ = writeln!(
            text,
            "\n[coordinator.store]\nkind = \"etcd\"\nendpoints = {}",
            listed(&places.etcd)
        );
    }
}

fn write_verbs(
    text: &mut String,
    input: &CapacityInput,
    settings: &RootSettings,
    plan: &CapacityPlan,
) {
    let pairs = plan.nic.process_queue_pairs_max;
    if input.nics == 0 || pairs <= u64::from(settings.verbs.connections_max) {
        return;
    }
    let _ = writeln!(
        text,
        "\n[verbs]\n# A process's queue pairs to all others, over all NICs, with \
        headroom.\nconnections_max = {}",
        (pairs as f64 * HEADROOM) as u64
    );
}
