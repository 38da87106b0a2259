//! Checks that what a gateway judged is what a job would load here: their mounts may differ, and
//! the gateway's alone are those of the identities' rights. Pure.

use crate::api::{JudgedMount, PreloadJobSpec};
use crate::job_record::PreloadJobRecord;
use crate::mounts::{PreloadMount, PreloadMountTable};
use crate::plan::{SpecError, parse_path};

/// Reason for refusing a job: this coordinator would load something else than the gateway judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JudgedMountError {
    // Where it leads, here and there, is none of the sender's business.
    #[error(
        "[[mount]] {mount} means something else at the coordinators than at the gateway: {what} \
        differs; give the coordinators the gateways' [[ufs]] and [[mount]]"
    )]
    Other { mount: String, what: String },
    #[error(
        "the gateway did not say what it takes [[mount]] {0} for; update the gateways and the \
        coordinators to one release, and begin the job again"
    )]
    Unsaid(String),
    #[error(transparent)]
    Spec(#[from] SpecError),
}

/// Checks all mounts that a job with an owner names. An operator's job is judged by nobody.
pub(crate) fn check_judged_mounts(
    record: &PreloadJobRecord,
    mounts: &PreloadMountTable,
) -> Result<(), JudgedMountError> {
    if record.owner.is_none() {
        return Ok(());
    }
    let PreloadJobSpec { paths, prefixes, manifest, .. } = &record.spec;
    for path in paths.iter().chain(prefixes).chain(manifest) {
        let (mount, _) = parse_path(mounts, path)?;
        let mut judged = record.judged_mounts.iter().filter(|judged| judged.mount == mount.name);
        let first = judged.next().ok_or_else(|| JudgedMountError::Unsaid(mount.name.clone()))?;
        for judged in std::iter::once(first).chain(judged) {
            compare_mounts(&mount, judged)?;
        }
    }
    Ok(())
}

fn compare_mounts(here: &PreloadMount, judged: &JudgedMount) -> Result<(), JudgedMountError> {
    let parts = [
        (here.ufs.store_name() != judged.store, "ufs"),
        (here.bucket != judged.bucket, "bucket"),
        (here.prefix != judged.prefix, "prefix"),
    ];
    let differing: Vec<&str> =
        parts.into_iter().filter(|(differs, _)| *differs).map(|(_, what)| what).collect();
    if differing.is_empty() {
        return Ok(());
    }
    let (store, bucket, prefix) = (here.ufs.store_name(), &here.bucket, &here.prefix);
    tracing::warn!(
        mount = here.name,
        store,
        bucket,
        prefix,
        ?judged,
        "a gateway's [[mount]] is not this coordinator's; its clients' preload jobs are refused"
    );
    Err(JudgedMountError::Other { mount: here.name.clone(), what: differing.join(", ") })
}
