//! Fetches a job's list of objects a page at a time: named objects, those below a prefix, and those
//! in a manifest. The list is never whole in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::StreamExt;
use http::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use s3s::S3Error;
use s3s::dto::{ETag, EncodingType, ListObjectsV2Input, ListObjectsV2Output, Object, Timestamp};
use time::OffsetDateTime;
use verbs3_protocol::{ContentVersion, ListedAttributes};
use verbs3_ufs::raw_answer::{answer_of, observe_answer};
use verbs3_ufs::{ReadObject, RetryAdvice, Ufs, UfsError, s3_request};

use crate::api::{PreloadFailure, PreloadPhase};
use crate::failure_file::truncate_text;
use crate::job_record::PreloadListCursor;
use crate::mounts::{PreloadMount, PreloadMountTable};
use crate::plan::{PreloadPlan, PreloadSource, parse_object_path};

/// Bytes of a manifest that are read at once. This also bounds a line.
const CHUNK_BYTES: u64 = 1 << 20;

/// Object of the list.
#[derive(Clone)]
pub(crate) struct PreloadListItem {
    pub(crate) mount: Arc<PreloadMount>,
    /// Key in the UFS.
    pub(crate) key: String,
    /// Attributes that a listing shows; `None`: the object was named.
    pub(crate) shown: Option<ListedAttributes>,
}

impl PreloadListItem {
    pub(crate) fn client_path(&self) -> String {
        self.mount.client_path(&self.key)
    }

    /// Returns whether a listing shows another version than this.
    pub(crate) fn shows_another(&self, version: &ContentVersion) -> bool {
        self.shown.as_ref().is_some_and(|shown| {
            shown.etag.as_ref().is_some_and(|etag| *etag != version.etag)
                || shown.bytes.is_some_and(|bytes| bytes != version.bytes)
        })
    }

    /// Returns how old the home's attributes may be when the object is looked for. A listing
    /// already shows the version, so any age will do then.
    pub(crate) fn believed_ms(&self) -> u64 {
        if self.shown.is_some() { u64::MAX } else { self.mount.attributes_age_ms_max }
    }

    /// Returns the length that a listing shows.
    pub(crate) fn listed_bytes(&self) -> Option<u64> {
        self.shown.as_ref()?.bytes
    }
}

/// Page of the list, and the cursor of the next one.
#[derive(Clone)]
pub(crate) struct PreloadListPage {
    pub(crate) items: Vec<PreloadListItem>,
    /// Lines of a manifest that name no object.
    pub(crate) bad: Vec<PreloadFailure>,
    pub(crate) next: PreloadListCursor,
}

/// Pages of a short list, kept from counting so that loading need not fetch them again.
pub(crate) struct ShortListCache {
    pages: VecDeque<(PreloadListCursor, PreloadListPage)>,
    is_short: bool,
}

/// Most pages of a short list: 5,000 keys in pages of a listing's size, which is a few MiB, and one
/// page of named objects.
const SHORT_PAGES: usize = 6;

impl ShortListCache {
    pub(crate) fn new() -> Self {
        Self { pages: VecDeque::new(), is_short: true }
    }

    pub(crate) fn store_page(&mut self, cursor: &PreloadListCursor, page: &PreloadListPage) {
        if self.pages.len() == SHORT_PAGES {
            (self.pages, self.is_short) = (VecDeque::new(), false);
        }
        if self.is_short {
            self.pages.push_back((cursor.clone(), page.clone()));
        }
    }

    /// Takes the page at the cursor out of the cache, to load it.
    pub(crate) fn take_page(
        &mut self,
        phase: PreloadPhase,
        cursor: &PreloadListCursor,
    ) -> Option<PreloadListPage> {
        let is_next =
            phase == PreloadPhase::Load && self.pages.front().is_some_and(|(at, _)| at == cursor);
        is_next.then(|| self.pages.pop_front())?.map(|(_, page)| page)
    }
}

/// Reason why a page can't be fetched.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {fault}")]
pub(crate) struct ListError {
    what: String,
    fault: ListFault,
    /// A later try may succeed.
    pub(crate) again: bool,
}

/// What is wrong with a list, or with its store.
#[derive(Debug, thiserror::Error)]
enum ListFault {
    #[error("the ufs lists a key that is no text")]
    KeyNoText,
    #[error("the ufs lists the same keys again and again")]
    Repeated,
    #[error("the ufs says that there is more, and not where")]
    NoToken,
    #[error("it has no ETag")]
    NoEtag,
    #[error("the line at byte {offset} is longer than {CHUNK_BYTES} bytes, or no text")]
    Line { offset: u64 },
    #[error("the ufs answered {status}: {error}")]
    Listing { status: StatusCode, error: S3Error },
    #[error("{0}")]
    Ufs(UfsError),
}

impl ListError {
    fn new(what: &str, fault: ListFault) -> Self {
        Self { what: what.to_owned(), fault, again: false }
    }

    fn of_ufs(what: &str, error: UfsError) -> Self {
        let again = error.retry_advice() != RetryAdvice::Never;
        Self { again, ..Self::new(what, ListFault::Ufs(error)) }
    }
}

/// Fetches the page at the cursor; `None`: the list is over.
pub(crate) async fn fetch_page(
    plan: &PreloadPlan,
    mounts: &PreloadMountTable,
    cursor: &PreloadListCursor,
    keys_max: i32,
) -> Result<Option<PreloadListPage>, ListError> {
    match plan.sources.get(cursor.source) {
        None => Ok(None),
        Some(PreloadSource::Paths(paths)) => Ok(Some(take_paths_page(paths, cursor, keys_max))),
        Some(PreloadSource::Prefix(mount, prefix)) => {
            list_prefix_page(mount, prefix, cursor, keys_max).await.map(Some)
        }
        Some(PreloadSource::Manifest(mount, key)) => {
            read_manifest_page(mount, key, mounts, cursor, keys_max).await.map(Some)
        }
    }
}

fn take_paths_page(
    paths: &[(Arc<PreloadMount>, String)],
    cursor: &PreloadListCursor,
    keys_max: i32,
) -> PreloadListPage {
    let (from, most) = (cursor.offset as usize, keys_max.max(1) as usize);
    let items = paths.iter().skip(from).take(most);
    let items: Vec<PreloadListItem> = items
        .map(|(mount, key)| PreloadListItem { mount: mount.clone(), key: key.clone(), shown: None })
        .collect();
    let end = from + items.len();
    let next = match end < paths.len() {
        true => PreloadListCursor { offset: end as u64, ..cursor.clone() },
        false => cursor.of_next_source(),
    };
    PreloadListPage { items, bad: Vec::new(), next }
}

async fn list_prefix_page(
    mount: &Arc<PreloadMount>,
    prefix: &str,
    cursor: &PreloadListCursor,
    keys_max: i32,
) -> Result<PreloadListPage, ListError> {
    let what = format!("can't list {}", mount.client_path(prefix));
    let mut input = ListObjectsV2Input {
        bucket: mount.bucket.clone(),
        prefix: Some(prefix.to_owned()),
        start_after: cursor.after.clone(),
        max_keys: Some(keys_max),
        encoding_type: Some(EncodingType::from_static(EncodingType::URL)),
        ..ListObjectsV2Input::default()
    };
    loop {
        let output = request_listing(&mount.ufs, input.clone(), &what).await?;
        let is_url = output
            .encoding_type
            .as_ref()
            .is_some_and(|encoding| encoding.as_str() == EncodingType::URL);
        let mut items = Vec::new();
        let mut last = None;
        for object in output.contents.iter().flatten() {
            let key = object.key.as_deref().and_then(|key| decode_key(key, is_url));
            let Some(key) = key else {
                return Err(ListError::new(&what, ListFault::KeyNoText));
            };
            last = Some(key.clone());
            items.push(PreloadListItem {
                mount: mount.clone(),
                key,
                shown: Some(convert_listed_object(object)),
            });
        }
        if output.is_truncated != Some(true) {
            return Ok(PreloadListPage { items, bad: Vec::new(), next: cursor.of_next_source() });
        }
        if last.is_some() {
            if last <= cursor.after {
                return Err(ListError::new(&what, ListFault::Repeated));
            }
            return Ok(PreloadListPage {
                items,
                bad: Vec::new(),
                next: PreloadListCursor { after: last, ..cursor.clone() },
            });
        }
        // A page without keys that is not the last: only the store's own token leads further.
        let token = output.next_continuation_token;
        if token.is_none() || token == input.continuation_token {
            return Err(ListError::new(&what, ListFault::NoToken));
        }
        input.continuation_token = token;
    }
}

async fn request_listing(
    ufs: &Ufs,
    input: ListObjectsV2Input,
    what: &str,
) -> Result<ListObjectsV2Output, ListError> {
    let (result, raw) =
        observe_answer(ufs.s3_store().list_objects_v2(s3_request(Method::GET, input))).await;
    result.map(|response| response.output).map_err(|error| {
        let answer = answer_of(&error, raw);
        let again = answer.retry_advice() != RetryAdvice::Never;
        let fault = ListFault::Listing { status: answer.status, error };
        ListError { again, ..ListError::new(what, fault) }
    })
}

/// Decodes a key of a manifest or event. S3 writes a space as `+`.
fn decode_key(key: &str, is_url: bool) -> Option<String> {
    match is_url {
        true => Some(percent_decode_str(&key.replace('+', " ")).decode_utf8().ok()?.into_owned()),
        false => Some(key.to_owned()),
    }
}

fn convert_listed_object(object: &Object) -> ListedAttributes {
    let milliseconds = |time: &Timestamp| {
        i64::try_from(
            OffsetDateTime::from(time.clone()).unix_timestamp_nanos().div_euclid(1_000_000),
        )
        .ok()
    };
    ListedAttributes {
        etag: object.e_tag.as_ref().and_then(|etag| match etag {
            ETag::Strong(value) => Some(format!("\"{value}\"")),
            ETag::Weak(_) => None,
        }),
        bytes: object.size.and_then(|size| u64::try_from(size).ok()),
        last_modified_ms: object.last_modified.as_ref().and_then(milliseconds),
    }
}

/// Reads a page of a manifest in its first version, so that the job's list does not change.
async fn read_manifest_page(
    mount: &Arc<PreloadMount>,
    key: &str,
    mounts: &PreloadMountTable,
    cursor: &PreloadListCursor,
    keys_max: i32,
) -> Result<PreloadListPage, ListError> {
    let what = format!("can't read the manifest {}", mount.client_path(key));
    let failed = |error: UfsError| ListError::of_ufs(&what, error);
    let read = |cursor: &PreloadListCursor, range| ReadObject {
        bucket: mount.bucket.clone(),
        key: key.to_owned(),
        version_id: None,
        if_match: cursor.etag.clone(),
        range,
        checksums: false,
    };
    let mut cursor = cursor.clone();
    if cursor.etag.is_none() {
        let head = mount.ufs.head_object(read(&cursor, None)).await.map_err(failed)?;
        let Some(etag) = head.etag else { return Err(ListError::new(&what, ListFault::NoEtag)) };
        (cursor.etag, cursor.bytes) = (Some(etag), head.bytes);
    }
    let after = cursor.of_next_source();
    if cursor.offset >= cursor.bytes {
        return Ok(PreloadListPage { items: Vec::new(), bad: Vec::new(), next: after });
    }
    let end = cursor.bytes.min(cursor.offset + CHUNK_BYTES);
    let mut stream =
        mount.ufs.read(read(&cursor, Some(cursor.offset..=end - 1))).await.map_err(failed)?;
    let mut text = Vec::new();
    while let Some(chunk) = stream.body.next().await {
        text.extend_from_slice(&chunk.map_err(failed)?);
    }
    let taken = take_lines(&text, end == cursor.bytes, keys_max.max(1) as usize);
    let Some((lines, used)) = taken else {
        let fault = ListFault::Line { offset: cursor.offset };
        return Err(ListError::new(&what, fault));
    };
    let (mut items, mut bad) = (Vec::new(), Vec::new());
    for line in lines {
        match parse_object_path(mounts, line) {
            Ok((mount, key)) => items.push(PreloadListItem { mount, key, shown: None }),
            Err(error) => bad.push(PreloadFailure {
                path: truncate_text(line),
                reason: truncate_text(&error.to_string()),
            }),
        }
    }
    cursor.offset += used as u64;
    let next = if cursor.offset < cursor.bytes { cursor } else { after };
    Ok(PreloadListPage { items, bad, next })
}

/// Returns the first lines that are complete and not empty, and their bytes. `is_end`: nothing
/// follows the text.
fn take_lines(text: &[u8], is_end: bool, most: usize) -> Option<(Vec<&str>, usize)> {
    let (mut lines, mut at) = (Vec::new(), 0);
    while at < text.len() && lines.len() < most {
        let rest = &text[at..];
        let (line, used) = match rest.iter().position(|&byte| byte == b'\n') {
            Some(end) => (&rest[..end], end + 1),
            None if is_end => (rest, rest.len()),
            None => break,
        };
        let line = std::str::from_utf8(line).ok()?.trim();
        at += used;
        if !line.is_empty() {
            lines.push(line);
        }
    }
    (at > 0).then_some((lines, at))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_manifest_is_taken_by_whole_lines() {
        assert_eq!(take_lines(b"a\r\n\nb\nc", true, 10), Some((vec!["a", "b", "c"], 7)));
        assert_eq!(take_lines(b"a\n\nb\nc", false, 10), Some((vec!["a", "b"], 5)));
        assert_eq!(take_lines(b"a\nb\nc", true, 2), Some((vec!["a", "b"], 4)));
        assert_eq!(take_lines(b"no end", false, 10), None);
        assert_eq!(take_lines(b"\xff\n", true, 10), None);
        assert_eq!(take_lines(b"\n\n", false, 10), Some((vec![], 2)));
    }

    #[test]
    fn keys_are_decoded_where_the_listing_is_encoded() {
        assert_eq!(decode_key("a%2Bb+c/%C3%BC", true).as_deref(), Some("a+b c/ü"));
        assert_eq!(decode_key("a%2Bb+c", false).as_deref(), Some("a%2Bb+c"));
        assert_eq!(decode_key("%ff", true), None);
    }
}
