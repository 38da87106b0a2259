//! Owns pages of ordered keys: prefix, delimiter, start and limit over the index. It seeks past
//! every common prefix instead of walking it. Also owns how keys are written in XML. Knows no S3
//! operation.

use std::ops::Bound;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;

use super::index::{
    BUCKET_HEAD, BucketId, IndexError, IndexTable, IndexView, OBJECTS, UPLOAD_TAIL, UPLOADS,
    UndecodedRow, object_key,
};

/// A listing query. An empty delimiter means none.
#[derive(Debug, Clone)]
pub struct ListingQuery<'a> {
    pub prefix: &'a str,
    pub delimiter: &'a str,
    pub start: ListingStart,
    pub max: usize,
}

/// Start of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListingStart {
    First,
    AfterKey(String),
    /// After all keys with this prefix.
    AfterPrefix(String),
    /// For uploads only: after this upload of this key.
    AfterUpload(String, String),
}

impl ListingStart {
    /// Makes a start from a marker that a client chose, or was given as `NextMarker`. A marker that
    /// is a common prefix of this very listing covers all its keys. Otherwise a listing by
    /// `NextMarker` would never get past it.
    pub fn from_marker(marker: &str, prefix: &str, delimiter: &str) -> Self {
        if marker.is_empty() {
            return ListingStart::First;
        }
        match common_prefix(marker, prefix, delimiter) {
            Some(p) if p == marker => ListingStart::AfterPrefix(marker.to_owned()),
            _ => ListingStart::AfterKey(marker.to_owned()),
        }
    }

    /// Returns an opaque continuation token.
    pub fn to_token(&self) -> String {
        let (kind, text) = match self {
            ListingStart::First => ('f', ""),
            ListingStart::AfterKey(key) | ListingStart::AfterUpload(key, _) => ('k', key.as_str()),
            ListingStart::AfterPrefix(prefix) => ('p', prefix.as_str()),
        };
        URL_SAFE_NO_PAD.encode(format!("{kind}{text}"))
    }

    /// Reads a continuation token. Returns `None` where this store did not make it.
    pub fn from_token(token: &str) -> Option<Self> {
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
        match text.split_at_checked(1)? {
            ("k", key) => Some(ListingStart::AfterKey(key.to_owned())),
            ("p", prefix) => Some(ListingStart::AfterPrefix(prefix.to_owned())),
            _ => None,
        }
    }
}

/// One item of a page.
#[derive(Debug)]
pub enum ListingItem<T> {
    Entry { key: String, upload_id: String, record: T },
    Prefix(String),
}

/// One page of a listing, in key order.
#[derive(Debug)]
pub struct ListingPage<T> {
    pub items: Vec<ListingItem<T>>,
    /// Start of the next page; `None` at the end.
    pub next: Option<ListingStart>,
    /// Index rows read for the page.
    pub rows: usize,
}

/// The table that is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListingSpace {
    Objects,
    Uploads,
}

impl ListingSpace {
    fn index_table(self) -> IndexTable<'static> {
        match self {
            ListingSpace::Objects => OBJECTS,
            ListingSpace::Uploads => UPLOADS,
        }
    }

    fn record_name(self) -> &'static str {
        match self {
            ListingSpace::Objects => "object",
            ListingSpace::Uploads => "upload",
        }
    }

    /// Splits a table key behind the bucket into key and upload id.
    fn split_row(self, row: &UndecodedRow) -> (String, String) {
        let rest = &row.key[BUCKET_HEAD..];
        let tail = if self == ListingSpace::Uploads { UPLOAD_TAIL.min(rest.len()) } else { 0 };
        let (key, id) = rest.split_at(rest.len() - tail);
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        (text(key), text(id.get(1..).unwrap_or_default()))
    }

    /// Returns the first table key that is past all of `key`.
    fn bound_past_key(self, bucket: BucketId, key: &str) -> Bound<Vec<u8>> {
        let mut at = object_key(bucket, key.as_bytes());
        if self == ListingSpace::Uploads {
            // Upload ids are hexadecimal, so all of them sort before this.
            at.extend_from_slice(&[0, 0xff]);
        }
        Bound::Excluded(at)
    }
}

/// Reads one page. Reads as many rows as it returns items, and at most one more.
pub fn read_page<T: DeserializeOwned>(
    view: &IndexView,
    space: ListingSpace,
    bucket: BucketId,
    query: &ListingQuery<'_>,
) -> Result<ListingPage<T>, IndexError> {
    let mut page = ListingPage { items: Vec::new(), next: None, rows: 0 };
    let Some(from) = first_row(space, bucket, query).filter(|_| query.max > 0) else {
        return Ok(page);
    };
    let scan = |from: Bound<&Vec<u8>>| {
        view.scan_bucket::<T>(
            space.index_table(),
            space.record_name(),
            bucket,
            from.map(Vec::as_slice),
        )
    };
    let mut rows = scan(from.as_ref())?;
    let mut next = ListingStart::First;
    while let Some(row) = rows.next_entry()? {
        page.rows += 1;
        let (key, upload_id) = space.split_row(&row);
        if !key.starts_with(query.prefix) {
            break;
        }
        if page.items.len() == query.max {
            page.next = Some(next);
            break;
        }
        if let Some(prefix) = common_prefix(&key, query.prefix, query.delimiter) {
            next = ListingStart::AfterPrefix(prefix.to_owned());
            page.items.push(ListingItem::Prefix(prefix.to_owned()));
            let from = object_key(bucket, &prefix_successor(prefix));
            rows = scan(Bound::Included(&from))?;
            continue;
        }
        next = match space {
            ListingSpace::Objects => ListingStart::AfterKey(key.clone()),
            ListingSpace::Uploads => ListingStart::AfterUpload(key.clone(), upload_id.clone()),
        };
        page.items.push(ListingItem::Entry { key, upload_id, record: row.decode()? });
    }
    Ok(page)
}

/// Returns the first table key that the query may return; `None` if it can return nothing.
fn first_row(
    space: ListingSpace,
    bucket: BucketId,
    query: &ListingQuery<'_>,
) -> Option<Bound<Vec<u8>>> {
    let at_prefix = Bound::Included(object_key(bucket, query.prefix.as_bytes()));
    Some(match &query.start {
        ListingStart::First => at_prefix,
        ListingStart::AfterKey(key) | ListingStart::AfterUpload(key, _)
            if key.as_str() < query.prefix =>
        {
            at_prefix
        }
        ListingStart::AfterKey(key) => space.bound_past_key(bucket, key),
        ListingStart::AfterUpload(key, id) => {
            Bound::Excluded(super::index::upload_key(bucket, key.as_bytes(), id))
        }
        ListingStart::AfterPrefix(done) => {
            let after = prefix_successor(done);
            Bound::Included(object_key(bucket, after.as_slice().max(query.prefix.as_bytes())))
        }
    })
}

/// Returns the part of a key up to the first delimiter behind the prefix.
fn common_prefix<'k>(key: &'k str, prefix: &str, delimiter: &str) -> Option<&'k str> {
    if delimiter.is_empty() {
        return None;
    }
    let rest = key.strip_prefix(prefix)?;
    let at = rest.find(delimiter)?;
    Some(&key[..prefix.len() + at + delimiter.len()])
}

/// Returns the least byte string above all that begin with `prefix`. The prefix is not empty. Being
/// UTF-8, it holds no 0xff.
fn prefix_successor(prefix: &str) -> Vec<u8> {
    let mut out = prefix.as_bytes().to_vec();
    if let Some(last) = out.last_mut() {
        *last += 1;
    }
    out
}

/// Characters that `encoding-type=url` does not escape.
const LISTED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'*').remove(b'/');

/// Encodes a key for a listing with `encoding-type=url`.
///
/// AWS writes a space as `+`; this store writes `%20`. Every client decodes `%20`, while botocore's
/// decoder leaves `+` as it is.
pub fn url_encode(key: &str) -> String {
    utf8_percent_encode(key, LISTED).to_string()
}
