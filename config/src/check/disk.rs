//! Checks of `[worker.disk]`.

use super::CheckFindings;
use crate::disk::{DiskFolderSettings, DiskVolumeSettings, WorkerDiskSettings};
use crate::quantity::{ByteSize, TimePeriod};

const AGE_MAX: TimePeriod = TimePeriod::from_seconds(3650 * 86_400);
const CAPACITY_MAX: ByteSize = ByteSize(1 << 50);

pub(super) fn check_disk(disk: &WorkerDiskSettings, findings: &mut CheckFindings) {
    let WorkerDiskSettings {
        queue_max,
        write_rate_max,
        pages_max,
        reads_in_flight_max,
        stall_max,
        direct: _,
        page_age_max,
        flush_max,
        folders,
        volumes,
    } = disk;
    let at = |field: &str| format!("worker.disk.{field}");
    findings.check_range(
        at("queue_max"),
        *queue_max,
        ByteSize::from_mib(1),
        ByteSize::from_mib(64 << 10),
    );
    findings.check_range(at("write_rate_max"), *write_rate_max, ByteSize(0), ByteSize(1 << 40));
    findings.check_range(at("pages_max"), *pages_max, 1000, 4_000_000_000);
    findings.check_range(
        at("stall_max"),
        *stall_max,
        TimePeriod::from_millis(100),
        TimePeriod::from_seconds(300),
    );
    findings.check_range(at("reads_in_flight_max"), *reads_in_flight_max, 1, 512);
    findings.check_range(at("page_age_max"), *page_age_max, TimePeriod::from_millis(0), AGE_MAX);
    findings.check_range(
        at("flush_max"),
        *flush_max,
        TimePeriod::from_millis(0),
        TimePeriod::from_seconds(600),
    );
    for (number, DiskFolderSettings { path, capacity }) in folders.iter().enumerate() {
        let at = |field: &str| format!("worker.disk.folders[{number}].{field}");
        findings.check_range(at("capacity"), *capacity, ByteSize::from_mib(16), CAPACITY_MAX);
        if path.as_os_str().is_empty() {
            findings.add_error(at("path"), "is missing; name a folder on a local drive");
        } else if let Some(other) = folders[..number].iter().position(|other| other.path == *path) {
            findings.add_error(
                at("path"),
                format!("{} is worker.disk.folders[{other}] too", path.display()),
            );
        }
    }
    for (number, DiskVolumeSettings { volume, capacity, page_age_max }) in
        volumes.iter().enumerate()
    {
        let at = |field: &str| format!("worker.disk.volumes[{number}].{field}");
        findings.check_range(at("capacity"), *capacity, ByteSize(0), CAPACITY_MAX);
        findings.check_range(
            at("page_age_max"),
            *page_age_max,
            TimePeriod::from_millis(0),
            AGE_MAX,
        );
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
