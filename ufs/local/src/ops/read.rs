//! Owns GetObject and HeadObject: conditions, ranges, parts, and the body.

use std::ops::Range as ByteRange;

use http::StatusCode;
use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};

use super::{
    check_key, check_version, custom_error, put_attributes, refuse_unkept_promises, s3_timestamp,
    signed_size, strong_etag,
};
use crate::blob::{BlobExtent, ExtentReader, ObjectBody};
use crate::checksum::{ChecksumSet, put_checksums};
use crate::condition::{
    LocalConditionVerdict, ReadConditions, not_modified, precondition_failed, resolve_range,
};
use crate::index::{LayoutRecord, ObjectRecord};
use crate::store::{LocalStore, LocalStoreInner, PinnedObject, disk_failed};

/// A read request on an object.
struct LocalReadRequest {
    conditions: ReadConditions,
    range: Option<Range>,
    part_number: Option<i32>,
    checksums: bool,
}

/// The answer to such a request.
struct LocalReadAnswer {
    bytes: ByteRange<u64>,
    content_range: Option<String>,
    checksums: ChecksumSet,
    parts_count: Option<i32>,
    status: StatusCode,
}

macro_rules! ask {
    ($input:expr) => {{
        check_key(&$input.key)?;
        check_version($input.version_id.as_deref())?;
        refuse_unkept_promises!($input; sse_customer_algorithm, sse_customer_key);
        LocalReadRequest {
            conditions: ReadConditions {
                if_match: $input.if_match.take(),
                if_none_match: $input.if_none_match.take(),
                if_modified_since: $input.if_modified_since.take(),
                if_unmodified_since: $input.if_unmodified_since.take(),
            },
            range: $input.range,
            part_number: $input.part_number,
            checksums: $input
                .checksum_mode
                .as_ref()
                .is_some_and(|mode| mode.as_str() == ChecksumMode::ENABLED),
        }
    }};
}

/// Fills the fields that GetObject and HeadObject share.
macro_rules! answer {
    ($output:expr, $record:expr, $served:expr) => {{
        let (record, served) = ($record, $served);
        $output.accept_ranges = Some("bytes".to_owned());
        $output.content_length = Some(signed_size(served.bytes.end - served.bytes.start));
        $output.content_range = served.content_range;
        $output.e_tag = Some(strong_etag(&record.etag));
        $output.last_modified = Some(s3_timestamp(record.modified_ms));
        $output.parts_count = served.parts_count;
        $output.storage_class = record.storage_class.map(StorageClass::from);
        put_checksums!(served.checksums => $output);
        $output.checksum_type = served.checksums.kind.map(|k| k.to_dto());
        put_attributes!(record.attributes => $output);
    }};
}

/// Answers an object, a range or a part with its body. The bytes are pinned until the body ends.
pub async fn get_object(
    store: &LocalStore,
    req: S3Request<GetObjectInput>,
) -> S3Result<S3Response<GetObjectOutput>> {
    let mut input = req.input;
    let ask = ask!(input);
    let opened = move |s: &LocalStoreInner| {
        let found = s.find_object(&input.bucket, &input.key)?;
        let served = resolve_read(&found.record, &found.layout, &ask)?;
        let PinnedObject { record, layout, pin } = found;
        let extents = cut_extents(&layout.extents, &served.bytes);
        let reader = ExtentReader::new(s.dir.clone(), extents, s.options.read_chunk_bytes, pin);
        let body = ObjectBody::open_body(reader, served.bytes.end - served.bytes.start)
            .map_err(|e| disk_failed("read an object's bytes", e))?;
        Ok((record, served, body))
    };
    let (record, served, body) = store.run_blocking(opened).await?;
    let tags = i32::try_from(record.tags.len()).unwrap_or(i32::MAX);
    let mut output = GetObjectOutput { body: Some(StreamingBlob::new(body)), ..Default::default() };
    output.tag_count = (tags > 0).then_some(tags);
    let status = served.status;
    answer!(output, record, served);
    Ok(S3Response::with_status(output, status))
}

/// Answers the headers of GetObject without a body.
pub async fn head_object(
    store: &LocalStore,
    req: S3Request<HeadObjectInput>,
) -> S3Result<S3Response<HeadObjectOutput>> {
    let mut input = req.input;
    let ask = ask!(input);
    let looked = move |s: &LocalStoreInner| {
        let found = s.find_object(&input.bucket, &input.key)?;
        let served = resolve_read(&found.record, &found.layout, &ask)?;
        Ok((found.record, served))
    };
    let (record, served) = store.run_blocking(looked).await?;
    let mut output = HeadObjectOutput::default();
    let status = served.status;
    answer!(output, record, served);
    Ok(S3Response::with_status(output, status))
}

fn resolve_read(
    record: &ObjectRecord,
    layout: &LayoutRecord,
    ask: &LocalReadRequest,
) -> S3Result<LocalReadAnswer> {
    match ask.conditions.judge_read(&record.etag, record.modified_ms.div_euclid(1000)) {
        LocalConditionVerdict::Proceed => {}
        LocalConditionVerdict::NotModified => {
            return Err(not_modified(&record.etag, &s3_timestamp(record.modified_ms)));
        }
        LocalConditionVerdict::Failed(which) => return Err(precondition_failed(which)),
    }
    let parts_count = i32::try_from(record.parts_count).ok().filter(|n| *n > 0);
    let whole = if ask.checksums { record.checksums.clone() } else { ChecksumSet::default() };
    match (&ask.range, ask.part_number) {
        (Some(_), Some(_)) => Err(s3_error!(
            InvalidRequest,
            "Cannot specify both Range header and partNumber query parameter."
        )),
        (None, None) => Ok(LocalReadAnswer {
            bytes: 0..record.size,
            content_range: None,
            checksums: whole,
            parts_count: None,
            status: StatusCode::OK,
        }),
        (Some(range), None) => {
            let bytes = resolve_range(range, record.size)?;
            // A checksum of the whole does not fit a piece: clients would verify the piece against
            // it and fail.
            let checksums = if bytes == (0..record.size) { whole } else { ChecksumSet::default() };
            Ok(LocalReadAnswer {
                checksums,
                parts_count: None,
                ..partial_answer(bytes, record.size)
            })
        }
        (None, Some(number)) => {
            let (bytes, sums) = find_part(record, layout, number)?;
            let checksums = if ask.checksums { sums } else { ChecksumSet::default() };
            if record.size == 0 {
                let status = StatusCode::OK;
                return Ok(LocalReadAnswer {
                    bytes,
                    content_range: None,
                    checksums,
                    parts_count,
                    status,
                });
            }
            Ok(LocalReadAnswer { checksums, parts_count, ..partial_answer(bytes, record.size) })
        }
    }
}

fn partial_answer(bytes: ByteRange<u64>, size: u64) -> LocalReadAnswer {
    let content_range = if bytes.is_empty() {
        None
    } else {
        Some(format!("bytes {}-{}/{size}", bytes.start, bytes.end - 1))
    };
    let status = StatusCode::PARTIAL_CONTENT;
    LocalReadAnswer {
        bytes,
        content_range,
        checksums: ChecksumSet::default(),
        parts_count: None,
        status,
    }
}

/// Finds the bytes and checksums of a part. Any object has a part 1.
fn find_part(
    record: &ObjectRecord,
    layout: &LayoutRecord,
    number: i32,
) -> S3Result<(ByteRange<u64>, ChecksumSet)> {
    if record.parts_count == 0 && number == 1 {
        return Ok((0..record.size, record.checksums.clone()));
    }
    let mut start = 0;
    for part in &layout.parts {
        if i32::from(part.number) == number {
            return Ok((start..start + part.size, part.checksums.clone()));
        }
        start += part.size;
    }
    let message = "The requested partnumber is not satisfiable";
    Err(custom_error("InvalidPartNumber", StatusCode::RANGE_NOT_SATISFIABLE, message))
}

/// Returns the extents that hold `bytes` of an object.
pub fn cut_extents(extents: &[BlobExtent], bytes: &ByteRange<u64>) -> Vec<BlobExtent> {
    let mut out = Vec::new();
    let mut start = 0;
    for extent in extents {
        let end = start + extent.len;
        let (from, to) = (bytes.start.max(start), bytes.end.min(end));
        if from < to {
            out.push(BlobExtent {
                blob: extent.blob,
                offset: extent.offset + from - start,
                len: to - from,
            });
        }
        start = end;
        if start >= bytes.end {
            break;
        }
    }
    out
}
