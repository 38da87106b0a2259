//! Turns uploads by an HTML form (POST Object) into PUTs. First the fields are read and authorised
//! by their policy, then the file is read whole, then the PUT is sent on. Before the signature
//! holds, only the fields are in memory.
//!
//! Owns the way from a form to a PUT, and from the PUT's answer to a form's. The PUT operation does
//! the rest (rights, checks, announcing). s3s reads forms, too, but wrongly in ways that can't be
//! mended afterwards (`fields`, `policy`).

pub(super) mod decoders;
mod fields;
mod policy;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderName};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::BodyExt;
use memchr::memmem;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::host::S3Host as _;
use s3s::{Body, HttpResponse, S3Error, S3ErrorCode, S3Result};
use time::OffsetDateTime;
use tokio::time::timeout;

use self::fields::{FormError, FormHead, MultipartForm};
use super::HostDomains;
use super::inbound_body::InboundBody;
use super::xml_references::with_references;
use crate::auth::IdentityStore;
use crate::http_exchange::HttpExchange;
use crate::tenant_places::{TenantPlace, TenantPlaces};

/// Most bytes before the file. S3 takes 20 KB of fields ("POST Object", S3 reference); boundaries
/// and headers come on top.
const FIELDS_BYTES_MAX: usize = 64 * 1024;

/// Least by which the memory of a form grows.
const GROWTH_BYTES_MIN: usize = 256 * 1024;

/// Characters to escape in a path: all but RFC 3986's unreserved ones (section 2.3) and the
/// separator.
const IN_PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
const IN_QUERY: &AsciiSet = &IN_PATH.add(b'/');

/// Fields that become a header of the same name. Others belong to the form itself, or have no use.
const HEADERS: [&str; 8] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-md5",
    "content-type",
    "expires",
    "x-amz-sdk-checksum-algorithm",
];
const HEADER_FAMILIES: [&str; 9] = [
    "x-amz-acl",
    "x-amz-checksum-",
    "x-amz-grant-",
    "x-amz-meta-",
    "x-amz-object-lock-",
    "x-amz-server-side-encryption",
    "x-amz-storage-class",
    "x-amz-tagging",
    "x-amz-website-redirect-location",
];

/// What is needed to read and authorise forms.
pub(crate) struct FormUploads {
    pub identities: Arc<IdentityStore>,
    pub domains: HostDomains,
    pub sigv2: bool,
    /// Largest file.
    pub file_bytes_max: u64,
    /// Memory for all forms together.
    pub memory: TenantPlaces,
    /// Longest wait for all of the fields together.
    pub proof_max: Duration,
}

/// The answer that a form's client wants once the PUT is done. Holds the form's memory.
pub(crate) struct FormResponsePlan {
    bucket: String,
    key: String,
    location: String,
    redirect: Option<Uri>,
    status: StatusCode,
    _place: TenantPlace,
}

/// Returns whether a request is a form upload.
pub(super) fn is_form(method: &Method, headers: &HeaderMap) -> bool {
    const FORM: &[u8] = b"multipart/form-data";
    let is_form = |kind: &HeaderValue| {
        kind.as_bytes().get(..FORM.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(FORM))
    };
    *method == Method::POST && headers.get_all(header::CONTENT_TYPE).iter().any(is_form)
}

impl FormUploads {
    /// Returns the declared length of a form's body.
    fn declared_length(&self, headers: &HeaderMap) -> S3Result<usize> {
        let length = headers
            .get(header::CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        let length = length.ok_or(S3ErrorCode::MissingContentLength)?;
        if length > self.file_bytes_max.saturating_add(2 * FIELDS_BYTES_MAX as u64) {
            return Err(policy::too_large());
        }
        usize::try_from(length).map_err(|_| policy::too_large())
    }

    /// Takes memory for what has come of a form. Call it before the file is read.
    fn take_memory(&self, exchange: &HttpExchange, bytes: usize) -> S3Result<TenantPlace> {
        let place = self.memory.try_take_place(exchange.cx.tenant(), bytes as u64, Instant::now());
        place.ok_or_else(crate::s3_errors::slow_down)
    }

    /// Reads a form and authorises it. The returned request is not signed: its identity stands in
    /// the exchange.
    pub async fn read(
        &self,
        parts: Parts,
        body: InboundBody,
        exchange: &HttpExchange,
        scheme: &str,
    ) -> S3Result<(Request<Body>, FormResponsePlan)> {
        let (bucket, bucket_in_host) = self.find_bucket(&parts)?;
        let boundary = find_boundary(&parts.headers)
            .ok_or_else(|| malformed_error("there is no boundary in its Content-Type"))?;
        let length = self.declared_length(&parts.headers)?;
        let mut document = FormDocument { body, boundary, bytes: BytesMut::new(), length };
        let head = timeout(self.proof_max, document.read_head(exchange)).await;
        let mut head = head.map_err(|_| S3ErrorCode::RequestTimeout)??;
        head.form.name_file();
        let identity = policy::find_signer(&head.form, &self.identities, self.sigv2)?;
        let policy = policy::check_fields(&head.form, &bucket, OffsetDateTime::now_utc())?;
        let key = head.form.get("key").ok_or_else(|| policy::missing_field("key"))?.to_owned();
        if key.is_empty() {
            return Err(policy::argument_error("User key must have a length greater than 0."));
        }
        exchange.note_operation("PostObject");
        exchange.admit_identity(identity).await?;
        let mut place = self.take_memory(exchange, document.bytes.len())?;
        let form = document.read_file(head, exchange, &mut place).await?;
        if form.file.len() as u64 > self.file_bytes_max {
            return Err(policy::too_large());
        }
        policy::check_size(&policy, form.file.len() as u64)?;
        let escaped = utf8_percent_encode(&key, IN_PATH).to_string();
        let path =
            if bucket_in_host { format!("/{escaped}") } else { format!("/{bucket}/{escaped}") };
        let posted = FormResponsePlan {
            location: format!("{scheme}://{}{path}", find_host(&parts).unwrap_or_default()),
            redirect: redirect_uri(&form),
            status: success_status(&form),
            bucket,
            key,
            _place: place,
        };
        Ok((build_put(parts, &path, form)?, posted))
    }

    /// Returns the form's bucket, and whether its name is in the host.
    fn find_bucket(&self, parts: &Parts) -> S3Result<(String, bool)> {
        let path = parts.uri.path().trim_matches('/');
        let named = find_host(parts).and_then(|host| self.domains.parse_host_header(host).ok());
        if let Some(bucket) = named.as_ref().and_then(|named| named.bucket()) {
            return if path.is_empty() {
                Ok((bucket.to_owned(), true))
            } else {
                Err(S3ErrorCode::MethodNotAllowed.into())
            };
        }
        match path {
            "" => Err(S3ErrorCode::MethodNotAllowed.into()),
            path if path.contains('/') => Err(S3ErrorCode::MethodNotAllowed.into()),
            path => Ok((path.to_owned(), false)),
        }
    }
}

/// The bytes of a form that have come so far.
struct FormDocument {
    body: InboundBody,
    boundary: String,
    bytes: BytesMut,
    /// Declared length of the whole form.
    length: usize,
}

impl FormDocument {
    /// Reads the next bytes; `None` at the end.
    async fn read_piece(&mut self, exchange: &HttpExchange) -> S3Result<Option<Bytes>> {
        match self.body.frame().await {
            None => Ok(None),
            Some(Ok(frame)) => {
                let data = frame.into_data().unwrap_or_default();
                if data.len() > self.length.saturating_sub(self.bytes.len()) {
                    return Err(policy::too_large());
                }
                Ok(Some(data))
            }
            Some(Err(_)) => {
                let fault = exchange.fault.lock().take();
                Err(fault
                    .map_or_else(|| S3ErrorCode::IncompleteBody.into(), |fault| fault.into_error()))
            }
        }
    }

    /// Reads until the file begins.
    async fn read_head(&mut self, exchange: &HttpExchange) -> S3Result<FormHead> {
        loop {
            let before = self.bytes.len();
            let piece = self.read_piece(exchange).await?;
            let more = piece.is_some();
            self.bytes.extend_from_slice(&piece.unwrap_or_default());
            // A head ends with an empty line. Parse only then: a head that comes byte by byte would
            // otherwise be parsed for every byte.
            let ended =
                memmem::find(&self.bytes[before.saturating_sub(3)..], b"\r\n\r\n").is_some();
            let too_long = self.bytes.len() > fields::head_bytes_max(FIELDS_BYTES_MAX);
            if more && !ended && !too_long {
                continue;
            }
            match fields::parse_head(&self.bytes, &self.boundary, FIELDS_BYTES_MAX)
                .map_err(form_error)?
            {
                Ok(head) => return Ok(head),
                Err(_) if too_long => {
                    return Err(form_error(FormError::FieldsTooLarge { max: FIELDS_BYTES_MAX }));
                }
                Err(_) if more => {}
                Err(why) => return Err(malformed_error(why)),
            }
        }
    }

    /// Reads the rest, which is the file. Memory is taken as the bytes come: what was announced and
    /// never sent takes none from others.
    async fn read_file(
        mut self,
        head: FormHead,
        exchange: &HttpExchange,
        place: &mut TenantPlace,
    ) -> S3Result<MultipartForm> {
        let mut room = self.bytes.len();
        while let Some(piece) = self.read_piece(exchange).await? {
            let needed = self.bytes.len() + piece.len();
            if needed > room {
                room = needed.max((2 * room).max(GROWTH_BYTES_MIN).min(self.length));
                if !place.grow_place(room as u64, Instant::now()) {
                    return Err(crate::s3_errors::slow_down());
                }
                self.bytes.reserve(room - self.bytes.len());
            }
            self.bytes.extend_from_slice(&piece);
        }
        fields::complete_form(head, &self.bytes.freeze(), &self.boundary).map_err(form_error)
    }
}

fn form_error(error: FormError) -> S3Error {
    match error {
        FormError::Malformed(_) => {
            S3Error::with_message(S3ErrorCode::MalformedPOSTRequest, error.to_string())
        }
        FormError::FieldsTooLarge { .. } => {
            S3Error::with_message(S3ErrorCode::MaxPostPreDataLengthExceededError, error.to_string())
        }
        FormError::NoFile | FormError::Twice { .. } => policy::argument_error(&error.to_string()),
    }
}

/// Returns the `boundary=` of the Content-Type, plain or quoted, with up to 70 characters (RFC 2046
/// section 5.1.1).
fn find_boundary(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let mut parameters = kind.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
    let (_, value) = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("boundary"))?;
    let value = value.trim().trim_matches('"');
    (1..=70).contains(&value.len()).then(|| value.to_owned())
}

fn find_host(parts: &Parts) -> Option<&str> {
    let named = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    named.or_else(|| parts.uri.authority().map(|authority| authority.as_str()))
}

fn malformed_error(why: &'static str) -> S3Error {
    S3Error::with_message(S3ErrorCode::MalformedPOSTRequest, FormError::Malformed(why).to_string())
}

/// Returns the redirect of a form. Ignores one that is no URL.
fn redirect_uri(form: &MultipartForm) -> Option<Uri> {
    let text = form.get("success_action_redirect").or_else(|| form.get("redirect"))?;
    text.parse::<Uri>().ok().filter(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.authority().is_some()
    })
}

fn success_status(form: &MultipartForm) -> StatusCode {
    match form.get("success_action_status") {
        Some("200") => StatusCode::OK,
        Some("201") => StatusCode::CREATED,
        _ => StatusCode::NO_CONTENT,
    }
}

/// Builds the PUT that a form stands for.
fn build_put(mut parts: Parts, path: &str, form: MultipartForm) -> S3Result<Request<Body>> {
    let mut headers = HeaderMap::new();
    if let Some(host) = parts.headers.remove(header::HOST) {
        headers.insert(header::HOST, host);
    }
    headers.insert(header::CONTENT_LENGTH, form.file.len().into());
    for (name, value) in &form.fields {
        let known = HEADERS.contains(&name.as_str())
            || HEADER_FAMILIES.iter().any(|family| name.starts_with(family));
        let (name, value) = match name.as_str() {
            "acl" => ("x-amz-acl", value.clone()),
            "tagging" => ("x-amz-tagging", tags_query(value)?),
            name if known => (name, value.clone()),
            _ => continue,
        };
        let invalid =
            || policy::argument_error(&format!("the field {name} can't be a header's value"));
        let value = HeaderValue::try_from(value.trim()).map_err(|_| invalid())?;
        headers.insert(HeaderName::try_from(name).map_err(|_| invalid())?, value);
    }
    parts.method = Method::PUT;
    let mut uri = parts.uri.into_parts();
    uri.path_and_query = Some(path.parse().map_err(|_| S3ErrorCode::InvalidURI)?);
    parts.uri = Uri::from_parts(uri).map_err(|_| S3ErrorCode::InvalidURI)?;
    parts.headers = headers;
    Ok(Request::from_parts(parts, Body::from(form.file)))
}

/// Turns a form's tags, which are a document, into a PUT's, which are a query.
fn tags_query(document: &str) -> S3Result<String> {
    use s3s::xml::{Deserialize as _, Deserializer};
    let mut reader = Deserializer::new(document.as_bytes());
    let read = s3s::dto::Tagging::deserialize(&mut reader)
        .and_then(|tags| reader.expect_eof().map(|()| tags));
    let tagging = read.map_err(|_| S3ErrorCode::MalformedXML)?;
    let escaped = |text: &Option<String>| {
        utf8_percent_encode(text.as_deref().unwrap_or_default(), IN_QUERY).to_string()
    };
    let pairs =
        tagging.tag_set.iter().map(|tag| format!("{}={}", escaped(&tag.key), escaped(&tag.value)));
    Ok(pairs.collect::<Vec<_>>().join("&"))
}

impl FormResponsePlan {
    /// Turns the PUT's answer into the form's. Errors stay as they are.
    pub fn answer_form(self, put: HttpResponse) -> HttpResponse {
        if put.status() != StatusCode::OK {
            return put;
        }
        let (mut parts, _) = put.into_parts();
        for name in [header::CONTENT_LENGTH, header::CONTENT_TYPE, header::TRANSFER_ENCODING] {
            parts.headers.remove(name);
        }
        let etag = parts
            .headers
            .get(header::ETAG)
            .and_then(|etag| etag.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        let mut body = Body::empty();
        let mut location = self.location;
        parts.status = self.status;
        if let Some(redirect) = self.redirect {
            parts.status = StatusCode::SEE_OTHER;
            let escaped = |text: &str| utf8_percent_encode(text, IN_QUERY).to_string();
            let sign = if redirect.query().is_some() { '&' } else { '?' };
            let (bucket, key, etag) = (escaped(&self.bucket), escaped(&self.key), escaped(&etag));
            location = format!("{redirect}{sign}bucket={bucket}&key={key}&etag={etag}");
        } else if self.status == StatusCode::CREATED {
            let [location, bucket, key, etag] =
                [&location, &self.bucket, &self.key, &etag].map(|text| escape_xml(text));
            let document = format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<PostResponse><Location>{location}</Location>\
                 <Bucket>{bucket}</Bucket><Key>{key}</Key><ETag>{etag}</ETag></PostResponse>"
            );
            let written = with_references(document.as_bytes());
            body = Body::from(written.unwrap_or_else(|| document.into_bytes()));
            parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        }
        // The value is escaped, or the client itself sent it as a host and a URL.
        if let Ok(location) = HeaderValue::try_from(location) {
            parts.headers.insert(header::LOCATION, location);
        }
        HttpResponse::from_parts(parts, body)
    }
}

fn escape_xml(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\r' => out.push_str("&#13;"),
            c => out.push(c),
        }
        out
    })
}
