//! One read as a careful client does it, and what may be said of its outcome: never only whether it
//! succeeded, always of which version the bytes are that came.

use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::primitives::ByteStream;
use bytes::{Bytes, BytesMut};

use crate::content;

/// Longer than any deadline of a test's cluster: an answer that takes longer never comes.
const WITHIN: Duration = Duration::from_secs(60);

/// How a request ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// All of it, by what the answer said of its own length.
    Whole(Bytes),
    /// It began well and broke off; what had come until then.
    Cut(Bytes),
    /// An error of S3. The code is empty where there was none.
    Refused { status: u16, code: String, retry_after: bool },
    /// The connection ended without an answer.
    Broken,
}

impl Seen {
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Fails unless all of this version came.
    pub fn is_whole(&self, key: &str, version: u64, length: usize) -> Result<(), String> {
        match self {
            Self::Whole(body) if body.len() == length => content::check(key, version, 0, body),
            Self::Whole(body) => Err(format!("{key}: {} bytes instead of {length}", body.len())),
            Self::Cut(body) => Err(format!("{key}: cut after {} of {length} bytes", body.len())),
            other => Err(format!("{key}: {other:?}")),
        }
    }

    /// Fails if a byte came that is not this version's, or if a body that ended well is not all of
    /// it. Errors pass.
    pub fn is_never_wrong(&self, key: &str, version: u64, length: usize) -> Result<(), String> {
        match self {
            Self::Whole(_) => self.is_whole(key, version, length),
            Self::Cut(body) => content::check(key, version, 0, body),
            Self::Refused { .. } | Self::Broken => Ok(()),
        }
    }
}

/// The same client without the SDK's own retries, which would hide what the gateway answers.
pub fn once(client: &Client) -> Client {
    Client::from_conf(client.config().to_builder().retry_config(RetryConfig::disabled()).build())
}

pub async fn get(client: &Client, bucket: &str, key: &str) -> Seen {
    let reading = async {
        match client.get_object().bucket(bucket).key(key).send().await {
            Ok(answer) => collect(answer.body, BytesMut::new()).await,
            Err(error) => failed(&error),
        }
    };
    tokio::time::timeout(WITHIN, reading).await.expect("a read ends")
}

/// A read whose first MiB has come, and whose client then waits: [`collect`] takes the rest.
pub async fn begin(client: &Client, bucket: &str, key: &str) -> (ByteStream, BytesMut) {
    let answer = client.get_object().bucket(bucket).key(key).send().await.expect("a read begins");
    let (mut stream, mut body) = (answer.body, BytesMut::new());
    while body.len() < 1 << 20 {
        let piece = stream.next().await.expect("a body of a MiB and more");
        body.extend_from_slice(&piece.expect("a body goes on"));
    }
    (stream, body)
}

/// The rest of a body whose beginning was taken already.
pub async fn collect(mut stream: ByteStream, mut body: BytesMut) -> Seen {
    loop {
        match stream.next().await {
            None => return Seen::Whole(body.freeze()),
            Some(Ok(piece)) => body.extend_from_slice(&piece),
            Some(Err(_)) => return Seen::Cut(body.freeze()),
        }
    }
}

/// A PUT of that version; `None` is its success.
pub async fn put(
    client: &Client,
    bucket: &str,
    key: &str,
    version: u64,
    length: usize,
) -> Option<Seen> {
    let put = client
        .put_object()
        .bucket(bucket)
        .key(key)
        .body(content::body(key, version, length).into());
    let done = tokio::time::timeout(WITHIN, put.send()).await.expect("a write ends");
    done.err().map(|error| failed(&error))
}

/// The same, which has to succeed.
pub async fn put_surely(client: &Client, bucket: &str, key: &str, version: u64, length: usize) {
    assert_eq!(put(client, bucket, key, version, length).await, None, "put {key}");
}

pub async fn delete(client: &Client, bucket: &str, key: &str) -> Option<Seen> {
    let delete = client.delete_object().bucket(bucket).key(key);
    let done = tokio::time::timeout(WITHIN, delete.send()).await.expect("a deletion ends");
    done.err().map(|error| failed(&error))
}

fn failed<E>(error: &SdkError<E>) -> Seen
where
    SdkError<E>: ProvideErrorMetadata,
{
    let Some(raw) = error.raw_response() else { return Seen::Broken };
    Seen::Refused {
        status: raw.status().as_u16(),
        code: error.code().unwrap_or_default().to_owned(),
        retry_after: raw.headers().get("retry-after").is_some(),
    }
}
