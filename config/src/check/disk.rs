//! Checks of `[worker.disk]`.

use super::Findings;
use crate::disk::{WorkerDisk, WorkerDiskFolder, WorkerDiskVolume};
use crate::quantity::{ByteSize, Period};

const AGE_MAX: Period = Period::seconds(3650 * 86_400);
const CAPACITY_MAX: ByteSize = ByteSize(1 << 50);

pub(super) fn check(disk: &WorkerDisk, findings: &mut Findings) {
    let WorkerDisk {
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
    findings.range(at("queue_max"), *queue_max, ByteSize::mib(1), ByteSize::mib(64 << 10));
    findings.range(at("write_rate_max"), *write_rate_max, ByteSize(0), ByteSize(1 << 40));
    findings.range(at("pages_max"), *pages_max, 1000, 4_000_000_000);
    findings.range(at("stall_max"), *stall_max, Period::millis(100), Period::seconds(300));
    findings.range(at("reads_in_flight_max"), *reads_in_flight_max, 1, 512);
    findings.range(at("page_age_max"), *page_age_max, Period::millis(0), AGE_MAX);
    findings.range(at("flush_max"), *flush_max, Period::millis(0), Period::seconds(600));
    for (number, WorkerDiskFolder { path, capacity }) in folders.iter().enumerate() {
        let at = |field: &str| format!("worker.disk.folders[{number}].{field}");
        findings.range(at("capacity"), *capacity, ByteSize::mib(16), CAPACITY_MAX);
        if path.as_os_str().is_empty() {
            findings.error(at("path"), "is missing; name a folder on a local drive");
        } else if let Some(other) = folders[..number].iter().position(|other| other.path == *path) {
            findings.error(
                at("path"),
                format!("{} is worker.disk.folders[{other}] too", path.display()),
            );
        }
    }
    for (number, WorkerDiskVolume { volume, capacity, page_age_max }) in volumes.iter().enumerate()
    {
        let at = |field: &str| format!("worker.disk.volumes[{number}].{field}");
        findings.range(at("capacity"), *capacity, ByteSize(0), CAPACITY_MAX);
        findings.range(at("page_age_max"), *page_age_max, Period::millis(0), AGE_MAX);
        if !volume
            .split_once('/')
            .is_some_and(|(ufs, bucket)| !ufs.is_empty() && !bucket.is_empty())
        {
            findings.error(
                at("volume"),
                format!("{volume:?} is not the name of a UFS, a slash and a bucket"),
            );
        } else if let Some(other) =
            volumes[..number].iter().position(|other| other.volume == *volume)
        {
            findings.error(at("volume"), format!("{volume:?} is worker.disk.volumes[{other}] too"));
        }
    }
    if folders.is_empty() && !volumes.is_empty() {
        findings.warning("worker.disk.volumes", "says nothing while worker.disk.folders is empty");
    }
}
