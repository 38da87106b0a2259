//! Checks rights that a request needs besides its row's: for headers that do more than write, and
//! for other buckets that its document names. Owns which header needs which right, and that a named
//! bucket must be a mount of the same identity. `operation_core` checks the row's own right,
//! `copy_object` a copy's source.

use std::sync::Arc;

use http::HeaderMap;
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::operation_input::TableOperation;
use super::rewrite::NamedDestination;
use crate::auth::AuthIdentity;
use crate::metrics::{DenialReason, GatewayHttpMetrics};
use crate::mount::{MountTable, MountedBucket};
use crate::operation_table::AccessRight;
use crate::s3_errors::{access_denied, no_such_bucket};

/// Canned ACLs that give access to nobody but the writer and the bucket's owner. Clients send them
/// by default (s3fs, rclone).
const CLOSED_ACLS: [&[u8]; 2] = [b"private", b"bucket-owner-full-control"];

/// Judges what an identity may do, and counts denials.
pub(crate) struct RightsJudge {
    pub mounts: MountTable,
    pub metrics: Arc<GatewayHttpMetrics>,
}

impl RightsJudge {
    /// Fails with 403, and counts it, unless a rule of the identity gives the right. `subject` is a
    /// client's key, or the listed prefix.
    pub(super) fn require_right(
        &self,
        identity: &AuthIdentity,
        mount: &MountedBucket,
        subject: &str,
        right: AccessRight,
    ) -> S3Result<()> {
        if identity.allows_right(&mount.name, subject, right) {
            return Ok(());
        }
        self.metrics.count_denial(DenialReason::Policy);
        Err(denial_error(identity, mount, subject, right))
    }

    /// Checks the rights that a write's headers need.
    pub(super) fn allow_headers(
        &self,
        identity: &AuthIdentity,
        mount: &MountedBucket,
        key: &str,
        headers: &HeaderMap,
    ) -> S3Result<()> {
        let mut needed = headers
            .iter()
            .filter_map(|(name, value)| right_of_header(name.as_str(), value.as_bytes()));
        needed.try_for_each(|right| self.require_right(identity, mount, key, right))
    }

    /// Resolves the buckets that the input names as mounts, checks the rights on them, and replaces
    /// them by the UFS's names.
    pub(super) fn allow_destinations<R: TableOperation>(
        &self,
        identity: &AuthIdentity,
        mount: &MountedBucket,
        input: &mut R,
    ) -> S3Result<()> {
        for destination in input.find_destinations() {
            match destination {
                NamedDestination::Bucket { name, rights } => {
                    let (arn, bucket) =
                        parts_of(name).ok_or_else(|| self.refuse_destination::<R>("no bucket"))?;
                    let target = self.mounts.resolve_bucket(bucket).ok_or_else(no_such_bucket)?;
                    // On all keys, because the store chooses them.
                    for right in rights {
                        self.require_right(identity, &target, "", *right)?;
                    }
                    if target.is_prefix() || target.read_only {
                        return Err(self.refuse_destination::<R>(
                            "a mount of a part of a bucket, or a read-only one",
                        ));
                    }
                    if target.ufs.ufs_name() != mount.ufs.ufs_name() {
                        return Err(self.refuse_destination::<R>("a mount of another store"));
                    }
                    *name = format!("{arn}{}", target.bucket);
                }
                NamedDestination::Foreign(what) => return Err(self.refuse_destination::<R>(what)),
            }
        }
        Ok(())
    }

    fn refuse_destination<R: TableOperation>(&self, what: &str) -> S3Error {
        self.metrics.count_denial(DenialReason::Destination);
        let message = format!(
            "{} names {what} as its destination: nothing can be written there from here",
            R::table_row().name
        );
        S3Error::with_message(S3ErrorCode::NotImplemented, message)
    }
}

fn right_of_header(name: &str, value: &[u8]) -> Option<AccessRight> {
    match name.strip_prefix("x-amz-")? {
        "acl" => (!CLOSED_ACLS.contains(&value)).then_some(AccessRight::acl),
        name if name.starts_with("grant-") => Some(AccessRight::acl),
        name if name.starts_with("object-lock-") => Some(AccessRight::lock),
        // An identity that may lock an object should not thereby be able to unlock it.
        "bypass-governance-retention" => {
            (!value.eq_ignore_ascii_case(b"false")).then_some(AccessRight::admin)
        }
        _ => None,
    }
}

/// Splits `arn:aws:s3:::bucket`, or a bare name, into what stands before the bucket, and the
/// bucket.
fn parts_of(text: &str) -> Option<(String, &str)> {
    if !text.starts_with("arn:") {
        return Some((String::new(), text));
    }
    let mut parts = text.splitn(6, ':');
    let (_, partition, service) = (parts.next()?, parts.next()?, parts.next()?);
    let (region, account, bucket) = (parts.next()?, parts.next()?, parts.next()?);
    let plain =
        service == "s3" && region.is_empty() && account.is_empty() && !bucket.contains(['/', ':']);
    plain.then(|| (format!("arn:{partition}:s3:::"), bucket))
}

/// Makes a denial. An identity that may write, but lacks a right that `write` once included, is
/// told which.
fn denial_error(
    identity: &AuthIdentity,
    mount: &MountedBucket,
    subject: &str,
    right: AccessRight,
) -> S3Error {
    let name = match right {
        AccessRight::acl => "acl",
        AccessRight::lock => "lock",
        AccessRight::read
        | AccessRight::write
        | AccessRight::list
        | AccessRight::delete
        | AccessRight::admin
        | AccessRight::warm
        | AccessRight::seen => {
            return access_denied();
        }
    };
    if !identity.allows_right(&mount.name, subject, AccessRight::write) {
        return access_denied();
    }
    let message = format!(
        "Access Denied: this needs the right \"{name}\" besides \"write\" in the identities file"
    );
    S3Error::with_message(S3ErrorCode::AccessDenied, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_do_more_than_write_need_more() {
        for (name, value, right) in [
            ("x-amz-acl", "public-read", Some(AccessRight::acl)),
            ("x-amz-acl", "authenticated-read", Some(AccessRight::acl)),
            ("x-amz-acl", "", Some(AccessRight::acl)),
            ("x-amz-acl", "private", None),
            ("x-amz-acl", "bucket-owner-full-control", None),
            ("x-amz-grant-full-control", "id=a", Some(AccessRight::acl)),
            ("x-amz-object-lock-mode", "COMPLIANCE", Some(AccessRight::lock)),
            (
                "x-amz-object-lock-retain-until-date",
                "2030-01-01T00:00:00Z",
                Some(AccessRight::lock),
            ),
            ("x-amz-object-lock-legal-hold", "ON", Some(AccessRight::lock)),
            ("x-amz-bypass-governance-retention", "true", Some(AccessRight::admin)),
            ("x-amz-bypass-governance-retention", "True", Some(AccessRight::admin)),
            ("x-amz-bypass-governance-retention", "1", Some(AccessRight::admin)),
            ("x-amz-bypass-governance-retention", "false", None),
            ("x-amz-meta-acl", "public-read", None),
            ("x-amz-tagging", "a=b", None),
            ("content-type", "a/b", None),
        ] {
            assert_eq!(right_of_header(name, value.as_bytes()), right, "{name}: {value}");
        }
    }

    #[test]
    fn a_bucket_is_named_by_itself_or_by_its_arn() {
        for (text, arn, bucket) in [
            ("train", "", "train"),
            ("arn:aws:s3:::train", "arn:aws:s3:::", "train"),
            ("arn:aws-cn:s3:::train", "arn:aws-cn:s3:::", "train"),
        ] {
            assert_eq!(parts_of(text), Some((arn.to_owned(), bucket)), "{text}");
        }
        for text in [
            "arn:aws:s3:eu-1:123456789012:accesspoint/train",
            "arn:aws:s3tables:eu-1:1:bucket/train",
            "arn:aws:s3:::train/folder",
            "arn:aws:s3",
            "arn:",
        ] {
            assert_eq!(parts_of(text), None, "{text}");
        }
    }
}
