//! Owns a remote store as an [`S3`]: `s3s_aws::Proxy`, with what it loses put back. On success the
//! response's extensions hold the raw answer. An error has the store's own status, headers and
//! document, or says that no answer came.

use std::sync::Arc;

use aws_sdk_s3::Client;
use aws_sdk_s3::operation::{RequestId, RequestIdExt};
use http::{HeaderMap, HeaderName, HeaderValue};
use s3s::dto::*;
use s3s::{S3, S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use s3s_aws::Proxy;
use s3s_aws::conv::{AwsConversion, try_from_aws, try_into_aws};

use super::answer_error::{rename_not_found, restore_error, sdk_error};
use super::answer_interceptor::{ExtraHeaders, with_headers, without_framing};
use super::blank_key::{blank_key_of, take_blank, with_blank};
use super::bucket_addresses::BucketAddress;
use super::cache_reads::CacheReads;
use super::client_headers::{checksum_headers, metadata_headers, part_type_header};
use super::select::select_content;
use super::upload_body::{BodyError, UploadBody};
use crate::operations::every_operation;
use crate::raw_answer::{RawAnswerOnly, observe_answer};

pub(super) struct RemoteStore {
    proxy: Proxy,
    client: Client,
    cache_reads: CacheReads,
    trailing_checksums: bool,
}

/// Returns true if an upload comes with its checksum. A checksum named without a value has to be
/// computed on the way, and can be sent only after the body.
macro_rules! has_checksum {
    ($input:expr) => {
        [
            &$input.checksum_crc32,
            &$input.checksum_crc32c,
            &$input.checksum_crc64nvme,
            &$input.checksum_sha1,
            &$input.checksum_sha256,
        ]
        .iter()
        .any(|value| value.is_some())
    };
}

impl RemoteStore {
    pub(super) fn new(client: Client, cache_reads: CacheReads, trailing_checksums: bool) -> Self {
        Self { proxy: Proxy::from(client.clone()), client, cache_reads, trailing_checksums }
    }

    /// Returns where a request of the cache goes. Returns `None` for other requests, and where only
    /// the SDK can reach the bucket.
    fn cache_read_address<T>(
        &self,
        req: &S3Request<T>,
        bucket: &str,
        key: &str,
    ) -> Option<Arc<BucketAddress>> {
        req.extensions.get::<RawAnswerOnly>()?;
        // A bucket's own URL is another operation.
        if key.is_empty() {
            return None;
        }
        self.cache_reads.addresses.of_bucket(bucket)
    }

    /// Runs a call and puts back what the typed interface loses.
    async fn pass_call<T>(
        &self,
        headers: ExtraHeaders,
        call: impl Future<Output = S3Result<S3Response<T>>>,
    ) -> S3Result<S3Response<T>> {
        let (result, raw) = observe_answer(with_headers(headers, call)).await;
        match result {
            Ok(mut response) => {
                if let Some(raw) = raw {
                    response.status = Some(raw.status);
                    response.extensions.insert(raw);
                }
                Ok(response)
            }
            Err(error) => Err(restore_error(error, raw)),
        }
    }

    /// Runs a call that sends a body, and puts back what the typed interface loses.
    async fn pass_upload<T>(
        &self,
        headers: ExtraHeaders,
        body_error: BodyError,
        call: impl Future<Output = S3Result<S3Response<T>>>,
    ) -> S3Result<S3Response<T>> {
        let result = self.pass_call(headers, call).await;
        // A store's refusal that came before its body failed takes precedence, unless the store
        // only saw the connection break.
        match (result, body_error.take_error()) {
            (Ok(_), Some(error)) | (Err(_), Some(error)) => Err(error),
            (result, None) => result,
        }
    }

    async fn pass_put(
        &self,
        mut req: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let announced = req.input.content_length.or_else(|| decoded_length(&req.headers));
        let input = &mut req.input;
        let (body, error) = upload_body(&mut input.body, announced).await?;
        input.body = Some(body);
        without_aws_chunked(&mut input.content_encoding);
        if !self.trailing_checksums && !has_checksum!(input) {
            input.checksum_algorithm = None;
        }
        // The SDK would name an object without a type application/octet-stream. The store should
        // choose the type.
        let untyped = input.content_type.is_none();
        let mut headers = checksum_headers(&req.headers, has_checksum!(input));
        headers.extend(metadata_headers(&req.headers));
        headers.extend(untyped.then(|| ("content-type".into(), String::new())));
        self.pass_upload(headers, error, self.proxy.put_object(req)).await
    }

    async fn put_part(
        &self,
        mut req: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let announced = req.input.content_length.or_else(|| decoded_length(&req.headers));
        let input = &mut req.input;
        let (body, error) = upload_body(&mut input.body, announced).await?;
        input.body = Some(body);
        if !self.trailing_checksums && !has_checksum!(input) {
            input.checksum_algorithm = None;
        }
        let mut headers = checksum_headers(&req.headers, has_checksum!(input));
        headers.push(part_type_header(&req.headers));
        self.pass_upload(headers, error, self.proxy.upload_part(req)).await
    }

    async fn create_upload(
        &self,
        mut req: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        without_aws_chunked(&mut req.input.content_encoding);
        self.pass_call(metadata_headers(&req.headers), self.proxy.create_multipart_upload(req))
            .await
    }

    async fn pass_copy(
        &self,
        req: S3Request<CopyObjectInput>,
    ) -> S3Result<S3Response<CopyObjectOutput>> {
        self.pass_call(metadata_headers(&req.headers), self.proxy.copy_object(req)).await
    }

    async fn pass_select(
        &self,
        req: S3Request<SelectObjectContentInput>,
    ) -> S3Result<S3Response<SelectObjectContentOutput>> {
        let call = async { select_content(&self.client, req.input).await.map(S3Response::new) };
        self.pass_call(Vec::new(), call).await
    }

    async fn get(&self, req: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        if let Some(address) = self.cache_read_address(&req, &req.input.bucket, &req.input.key) {
            return self.cache_reads.get_object(&address, req.input).await;
        }
        // Boxed: the SDK's state would make that of every read of the cache ten kilobytes larger.
        Box::pin(self.pass_get(req)).await
    }

    async fn pass_get(
        &self,
        mut req: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        // If this were set in the input, the SDK would check the body itself. The client does that,
        // from the headers that it gets.
        let mode = req.input.checksum_mode.take();
        let mut headers = weak_condition(&mut req.input.if_match);
        headers.extend(mode.map(|mode| ("x-amz-checksum-mode".into(), mode.as_str().to_owned())));
        self.pass_call(headers, self.proxy.get_object(req)).await
    }

    async fn head(
        &self,
        req: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        if let Some(address) = self.cache_read_address(&req, &req.input.bucket, &req.input.key) {
            return self.cache_reads.head_object(&address, req.input).await;
        }
        Box::pin(self.pass_head(req)).await
    }

    async fn pass_head(
        &self,
        mut req: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let headers = weak_condition(&mut req.input.if_match);
        self.pass_call(headers, self.proxy.head_object(req))
            .await
            .map_err(|error| rename_not_found(error, S3ErrorCode::NoSuchKey))
    }

    async fn pass_location(
        &self,
        req: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        let mut response = self.pass_call(Vec::new(), self.proxy.get_bucket_location(req)).await?;
        // An empty element stands for the oldest region.
        response.output.location_constraint.take_if(|region| region.as_str().is_empty());
        Ok(response)
    }

    /// Completes an upload without the proxy, which fails on an empty ETag. Ceph RGW sends one when
    /// it completes an upload that is complete already. An empty ETag is left out.
    async fn pass_complete(
        &self,
        req: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let input = req.input;
        let call = async {
            let sent = self
                .client
                .complete_multipart_upload()
                .bucket(input.bucket)
                .key(input.key)
                .upload_id(input.upload_id)
                .set_multipart_upload(try_into_aws(input.multipart_upload)?)
                .set_checksum_crc32(input.checksum_crc32)
                .set_checksum_crc32_c(input.checksum_crc32c)
                .set_checksum_crc64_nvme(input.checksum_crc64nvme)
                .set_checksum_sha1(input.checksum_sha1)
                .set_checksum_sha256(input.checksum_sha256)
                .set_checksum_type(try_into_aws(input.checksum_type)?)
                .set_mpu_object_size(input.mpu_object_size)
                .set_if_match(try_into_aws(input.if_match)?)
                .set_if_none_match(try_into_aws(input.if_none_match)?)
                .set_expected_bucket_owner(input.expected_bucket_owner)
                .set_request_payer(try_into_aws(input.request_payer)?)
                .set_sse_customer_algorithm(input.sse_customer_algorithm)
                .set_sse_customer_key(input.sse_customer_key)
                .set_sse_customer_key_md5(input.sse_customer_key_md5)
                .send();
            let mut output = sent.await.map_err(sdk_error)?;
            output.e_tag.take_if(|etag| etag.is_empty());
            proxy_response(output)
        };
        self.pass_call(Vec::new(), call).await
    }

    /// Lists parts without the proxy, which fails on empty markers. Some stores send them for a
    /// first page.
    async fn pass_parts(
        &self,
        req: S3Request<ListPartsInput>,
    ) -> S3Result<S3Response<ListPartsOutput>> {
        let input = req.input;
        let call = async {
            let sent = self
                .client
                .list_parts()
                .bucket(input.bucket)
                .key(input.key)
                .upload_id(input.upload_id)
                .set_max_parts(input.max_parts)
                .set_part_number_marker(input.part_number_marker.map(|marker| marker.to_string()))
                .set_expected_bucket_owner(input.expected_bucket_owner)
                .set_request_payer(try_into_aws(input.request_payer)?)
                .set_sse_customer_algorithm(input.sse_customer_algorithm)
                .set_sse_customer_key(input.sse_customer_key)
                .set_sse_customer_key_md5(input.sse_customer_key_md5)
                .send();
            let mut output = sent.await.map_err(sdk_error)?;
            only_numbers(&mut output.part_number_marker);
            only_numbers(&mut output.next_part_number_marker);
            proxy_response(output)
        };
        self.pass_call(Vec::new(), call).await
    }

    /// Gets attributes without the proxy, for the same reason.
    async fn pass_attributes(
        &self,
        req: S3Request<GetObjectAttributesInput>,
    ) -> S3Result<S3Response<GetObjectAttributesOutput>> {
        let input = req.input;
        let call = async {
            let sent = self
                .client
                .get_object_attributes()
                .bucket(input.bucket)
                .key(input.key)
                .set_version_id(input.version_id)
                .set_max_parts(input.max_parts)
                .set_object_attributes(Some(try_into_aws(input.object_attributes)?))
                .set_part_number_marker(input.part_number_marker.map(|marker| marker.to_string()))
                .set_expected_bucket_owner(input.expected_bucket_owner)
                .set_request_payer(try_into_aws(input.request_payer)?)
                .set_sse_customer_algorithm(input.sse_customer_algorithm)
                .set_sse_customer_key(input.sse_customer_key)
                .set_sse_customer_key_md5(input.sse_customer_key_md5)
                .send();
            let mut output = sent.await.map_err(sdk_error)?;
            if let Some(parts) = &mut output.object_parts {
                only_numbers(&mut parts.part_number_marker);
                only_numbers(&mut parts.next_part_number_marker);
            }
            proxy_response(output)
        };
        self.pass_call(Vec::new(), call).await
    }
}

/// Makes the proxy's form of an SDK answer, with its request ids.
fn proxy_response<T>(output: T::Target) -> S3Result<S3Response<T>>
where
    T: AwsConversion<Error = S3Error>,
    T::Target: RequestId + RequestIdExt,
{
    let mut headers = HeaderMap::new();
    for (name, id) in
        [("x-amz-request-id", output.request_id()), ("x-amz-id-2", output.extended_request_id())]
    {
        if let Some(value) = id.and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    Ok(S3Response::with_headers(try_from_aws(output)?, headers))
}

fn only_numbers(marker: &mut Option<String>) {
    if marker.as_ref().is_some_and(|text| text.parse::<i32>().is_err()) {
        *marker = None;
    }
}

/// Returns the length of a body that came in aws-chunked form.
fn decoded_length(headers: &HeaderMap) -> Option<i64> {
    headers.get("x-amz-decoded-content-length")?.to_str().ok()?.parse().ok()
}

async fn upload_body(
    body: &mut Option<StreamingBlob>,
    announced: Option<ContentLength>,
) -> S3Result<(StreamingBlob, BodyError)> {
    let body = body.take().unwrap_or_else(|| s3s::Body::empty().into());
    let (upload, error) = UploadBody::new(body, announced).await?;
    Ok((StreamingBlob::new(upload), error))
}

/// Removes `aws-chunked`. It says how the client's request was framed, not how the object is
/// encoded; the SDK adds its own.
fn without_aws_chunked(encoding: &mut Option<ContentEncoding>) {
    if let Some(kept) = encoding.as_deref().and_then(without_framing) {
        *encoding = Some(kept).filter(|kept| !kept.is_empty());
    }
}

/// Moves a weak ETag to a header. The conversion to the SDK's input would make it strong, so a
/// condition that must fail would hold.
fn weak_condition(if_match: &mut Option<ETagCondition>) -> ExtraHeaders {
    match if_match.take() {
        Some(ETagCondition::ETag(ETag::Weak(value))) => {
            vec![("if-match".into(), format!("W/\"{value}\""))]
        }
        other => {
            *if_match = other;
            Vec::new()
        }
    }
}

/// Handles operations whose request or answer needs more than the proxy does.
macro_rules! dispatch {
    (put_object $self:ident $req:ident) => {
        $self.pass_put($req).await
    };
    (upload_part $self:ident $req:ident) => {
        $self.put_part($req).await
    };
    (create_multipart_upload $self:ident $req:ident) => {
        $self.create_upload($req).await
    };
    (complete_multipart_upload $self:ident $req:ident) => {
        $self.pass_complete($req).await
    };
    (copy_object $self:ident $req:ident) => {
        $self.pass_copy($req).await
    };
    (select_object_content $self:ident $req:ident) => {
        $self.pass_select($req).await
    };
    (get_object $self:ident $req:ident) => {
        $self.get($req).await
    };
    (head_object $self:ident $req:ident) => {
        $self.head($req).await
    };
    (head_bucket $self:ident $req:ident) => {
        $self
            .pass_call(Vec::new(), $self.proxy.head_bucket($req))
            .await
            .map_err(|error| rename_not_found(error, S3ErrorCode::NoSuchBucket))
    };
    (get_bucket_location $self:ident $req:ident) => {
        $self.pass_location($req).await
    };
    (list_parts $self:ident $req:ident) => {
        $self.pass_parts($req).await
    };
    (get_object_attributes $self:ident $req:ident) => {
        $self.pass_attributes($req).await
    };
    ($op:ident $self:ident $req:ident) => {
        $self.pass_call(Vec::new(), $self.proxy.$op($req)).await
    };
}

macro_rules! remote {
    ($($op:ident $input:ident $output:ident,)*) => {
        #[async_trait::async_trait]
        impl S3 for RemoteStore {
            $(
                #[allow(unused_mut)]
                async fn $op(&self, mut req: S3Request<$input>) -> S3Result<S3Response<$output>> {
                    let blank: Option<String> = blank_key_of!($op req);
                    with_blank(blank, async move { dispatch!($op self req) }).await
                }
            )*
        }
    };
}

every_operation!(remote);
