//! Random operations over several gateways against a reference model: a map from key to version and
//! length.
//!
//! One operation at a time, each through a random gateway, so that the model knows the only right
//! answer.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart, Delete, ObjectIdentifier};
use rand::RngExt;
use rand::rngs::SmallRng;
use verbs3_tests::{Cluster, Gateway, content, seed};

/// Names that trip up path handling; all in one bucket.
const KEYS: [&str; 10] = [
    "a",
    "a/b",
    "a/b/",
    "a//b",
    "dir/ü ñ+%25",
    "x y",
    "x+y",
    "x%2Fy",
    "z/deep/er/and/deeper",
    "\u{65e5}\u{672c}.bin",
];
const LENGTHS: [usize; 9] =
    [0, 1, 4095, 65_536, (256 << 10) - 1, (256 << 10) + 1, 100_000, 4 << 20, (4 << 20) + 5000];
/// S3's smallest part that is not the last.
const PART_BYTES: usize = 5 << 20;

/// What an object is: the content is a function of these. A copy keeps the content of its source.
#[derive(Debug, Clone, PartialEq)]
struct Object {
    content_key: String,
    version: u64,
    length: usize,
}

struct Run {
    gateways: Vec<Gateway>,
    bucket: String,
    model: BTreeMap<String, Object>,
    versions: u64,
    rng: SmallRng,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_operations_agree_with_the_model() {
    let seed = seed::from_environment();
    let cluster = Cluster::builder().gateways(2).workers(2).start().await.unwrap();
    let bucket = cluster.bucket("model").await.unwrap();
    let mut run = Run {
        gateways: cluster.gateways(),
        bucket,
        model: BTreeMap::new(),
        versions: 0,
        rng: seed::rng(seed, 0),
    };
    for step in 0..seed::rounds(300) {
        run.step().await.unwrap_or_else(|problem| panic!("SEED={seed} step {step}: {problem}"));
    }
    for key in KEYS {
        run.check_get(key, None)
            .await
            .unwrap_or_else(|problem| panic!("SEED={seed} at the end: {problem}"));
    }
    cluster.stop().await.unwrap();
}

impl Run {
    async fn step(&mut self) -> Result<(), String> {
        let key = KEYS[self.rng.random_range(0..KEYS.len())];
        match self.rng.random_range(0..100) {
            0..25 => self.put(key).await,
            25..30 => self.multipart(key).await,
            30..37 => self.copy(key).await,
            37..44 => self.delete(key).await,
            44..47 => self.delete_many().await,
            47..67 => self.check_get(key, None).await,
            67..82 => {
                let first = self.rng.random_range(0..5 << 20);
                let length = self.rng.random_range(1..1 << 20);
                self.check_get(key, Some((first, first + length - 1))).await
            }
            82..92 => self.check_head(key).await,
            _ => self.check_list().await,
        }
    }

    fn gateway(&mut self) -> Gateway {
        let index = self.rng.random_range(0..self.gateways.len());
        self.gateways[index].clone()
    }

    fn new_object(&mut self, key: &str, length: usize) -> Object {
        self.versions += 1;
        Object { content_key: key.to_owned(), version: self.versions, length }
    }

    async fn put(&mut self, key: &str) -> Result<(), String> {
        let length = LENGTHS[self.rng.random_range(0..LENGTHS.len())];
        let object = self.new_object(key, length);
        let body = content::body(key, object.version, length);
        let put = self.gateway().client.put_object().bucket(&self.bucket).key(key);
        put.body(body.into()).send().await.map_err(|e| format!("put {key}: {e:?}"))?;
        self.model.insert(key.to_owned(), object);
        Ok(())
    }

    async fn multipart(&mut self, key: &str) -> Result<(), String> {
        let object = self.new_object(key, PART_BYTES + 12_345);
        let body = content::body(key, object.version, object.length);
        let (bucket, fail) =
            (self.bucket.clone(), |what: &str, e: String| format!("{what} {key}: {e}"));
        let started =
            self.gateway().client.create_multipart_upload().bucket(&bucket).key(key).send().await;
        let id = started
            .map_err(|e| fail("create multipart", format!("{e:?}")))?
            .upload_id
            .ok_or("no upload id")?;
        let mut parts = Vec::new();
        for (number, range) in [(1, 0..PART_BYTES), (2, PART_BYTES..object.length)] {
            let upload = self
                .gateway()
                .client
                .upload_part()
                .bucket(&bucket)
                .key(key)
                .upload_id(&id)
                .part_number(number);
            let done = upload
                .body(body.slice(range).into())
                .send()
                .await
                .map_err(|e| fail("upload part", format!("{e:?}")))?;
            parts.push(CompletedPart::builder().part_number(number).set_e_tag(done.e_tag).build());
        }
        // The old object stays visible until completion.
        self.check_get(key, None).await?;
        let upload = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
        let complete = self
            .gateway()
            .client
            .complete_multipart_upload()
            .bucket(&bucket)
            .key(key)
            .upload_id(&id);
        complete
            .multipart_upload(upload)
            .send()
            .await
            .map_err(|e| fail("complete", format!("{e:?}")))?;
        self.model.insert(key.to_owned(), object);
        Ok(())
    }

    async fn copy(&mut self, key: &str) -> Result<(), String> {
        let Some(source) = self.model.keys().nth(self.rng.random_range(0..KEYS.len())).cloned()
        else {
            return Ok(());
        };
        if source == key {
            return Ok(());
        }
        let encoded: String = source.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let copy = self.gateway().client.copy_object().bucket(&self.bucket).key(key);
        let copy = copy.copy_source(format!("{}/{encoded}", self.bucket));
        copy.send().await.map_err(|e| format!("copy {source} to {key}: {e:?}"))?;
        let object = self.model[&source].clone();
        self.model.insert(key.to_owned(), object);
        Ok(())
    }

    async fn delete(&mut self, key: &str) -> Result<(), String> {
        let delete = self.gateway().client.delete_object().bucket(&self.bucket).key(key);
        delete.send().await.map_err(|e| format!("delete {key}: {e:?}"))?;
        self.model.remove(key);
        Ok(())
    }

    async fn delete_many(&mut self) -> Result<(), String> {
        let keys: Vec<&str> = KEYS.iter().copied().filter(|_| self.rng.random_bool(0.3)).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let objects =
            keys.iter().map(|key| ObjectIdentifier::builder().key(*key).build().unwrap()).collect();
        let delete = Delete::builder().set_objects(Some(objects)).build().unwrap();
        let answer =
            self.gateway().client.delete_objects().bucket(&self.bucket).delete(delete).send().await;
        let answer = answer.map_err(|e| format!("delete {keys:?}: {e:?}"))?;
        if !answer.errors().is_empty() {
            return Err(format!("delete {keys:?}: {:?}", answer.errors()));
        }
        for key in keys {
            self.model.remove(key);
        }
        Ok(())
    }

    async fn check_get(&mut self, key: &str, range: Option<(usize, usize)>) -> Result<(), String> {
        let gateway = self.gateway();
        let mut get = gateway.client.get_object().bucket(&self.bucket).key(key);
        if let Some((first, last)) = range {
            get = get.range(format!("bytes={first}-{last}"));
        }
        let answer = get.send().await;
        let place = format!("get {key} {range:?} through {}", gateway.endpoint);
        match (self.model.get(key), answer) {
            (None, Err(error))
                if error.raw_response().is_some_and(|raw| raw.status().as_u16() == 404) =>
            {
                Ok(())
            }
            (Some(object), Err(error))
                if error.raw_response().is_some_and(|raw| raw.status().as_u16() == 416)
                    && range.is_some_and(|(first, _)| first >= object.length) =>
            {
                Ok(())
            }
            (Some(object), Ok(answer)) => {
                let first = range.map_or(0, |(first, _)| first);
                let end = range.map_or(object.length, |(_, last)| object.length.min(last + 1));
                let body =
                    answer.body.collect().await.map_err(|e| format!("{place}: {e}"))?.into_bytes();
                if body.len() != end.saturating_sub(first) {
                    return Err(format!(
                        "{place}: {} bytes instead of {} ({object:?})",
                        body.len(),
                        end - first
                    ));
                }
                content::check(&object.content_key, object.version, first, &body)
                    .map_err(|e| format!("{place}: {e}"))
            }
            (expected, got) => {
                Err(format!("{place}: the model has {expected:?}, the answer is {got:?}"))
            }
        }
    }

    async fn check_head(&mut self, key: &str) -> Result<(), String> {
        let gateway = self.gateway();
        let answer = gateway.client.head_object().bucket(&self.bucket).key(key).send().await;
        match (self.model.get(key), answer) {
            (None, Err(error))
                if error.raw_response().is_some_and(|raw| raw.status().as_u16() == 404) =>
            {
                Ok(())
            }
            (Some(object), Ok(answer)) if answer.content_length() == Some(object.length as i64) => {
                Ok(())
            }
            (expected, got) => {
                Err(format!("head {key} through {}: {expected:?} but {got:?}", gateway.endpoint))
            }
        }
    }

    async fn check_list(&mut self) -> Result<(), String> {
        let gateway = self.gateway();
        let mut pages = gateway
            .client
            .list_objects_v2()
            .bucket(&self.bucket)
            .max_keys(3)
            .into_paginator()
            .send();
        let mut listed = Vec::new();
        while let Some(page) = pages.next().await {
            let page = page.map_err(|e| format!("list: {e:?}"))?;
            listed.extend(
                page.contents()
                    .iter()
                    .map(|o| (o.key().unwrap_or_default().to_owned(), o.size().unwrap_or(-1))),
            );
        }
        let expected: Vec<_> =
            self.model.iter().map(|(key, object)| (key.clone(), object.length as i64)).collect();
        if listed == expected {
            Ok(())
        } else {
            Err(format!("listing: {listed:?} instead of {expected:?}"))
        }
    }
}
