//! Owns the files of this process's cgroups: where a bound of them is written, and the bounds on
//! RDMA devices.

use std::path::Path;

use super::file_tree::HostFileTree;

/// The bounds of one cgroup on what its processes have on one RDMA device; `None` is no bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceCgroupLimit {
    pub device: String,
    /// Times that the device is opened (`hca_handle`).
    pub handles_max: Option<u64>,
    /// Queue pairs, completion queues, regions and the like (`hca_object`).
    pub objects_max: Option<u64>,
    /// The file that says so.
    pub file: String,
}

/// Returns the paths at which a bound of `controller` may be written, for either version of
/// cgroups: `unified` and `version_1` are its file's names. A bound holds for everything below it.
/// Inside a cgroup namespace, or with the host's path in a container, the process's own folder is
/// the mount's root, so the root is one of them.
pub(super) fn list_limit_files(
    tree: &HostFileTree,
    controller: &str,
    unified: &str,
    version_1: &str,
) -> Vec<String> {
    let groups = tree.read_text("proc/self/cgroup").unwrap_or_default();
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (mount, file) = if controllers.is_empty() {
            ("sys/fs/cgroup".to_owned(), unified)
        } else if controllers.split(',').any(|name| name == controller) {
            (format!("sys/fs/cgroup/{controller}"), version_1)
        } else {
            continue;
        };
        for folder in Path::new(path.trim_start_matches('/')).ancestors() {
            let at = format!("{mount}/{}", folder.display());
            files.push(format!("{}/{file}", at.trim_end_matches('/')));
        }
    }
    files
}

/// Reads the bounds on RDMA devices: `mlx5_0 hca_handle=2 hca_object=2000`, a line for each device.
pub(super) fn read_device_limits(tree: &HostFileTree) -> Vec<DeviceCgroupLimit> {
    let mut limits = Vec::new();
    for file in list_limit_files(tree, "rdma", "rdma.max", "rdma.max") {
        for line in tree.read_text(&file).unwrap_or_default().lines() {
            let mut words = line.split_whitespace();
            let Some(device) = words.next() else { continue };
            let mut limit = DeviceCgroupLimit {
                device: device.to_owned(),
                handles_max: None,
                objects_max: None,
                file: format!("/{file}"),
            };
            for (resource, value) in words.filter_map(|word| word.split_once('=')) {
                match resource {
                    // "max" is no number.
                    "hca_handle" => limit.handles_max = value.parse().ok(),
                    "hca_object" => limit.objects_max = value.parse().ok(),
                    _ => {}
                }
            }
            if limit.handles_max.is_some() || limit.objects_max.is_some() {
                limits.push(limit);
            }
        }
    }
    limits
}
