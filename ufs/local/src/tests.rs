//! Tests of promises that only this store makes: crashes, files, readers beside writers.
//! `tests/store_conformance` has the duties of every store.
#![allow(clippy::unwrap_used)]

mod crash;
mod files;
mod listing;
mod measured;
mod readers;
mod wire;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use s3s::dto::*;
use s3s::{S3, S3Request, S3Result};

use super::{LocalError, LocalOptions, LocalStore};

fn options(root: &Path) -> LocalOptions {
    LocalOptions { sync: false, part_bytes_min: 1, ..LocalOptions::new(root) }
}

/// Opens a store. Waits for its lock: a process that another test is about to start has this one's
/// open files until its program begins.
fn open(root: &Path) -> LocalStore {
    open_with(options(root))
}

fn open_with(options: LocalOptions) -> LocalStore {
    let began = Instant::now();
    loop {
        match LocalStore::open_store(options.clone()) {
            Err(LocalError::Locked { .. }) if began.elapsed() < Duration::from_secs(20) => {
                std::thread::sleep(Duration::from_millis(5));
            }
            opened => return opened.unwrap(),
        }
    }
}

async fn open_with_bucket(root: &Path) -> LocalStore {
    let store = open(root);
    let input = CreateBucketInput { bucket: "bucket".to_owned(), ..Default::default() };
    store.create_bucket(req(input)).await.unwrap();
    store
}

fn req<T>(input: T) -> S3Request<T> {
    S3Request {
        input,
        method: http::Method::GET,
        uri: http::Uri::from_static("/"),
        headers: http::HeaderMap::new(),
        extensions: http::Extensions::new(),
        credentials: None,
        region: None,
        service: None,
        trailing_headers: None,
    }
}

/// Bytes that name themselves: the seed, repeated, so that any mixture of two versions shows.
fn content(seed: u64, len: usize) -> Vec<u8> {
    seed.to_le_bytes().iter().copied().cycle().take(len).collect()
}

fn body(bytes: Vec<u8>) -> Option<StreamingBlob> {
    let pieces: Vec<_> =
        bytes.chunks(60_000).map(|c| Ok::<_, std::io::Error>(Bytes::copy_from_slice(c))).collect();
    Some(StreamingBlob::wrap(futures::stream::iter(pieces)))
}

async fn put(store: &LocalStore, key: &str, bytes: Vec<u8>) -> S3Result<()> {
    let input = PutObjectInput {
        bucket: "bucket".to_owned(),
        key: key.to_owned(),
        content_length: Some(bytes.len() as i64),
        body: body(bytes),
        ..Default::default()
    };
    store.put_object(req(input)).await.map(drop)
}

async fn start_get(store: &LocalStore, key: &str) -> S3Result<StreamingBlob> {
    let input =
        GetObjectInput { bucket: "bucket".to_owned(), key: key.to_owned(), ..Default::default() };
    Ok(store.get_object(req(input)).await?.output.body.unwrap())
}

async fn read_on(mut body: StreamingBlob) -> Result<Vec<u8>, s3s::StdError> {
    let mut out = Vec::new();
    while let Some(piece) = body.next().await {
        out.extend_from_slice(&piece?);
    }
    Ok(out)
}

async fn get(store: &LocalStore, key: &str) -> S3Result<Vec<u8>> {
    Ok(read_on(start_get(store, key).await?).await.unwrap())
}

async fn delete(store: &LocalStore, key: &str) {
    let input = DeleteObjectInput {
        bucket: "bucket".to_owned(),
        key: key.to_owned(),
        ..Default::default()
    };
    store.delete_object(req(input)).await.unwrap();
}

async fn start_upload(store: &LocalStore, key: &str) -> String {
    let input = CreateMultipartUploadInput {
        bucket: "bucket".to_owned(),
        key: key.to_owned(),
        ..Default::default()
    };
    store.create_multipart_upload(req(input)).await.unwrap().output.upload_id.unwrap()
}

async fn upload_part(
    store: &LocalStore,
    key: &str,
    id: &str,
    number: i32,
    bytes: Vec<u8>,
) -> S3Result<CompletedPart> {
    let input = UploadPartInput {
        bucket: "bucket".to_owned(),
        key: key.to_owned(),
        upload_id: id.to_owned(),
        part_number: number,
        content_length: Some(bytes.len() as i64),
        body: body(bytes),
        ..Default::default()
    };
    let e_tag = store.upload_part(req(input)).await?.output.e_tag;
    Ok(CompletedPart { e_tag, part_number: Some(number), ..Default::default() })
}

async fn complete(
    store: &LocalStore,
    key: &str,
    id: &str,
    parts: Vec<CompletedPart>,
) -> S3Result<()> {
    let input = CompleteMultipartUploadInput {
        bucket: "bucket".to_owned(),
        key: key.to_owned(),
        upload_id: id.to_owned(),
        multipart_upload: Some(CompletedMultipartUpload { parts: Some(parts) }),
        ..Default::default()
    };
    store.complete_multipart_upload(req(input)).await.map(drop)
}

/// Every blob file.
fn blobs(root: &Path) -> Vec<PathBuf> {
    fn walk(folder: &Path, out: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { walk(&path, out) } else { out.push(path) }
        }
    }
    let mut out = Vec::new();
    walk(&root.join("data"), &mut out);
    out.sort();
    out
}

/// Waits until a condition holds; files are removed behind the operations' backs.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what} did not happen in 20 s");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
