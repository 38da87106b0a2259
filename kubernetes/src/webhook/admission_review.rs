//! The documents of `admission.k8s.io/v1`: reads a review, writes its answer. Decides nothing about
//! pods. Never refuses a pod: whoever asks gets it with or without a patch.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::pod_injection::PodInjection;
use super::settings::WebhookSettings;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
/// Longest id of a review that is repeated; API servers send UUIDs of 36 letters.
const UID_LETTERS_MAX: usize = 128;

/// Why a body is no review that can be answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReviewError {
    #[error("the body is no AdmissionReview")]
    Malformed(#[source] serde_json::Error),
    #[error("only {KIND} of {API_VERSION} is answered here, and this is {found:?}")]
    OtherVersion { found: String },
    #[error("the AdmissionReview has no request")]
    NoRequest,
    #[error("the request's uid has no letters, or more than {UID_LETTERS_MAX}")]
    Uid,
}

/// A review, as far as it is read. What else it holds is not looked at.
#[derive(Debug, Deserialize)]
struct AdmissionReviewDocument {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    request: Option<AdmissionRequest>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionRequest {
    uid: String,
    #[serde(default)]
    resource: AdmissionResource,
    #[serde(default)]
    sub_resource: Option<String>,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    object: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AdmissionResource {
    group: String,
    version: String,
    resource: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionAnswerDocument<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: AdmissionAnswer<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionAnswer<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    warnings: &'a [String],
}

/// An answered review.
#[derive(Debug)]
pub(super) struct AnsweredReview {
    pub body: Vec<u8>,
    pub is_patched: bool,
}

impl AdmissionRequest {
    fn creates_pod(&self) -> bool {
        let AdmissionResource { group, version, resource } = &self.resource;
        let resource = (group.as_str(), version.as_str(), resource.as_str());
        resource == ("", "v1", "pods")
            && self.operation == "CREATE"
            && self.sub_resource.as_deref().is_none_or(str::is_empty)
    }
}

/// Answers the review in `body`. What is no creation of a pod is let pass as it is.
pub(super) fn answer_review(
    body: &[u8],
    settings: &WebhookSettings,
) -> Result<AnsweredReview, ReviewError> {
    let review: AdmissionReviewDocument =
        serde_json::from_slice(body).map_err(ReviewError::Malformed)?;
    if (review.api_version.as_str(), review.kind.as_str()) != (API_VERSION, KIND) {
        let found: String =
            format!("{} {}", review.api_version, review.kind).chars().take(100).collect();
        return Err(ReviewError::OtherVersion { found });
    }
    let request = review.request.ok_or(ReviewError::NoRequest)?;
    if request.uid.is_empty() || request.uid.len() > UID_LETTERS_MAX {
        return Err(ReviewError::Uid);
    }
    let PodInjection { operations, warnings } = match request.creates_pod() {
        true => settings.plan_injection(&request.object),
        false => PodInjection::default(),
    };
    let is_patched = !operations.is_empty();
    let patch = is_patched.then(|| BASE64_STANDARD.encode(Value::from(operations).to_string()));
    let document = AdmissionAnswerDocument {
        api_version: API_VERSION,
        kind: KIND,
        response: AdmissionAnswer {
            uid: &request.uid,
            allowed: true,
            patch_type: is_patched.then_some("JSONPatch"),
            patch,
            warnings: &warnings,
        },
    };
    let body = serde_json::to_vec(&document).map_err(ReviewError::Malformed)?;
    Ok(AnsweredReview { body, is_patched })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn review(object: Value) -> Value {
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "705ab4f5", "operation": "CREATE", "object": object,
                "resource": { "group": "", "version": "v1", "resource": "pods" },
            },
        })
    }

    fn answer(review: &Value) -> Value {
        let answered =
            answer_review(review.to_string().as_bytes(), &WebhookSettings::default()).unwrap();
        serde_json::from_slice(&answered.body).unwrap()
    }

    #[test]
    fn a_pod_is_allowed_with_a_json_patch() {
        let pod = json!({ "spec": { "containers": [{ "name": "train" }] } });
        let answer = answer(&review(pod));
        let response = &answer["response"];
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(
            (&response["uid"], &response["allowed"], &response["patchType"]),
            (&json!("705ab4f5"), &json!(true), &json!("JSONPatch"))
        );
        let patch = BASE64_STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
        let patch: Value = serde_json::from_slice(&patch).unwrap();
        assert_eq!(patch[0]["op"], "add");
        assert_eq!(patch[0]["path"], "/spec/containers/0/env");
    }

    #[test]
    fn what_creates_no_pod_passes_as_it_is() {
        let pod = || json!({ "spec": { "containers": [{ "name": "train" }] } });
        let mut others = [review(pod()), review(pod()), review(pod()), review(json!(7))];
        others[0]["request"]["operation"] = json!("UPDATE");
        others[1]["request"]["resource"]["resource"] = json!("deployments");
        others[2]["request"]["subResource"] = json!("ephemeralcontainers");
        for other in others {
            let response = &answer(&other)["response"];
            assert_eq!(response["allowed"], true, "{other}");
            assert_eq!(response.get("patch"), None, "{other}");
        }
    }

    #[test]
    fn what_is_no_review_is_an_error_that_says_why() {
        let refusal =
            |body: &[u8]| answer_review(body, &WebhookSettings::default()).unwrap_err().to_string();
        let deep = "[".repeat(100_000);
        for body in [&b""[..], b"{", b"[]", b"\xff", b"{\"kind\":3}", deep.as_bytes()] {
            assert!(refusal(body).contains("no AdmissionReview"), "{body:?}");
        }
        let mut old = review(json!({}));
        old["apiVersion"] = json!("admission.k8s.io/v1beta1");
        assert!(refusal(old.to_string().as_bytes()).contains("v1beta1"));
        let mut empty = review(json!({}));
        empty["request"] = Value::Null;
        assert!(refusal(empty.to_string().as_bytes()).contains("no request"));
        let mut long = review(json!({}));
        long["request"]["uid"] = json!("x".repeat(129));
        assert!(refusal(long.to_string().as_bytes()).contains("uid"));
    }
}
