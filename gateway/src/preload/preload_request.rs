//! Judges a request about preload jobs, and makes of it what the coordinators are asked.
//!
//! What is passed on is written anew from what was judged: a document that two readers could take
//! differently would let its sender past the rights.

use bytes::Bytes;
use http::{Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

use super::{PATH, PreloadAnswer, PreloadQuestion, refuse};
use crate::auth::AuthIdentity;
use crate::mount::MountTable;
use crate::operation_table::AccessRight;

/// Parameters of questions that are passed on.
const PARAMETERS: [&str; 4] = ["news", "wait_ms", "limit", "after"];
/// What stands in a query as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A request about jobs, whose signature holds.
pub(super) struct SignedPreload<'a> {
    pub method: &'a Method,
    pub path: &'a str,
    pub query: &'a str,
    pub body: &'a [u8],
}

/// Makes the question of a request, or its refusal.
pub(super) fn judge_request(
    request: &SignedPreload<'_>,
    identity: &AuthIdentity,
    mounts: &MountTable,
) -> Result<PreloadQuestion, PreloadAnswer> {
    let id = request.path.strip_prefix(PATH).and_then(|rest| match rest {
        "" => Some(None),
        rest => rest.strip_prefix('/').filter(|id| is_job_id(id)).map(Some),
    });
    let nothing_here = || refuse(StatusCode::NOT_FOUND, "malformed", "there are no jobs here");
    let id = id.ok_or_else(nothing_here)?;
    let (target, body) = match (request.method, id) {
        (&Method::POST, None) => (PATH.to_owned(), judge_job(request.body, identity, mounts)?),
        (&Method::GET, None) => (PATH.to_owned(), Bytes::new()),
        (&Method::GET | &Method::DELETE, Some(id)) => (format!("{PATH}/{id}"), Bytes::new()),
        _ => {
            let reason = "jobs are begun by POST, seen by GET and ended by DELETE";
            return Err(refuse(StatusCode::METHOD_NOT_ALLOWED, "malformed", reason));
        }
    };
    // The owner comes first: the coordinators take the first of two.
    let owner = utf8_percent_encode(identity.identity_name(), PLAIN);
    let mut path_and_query = format!("{target}?owner={owner}");
    for (name, value) in request.query.split('&').filter_map(|pair| pair.split_once('=')) {
        let is_plain =
            value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        if PARAMETERS.contains(&name) && is_plain {
            path_and_query.push_str(&format!("&{name}={value}"));
        }
    }
    Ok(PreloadQuestion { method: request.method.clone(), path_and_query, body })
}

fn is_job_id(id: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !id.is_empty() && id.len() <= 64 && !id.starts_with('.') && id.bytes().all(fits)
}

/// Judges a job's description, and writes it anew.
fn judge_job(
    body: &[u8],
    identity: &AuthIdentity,
    mounts: &MountTable,
) -> Result<Bytes, PreloadAnswer> {
    let malformed = |reason: &str| refuse(StatusCode::BAD_REQUEST, "malformed", reason);
    let denied = |reason: &str| refuse(StatusCode::FORBIDDEN, "denied", reason);
    let spec: Map<String, Value> = serde_json::from_slice(body)
        .map_err(|error| malformed(&format!("the job is no JSON object: {error}")))?;
    for (name, plain, reason) in [
        ("action", Some("load"), "only operators evict and unpin; leave out action"),
        ("pin_ttl", None, "only operators pin; leave out pin_ttl"),
        (
            "manifest",
            None,
            "nobody could say here whether you may warm what a manifest lists; name it in paths \
            and prefixes",
        ),
    ] {
        let is_plain = |value: &Value| value.is_null() || plain.is_some_and(|plain| value == plain);
        if !spec.get(name).is_none_or(is_plain) {
            return Err(denied(reason));
        }
    }
    if spec.get("priority").is_some_and(|priority| priority == "high") {
        return Err(denied("only operators' jobs have priority high; ask for normal"));
    }
    for list in ["paths", "prefixes"] {
        let named = match spec.get(list) {
            None => continue,
            Some(Value::Array(named)) => named,
            Some(_) => return Err(malformed(&format!("{list} is no list"))),
        };
        for path in named {
            let text = path.as_str().and_then(|path| path.strip_prefix("s3://"));
            let (bucket, key) = text
                .map(|rest| rest.split_once('/').unwrap_or((rest, "")))
                .ok_or_else(|| malformed(&format!("{path} is not s3://BUCKET/KEY")))?;
            let may_warm = mounts
                .resolve_bucket(bucket)
                .is_some_and(|mount| identity.allows_right(&mount.name, key, AccessRight::warm));
            if !may_warm {
                return Err(denied(&format!(
                    "{path} needs the right \"warm\" in the gateway's identities file"
                )));
            }
        }
    }
    Ok(Value::Object(spec).to_string().into())
}

#[cfg(test)]
mod tests;
