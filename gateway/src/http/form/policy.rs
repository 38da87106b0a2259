//! Decides who may upload by a form, and what: checks the signature over the form's policy, and the
//! policy's conditions ("Creating a POST Policy", S3 reference). Does not check the identity's
//! rights: the operation does, as for any write.
//!
//! s3s's own check is not used: it ends every form 15 minutes after its signature. A form is valid
//! as long as its policy says.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use s3s::post_policy::{PostPolicy, PostPolicyCondition as Condition};
use s3s::{S3Error, S3ErrorCode, S3Result};
use serde::Deserialize;
use sha1::Sha1;
use sha2::Sha256;
use subtle::ConstantTimeEq;
use time::format_description::FormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

use super::fields::MultipartForm;
use crate::auth::{AuthIdentity, IdentityStore};
use crate::http::sigv2_demands;
use crate::s3_errors::access_denied;

/// `20260131T235959Z`.
const DATE: &[FormatItem<'_>] = format_description!("[year][month][day]T[hour][minute][second]Z");
const DATE_BYTES: usize = 16;
const DAY_BYTES: usize = 8;

/// Fields that need no condition in the policy.
const EXEMPT: [&str; 4] = ["policy", "x-amz-signature", "signature", "awsaccesskeyid"];

/// Returns the identity that has signed the form.
pub(super) fn find_signer(
    form: &MultipartForm,
    identities: &IdentityStore,
    v2: bool,
) -> S3Result<Arc<AuthIdentity>> {
    let field = |name: &str| form.get(name).ok_or_else(|| missing_field(name));
    let (access_key, signed) = if form.get("x-amz-signature").is_some() {
        if field("x-amz-algorithm")? != "AWS4-HMAC-SHA256" {
            return Err(argument_error("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\""));
        }
        let scope: Vec<&str> = field("x-amz-credential")?.rsplitn(5, '/').collect();
        let [end, service, region, day, access_key] = scope[..] else {
            return Err(argument_error(
                "the field x-amz-credential is not ACCESS_KEY/DATE/REGION/s3/aws4_request",
            ));
        };
        let date = field("x-amz-date")?;
        if date.len() != DATE_BYTES || PrimitiveDateTime::parse(date, DATE).is_err() {
            return Err(argument_error(
                "X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"",
            ));
        }
        if (end, service) != ("aws4_request", "s3") || date[..DAY_BYTES] != *day {
            return Err(argument_error(
                "the field x-amz-credential does not fit x-amz-date, or is not for s3",
            ));
        }
        (access_key, FormSignature::V4 { day, region })
    } else if form.get("signature").is_some() {
        sigv2_demands::ensure_enabled(v2)?;
        (field("awsaccesskeyid")?, FormSignature::V2)
    } else {
        return Err(access_denied());
    };
    let identity = identities.get(access_key).ok_or_else(|| {
        let message = "The AWS Access Key Id you provided does not exist in our records.";
        S3Error::with_message(S3ErrorCode::InvalidAccessKeyId, message)
    })?;
    let policy = field("policy")?;
    let (given, right) = match signed {
        FormSignature::V4 { day, region } => {
            (field("x-amz-signature")?, sign_policy_v4(identity.secret_key(), day, region, policy))
        }
        FormSignature::V2 => (
            field("signature")?,
            BASE64.encode(compute_hmac::<Hmac<Sha1>>(identity.secret_key().as_bytes(), policy)),
        ),
    };
    if !bool::from(given.as_bytes().ct_eq(right.as_bytes())) {
        return Err(S3ErrorCode::SignatureDoesNotMatch.into());
    }
    Ok(identity)
}

enum FormSignature<'a> {
    V4 { day: &'a str, region: &'a str },
    V2,
}

fn compute_hmac<M: Mac + KeyInit>(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn sign_policy_v4(secret: &str, day: &str, region: &str, policy: &str) -> String {
    let key = compute_hmac::<Hmac<Sha256>>(format!("AWS4{secret}").as_bytes(), day);
    let key = [region, "s3", "aws4_request"]
        .iter()
        .fold(key, |key, text| compute_hmac::<Hmac<Sha256>>(&key, text));
    hex::encode(compute_hmac::<Hmac<Sha256>>(&key, policy))
}

/// Checks the whole form against its policy.
pub(super) fn check_form(form: &MultipartForm, bucket: &str, now: OffsetDateTime) -> S3Result<()> {
    check_size(&check_fields(form, bucket, now)?, form.file.len() as u64)
}

/// Checks the file's length against the policy.
pub(super) fn check_size(policy: &PostPolicy, size: u64) -> S3Result<()> {
    for condition in &policy.conditions {
        match condition {
            Condition::ContentLengthRange { max, .. } if size > *max => return Err(too_large()),
            Condition::ContentLengthRange { min, .. } if size < *min => {
                let message = "Your proposed upload is smaller than the minimum allowed size";
                return Err(S3Error::with_message(S3ErrorCode::EntityTooSmall, message));
            }
            Condition::Eq { .. }
            | Condition::StartsWith { .. }
            | Condition::ContentLengthRange { .. } => {}
        }
    }
    Ok(())
}

/// Checks the form against its policy, except for the file, which need not be there. `bucket` is
/// the one that the form was sent to.
pub(super) fn check_fields(
    form: &MultipartForm,
    bucket: &str,
    now: OffsetDateTime,
) -> S3Result<PostPolicy> {
    let text = form.get("policy").ok_or_else(|| missing_field("policy"))?;
    let policy =
        PostPolicy::from_base64(text).map_err(|error| invalid_policy(&error.to_string()))?;
    check_expiration(text)?;
    if now >= OffsetDateTime::from(policy.expiration.clone()) {
        return Err(denied_error("Policy expired."));
    }
    let value = |field: &str| match (field, form.get(field)) {
        ("bucket", Some(given)) if given != bucket => Default::default(),
        ("bucket", _) => bucket,
        (_, given) => given.unwrap_or_default(),
    };
    for condition in &policy.conditions {
        match condition {
            Condition::Eq { field, value: wanted } if value(field) != wanted => {
                return Err(denied_error(&format!(
                    "Policy Condition failed: [\"eq\", \"${field}\", \"{wanted}\"]"
                )));
            }
            Condition::StartsWith { field, prefix }
                if !starts_with(field, value(field), prefix) =>
            {
                return Err(denied_error(&format!(
                    "Policy Condition failed: [\"starts-with\", \"${field}\", \"{prefix}\"]"
                )));
            }
            Condition::Eq { .. }
            | Condition::StartsWith { .. }
            | Condition::ContentLengthRange { .. } => {}
        }
    }
    let spoken_of = |name: &str| {
        policy.conditions.iter().any(|condition| match condition {
            Condition::Eq { field, .. } | Condition::StartsWith { field, .. } => field == name,
            Condition::ContentLengthRange { .. } => false,
        })
    };
    match form.fields.iter().find(|(name, _)| {
        !EXEMPT.contains(&name.as_str()) && !name.starts_with("x-ignore-") && !spoken_of(name)
    }) {
        Some((name, _)) => Err(denied_error(&format!("Extra input fields: {name}"))),
        None => Ok(policy),
    }
}

/// Checks the expiration's format: S3 takes ISO 8601 alone. s3s also takes any character between
/// day and time, and small letters: `2030-01-01 00:00:00z`.
fn check_expiration(policy: &str) -> S3Result<()> {
    #[derive(Deserialize)]
    struct PolicyExpiration {
        expiration: String,
    }
    let document = BASE64.decode(policy).map_err(|error| invalid_policy(&error.to_string()))?;
    let PolicyExpiration { expiration } =
        serde_json::from_slice(&document).map_err(|error| invalid_policy(&error.to_string()))?;
    if expiration.as_bytes().get(10) == Some(&b'T') && !expiration.contains(char::is_lowercase) {
        return Ok(());
    }
    Err(invalid_policy(&format!("Invalid 'expiration' value: '{expiration}'")))
}

fn invalid_policy(why: &str) -> S3Error {
    S3Error::with_message(S3ErrorCode::InvalidPolicyDocument, format!("Invalid Policy: {why}"))
}

/// Checks a prefix condition. In a Content-Type that is a list, each part has to have the prefix.
fn starts_with(field: &str, value: &str, prefix: &str) -> bool {
    match field {
        "content-type" => value.split(',').all(|part| part.trim_start().starts_with(prefix)),
        _ => value.starts_with(prefix),
    }
}

pub(super) fn too_large() -> S3Error {
    S3Error::with_message(
        S3ErrorCode::EntityTooLarge,
        "Your proposed upload exceeds the maximum allowed size",
    )
}

fn denied_error(why: &str) -> S3Error {
    S3Error::with_message(S3ErrorCode::AccessDenied, format!("Invalid according to Policy: {why}"))
}

pub(super) fn argument_error(message: &str) -> S3Error {
    S3Error::with_message(S3ErrorCode::InvalidArgument, message.to_owned())
}

pub(super) fn missing_field(name: &str) -> S3Error {
    argument_error(&format!(
        "Bucket POST must contain a field named '{name}'.  If it is specified, please check the \
        order of the fields."
    ))
}

#[cfg(test)]
mod tests;
