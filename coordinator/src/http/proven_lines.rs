//! A stream of JSON documents, a line each, every one with a proof of its own.

use std::convert::Infallible;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use http_body_util::StreamBody;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Frame;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use verbs3_coordinator_client::VerifiedProof;

/// Line of a stream: first its own proof, then the proved content.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ProvenLine")]
pub(super) struct ProvenLine<T> {
    proof: String,
    said: T,
}

/// Proves each of `lines`, which are JSON documents.
pub(super) fn prove_lines(
    verified: VerifiedProof,
    lines: BoxStream<'static, Bytes>,
) -> UnsyncBoxBody<Bytes, Infallible> {
    let VerifiedProof { secret, proof } = verified;
    let frames = lines.enumerate().map(move |(number, line)| {
        let proof = secret.prove_line(&proof, number as u64, &line);
        let said = serde_json::from_slice::<&RawValue>(&line).unwrap_or(RawValue::NULL);
        let mut text = serde_json::to_vec(&ProvenLine { proof, said }).unwrap_or_default();
        text.push(b'\n');
        Ok(Frame::data(Bytes::from(text)))
    });
    UnsyncBoxBody::new(StreamBody::new(frames))
}
