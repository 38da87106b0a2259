//! Owns the evidence that this process is in a container, where other remedies apply.

use super::file_tree::HostFileTree;

const MARKS: [&str; 3] = [".dockerenv", "run/.containerenv", "var/run/secrets/kubernetes.io"];
/// Parts of cgroup paths that container runtimes make.
const CGROUPS: [&str; 5] = ["kubepods", "docker", "containerd", "libpod", "lxc"];

/// Returns the file or cgroup that is the evidence.
pub(super) fn find_container_evidence(tree: &HostFileTree) -> Option<String> {
    if let Some(mark) = MARKS.iter().find(|mark| tree.path_exists(mark)) {
        return Some(format!("/{mark}"));
    }
    let groups = tree.read_text("proc/self/cgroup")?;
    // A daemon of the host, such as /system.slice/docker.service, is not in a container.
    let inside =
        |line: &&str| CGROUPS.iter().any(|name| line.contains(name)) && !line.ends_with(".service");
    groups.lines().find(inside).map(|line| format!("cgroup {line}"))
}
