//! Judges a request about preload jobs, and makes of it what the coordinators are asked.
//!
//! What is passed on is written anew from what was judged: a document that two readers could take
//! differently would let its sender past the rights. It goes with what each mount stands for here:
//! coordinators have mounts of their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use super::{PATH, PreloadAnswer, PreloadQuestion, refuse};
use crate::auth::AuthIdentity;
use crate::mount::{MountTable, MountedBucket};
use crate::operation_table::AccessRight;

/// Parameters of questions that are passed on.
const PARAMETERS: [&str; 4] = ["news", "wait_ms", "limit", "after"];
/// What stands in a query as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PreloadTarget<'a> {
    NewJob,
    Jobs,
    Job(&'a str),
    EndOfJob(&'a str),
}

impl<'a> PreloadTarget<'a> {
    /// Reads what a request is about, before anything of its body is waited for.
    pub(super) fn read_request(method: &Method, path: &'a str) -> Result<Self, PreloadAnswer> {
        let id = path.strip_prefix(PATH).and_then(|rest| match rest {
            "" => Some(None),
            rest => rest.strip_prefix('/').filter(|id| is_job_id(id)).map(Some),
        });
        let nothing_here = || refuse(StatusCode::NOT_FOUND, "malformed", "there are no jobs here");
        match (method, id.ok_or_else(nothing_here)?) {
            (&Method::POST, None) => Ok(Self::NewJob),
            (&Method::GET, None) => Ok(Self::Jobs),
            (&Method::GET, Some(id)) => Ok(Self::Job(id)),
            (&Method::DELETE, Some(id)) => Ok(Self::EndOfJob(id)),
            _ => {
                let reason = "jobs are begun by POST, seen by GET and ended by DELETE";
                Err(refuse(StatusCode::METHOD_NOT_ALLOWED, "malformed", reason))
            }
        }
    }

    /// Whether the body describes a job.
    pub(super) fn takes_job(self) -> bool {
        self == Self::NewJob
    }

    /// Makes the question, or refuses the job that `body` describes.
    pub(super) fn make_question(
        self,
        query: &str,
        body: &[u8],
        identity: &AuthIdentity,
        mounts: &MountTable,
    ) -> Result<PreloadQuestion, PreloadAnswer> {
        let (method, target, body) = match self {
            Self::NewJob => (Method::POST, PATH.to_owned(), judge_job(body, identity, mounts)?),
            Self::Jobs => (Method::GET, PATH.to_owned(), Bytes::new()),
            Self::Job(id) => (Method::GET, format!("{PATH}/{id}"), Bytes::new()),
            Self::EndOfJob(id) => (Method::DELETE, format!("{PATH}/{id}"), Bytes::new()),
        };
        // The owner comes first: the coordinators take the first of two.
        let owner = utf8_percent_encode(identity.identity_name(), PLAIN);
        let mut path_and_query = format!("{target}?owner={owner}");
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let is_plain =
                value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
            if PARAMETERS.contains(&name) && is_plain {
                path_and_query.push_str(&format!("&{name}={value}"));
            }
        }
        Ok(PreloadQuestion { method, path_and_query, body })
    }
}

fn is_job_id(id: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !id.is_empty() && id.len() <= 64 && !id.starts_with('.') && id.bytes().all(fits)
}

/// Judges a job's description. Writes it anew, with the owner's tenant and the mounts it was judged
/// by.
fn judge_job(
    body: &[u8],
    identity: &AuthIdentity,
    mounts: &MountTable,
) -> Result<Bytes, PreloadAnswer> {
    let malformed = |reason: &str| refuse(StatusCode::BAD_REQUEST, "malformed", reason);
    let denied = |reason: &str| refuse(StatusCode::FORBIDDEN, "denied", reason);
    let mut spec: Map<String, Value> = serde_json::from_slice(body)
        .map_err(|error| malformed(&format!("the job is no JSON object: {error}")))?;
    // What may be said, each in one form: a value that the coordinators read in several ways would
    // be judged in one.
    let manifest = "nobody could say here whether you may warm what a manifest lists; name it in \
        paths and prefixes";
    for (name, plain, reason) in [
        ("action", &["load"][..], "only operators evict and unpin; leave out action"),
        ("priority", &["low", "normal"], "a job by key has priority low or normal"),
        ("pin_ttl", &[], "only operators pin; leave out pin_ttl"),
        ("manifest", &[], manifest),
    ] {
        let is_plain = |value: &Value| value.is_null() || plain.iter().any(|plain| value == plain);
        if !spec.get(name).is_none_or(is_plain) {
            return Err(denied(reason));
        }
    }
    let mut judged = BTreeMap::new();
    for list in ["paths", "prefixes"] {
        let named = match spec.get(list) {
            None => continue,
            Some(Value::Array(named)) => named,
            Some(_) => return Err(malformed(&format!("{list} is no list"))),
        };
        for path in named {
            let (bucket, mount) = judge_path(path, identity, mounts)?;
            judged.insert(bucket.to_owned(), mount);
        }
    }
    // Sent to one coordinator after the other, it stays one job.
    if spec.get("id").is_none_or(Value::is_null) {
        spec.insert("id".to_owned(), format!("{:016x}", rand::random::<u64>()).into());
    }
    let judged_mounts: Vec<Value> = judged
        .into_iter()
        .map(|(name, mount)| {
            let (store, bucket, prefix) = (mount.ufs.store_name(), &mount.bucket, &mount.prefix);
            json!({ "mount": name, "store": store, "bucket": bucket, "prefix": prefix })
        })
        .collect();
    let tenant = identity.tenant().tenant_name();
    let job = json!({ "job": spec, "tenant": tenant, "judged_mounts": judged_mounts });
    Ok(job.to_string().into())
}

/// Judges one path of a job. Returns the bucket that it names, and the mount it was judged by.
fn judge_path<'a>(
    path: &'a Value,
    identity: &AuthIdentity,
    mounts: &MountTable,
) -> Result<(&'a str, Arc<MountedBucket>), PreloadAnswer> {
    let text = path.as_str().and_then(|path| path.strip_prefix("s3://"));
    let (bucket, key) =
        text.map(|rest| rest.split_once('/').unwrap_or((rest, ""))).ok_or_else(|| {
            let reason = format!("{path} is not s3://BUCKET/KEY");
            refuse(StatusCode::BAD_REQUEST, "malformed", &reason)
        })?;
    let mount = mounts
        .resolve_bucket(bucket)
        .filter(|mount| identity.allows_right(&mount.name, key, AccessRight::warm));
    let mount = mount.ok_or_else(|| {
        let reason = format!("{path} needs the right \"warm\" in the gateway's identities file");
        refuse(StatusCode::FORBIDDEN, "denied", &reason)
    })?;
    Ok((bucket, mount))
}

#[cfg(test)]
mod tests;
