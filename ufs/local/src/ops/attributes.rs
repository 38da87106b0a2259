//! Owns GetObjectAttributes.

use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};

use super::{
    check_key, check_version, refuse_unkept_promises, s3_timestamp, signed_size, strong_etag,
};
use crate::checksum::{ChecksumKind, put_checksums};
use crate::index::{ObjectRecord, PartSummary};
use crate::store::LocalStore;

/// Parts in one answer (S3 API reference).
const PARTS_MAX: i32 = 1000;

/// Answers the attributes of an object that the request names.
pub async fn get_object_attributes(
    store: &LocalStore,
    req: S3Request<GetObjectAttributesInput>,
) -> S3Result<S3Response<GetObjectAttributesOutput>> {
    let input = req.input;
    check_key(&input.key)?;
    check_version(input.version_id.as_deref())?;
    refuse_unkept_promises!(input; sse_customer_algorithm, sse_customer_key);
    if input.object_attributes.is_empty() {
        return Err(s3_error!(InvalidArgument, "x-amz-object-attributes must name an attribute."));
    }
    let (bucket, key) = (input.bucket, input.key);
    let found = store.run_blocking(move |s| s.find_object(&bucket, &key)).await?;
    let record = &found.record;
    // s3s takes a header that lists several as one name.
    let names: Vec<_> =
        input.object_attributes.iter().flat_map(|names| names.as_str().split(',')).collect();
    let wants = |name: &str| names.iter().any(|listed| listed.trim() == name);
    let mut output = GetObjectAttributesOutput {
        last_modified: Some(s3_timestamp(record.modified_ms)),
        ..Default::default()
    };
    if wants(ObjectAttributes::ETAG) {
        output.e_tag = Some(strong_etag(&record.etag));
    }
    if wants(ObjectAttributes::OBJECT_SIZE) {
        output.object_size = Some(signed_size(record.size));
    }
    if wants(ObjectAttributes::STORAGE_CLASS) {
        let class = record.storage_class.clone().unwrap_or_else(|| "STANDARD".to_owned());
        output.storage_class = Some(StorageClass::from(class));
    }
    if wants(ObjectAttributes::CHECKSUM) && !record.checksums.is_empty() {
        let mut sums = Checksum::default();
        put_checksums!(record.checksums => sums);
        sums.checksum_type = record.checksums.kind.map(ChecksumKind::to_dto);
        output.checksum = Some(sums);
    }
    if wants(ObjectAttributes::OBJECT_PARTS) && record.parts_count > 0 {
        output.object_parts = Some(object_parts(
            record,
            &found.layout.parts,
            input.max_parts,
            input.part_number_marker,
        )?);
    }
    Ok(S3Response::new(output))
}

fn object_parts(
    record: &ObjectRecord,
    parts: &[PartSummary],
    max: Option<i32>,
    marker: Option<i32>,
) -> S3Result<GetObjectAttributesParts> {
    let max = max.unwrap_or(PARTS_MAX).min(PARTS_MAX);
    let count = usize::try_from(max)
        .map_err(|_| s3_error!(InvalidArgument, "max-parts must not be negative"))?;
    let after = marker.unwrap_or(0);
    let mut output = GetObjectAttributesParts {
        max_parts: Some(max),
        part_number_marker: Some(after),
        total_parts_count: i32::try_from(record.parts_count).ok(),
        ..Default::default()
    };
    // S3 lists the parts only of objects with a composite checksum.
    if record.checksums.kind != Some(ChecksumKind::Composite) {
        output.is_truncated = Some(false);
        return Ok(output);
    }
    let rest: Vec<_> = parts.iter().filter(|p| i32::from(p.number) > after).collect();
    let one = |p: &&PartSummary| {
        let mut part = ObjectPart {
            part_number: Some(p.number.into()),
            size: Some(signed_size(p.size)),
            ..Default::default()
        };
        put_checksums!(p.checksums => part);
        part
    };
    let shown: Vec<_> = rest.iter().take(count).map(one).collect();
    output.is_truncated = Some(rest.len() > shown.len());
    output.next_part_number_marker = shown.last().and_then(|p| p.part_number);
    output.parts = Some(shown);
    Ok(output)
}
