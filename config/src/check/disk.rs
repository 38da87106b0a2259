//! Checks of `[worker.disk]`.

use verbs3_cache_worker::{DiskFolderSettings, DiskVolumeSettings, WorkerDiskSettings};
use verbs3_settings::CheckFindings;

pub(super) fn check_disk(disk: &WorkerDiskSettings, findings: &mut CheckFindings) {
    let WorkerDiskSettings { folders, volumes, .. } = disk;
    for (number, DiskFolderSettings { path, .. }) in folders.iter().enumerate() {
        let at = |field: &str| format!("worker.disk.folders[{number}].{field}");
        if path.as_os_str().is_empty() {
            findings.add_error(at("path"), "is missing; name a folder on a local drive");
        } else if let Some(other) = folders[..number].iter().position(|other| other.path == *path) {
            findings.add_error(
                at("path"),
                format!("{} is worker.disk.folders[{other}] too", path.display()),
            );
        }
    }
    for (number, DiskVolumeSettings { volume, .. }) in volumes.iter().enumerate() {
        let at = |field: &str| format!("worker.disk.volumes[{number}].{field}");
        if !volume
            .split_once('/')
            .is_some_and(|(ufs, bucket)| !ufs.is_empty() && !bucket.is_empty())
        {
            findings.add_error(
                at("volume"),
                format!("{volume:?} is not the name of a UFS, a slash and a bucket"),
            );
        } else if let Some(other) =
            volumes[..number].iter().position(|other| other.volume == *volume)
        {
            findings
                .add_error(at("volume"), format!("{volume:?} is worker.disk.volumes[{other}] too"));
        }
    }
    if folders.is_empty() && !volumes.is_empty() {
        findings
            .add_warning("worker.disk.volumes", "says nothing while worker.disk.folders is empty");
    }
}
