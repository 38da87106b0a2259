//! A small S3 client for the demonstration: HEAD, PUT and GET with SigV4 over kept connections.
//! Checks what it reads as it arrives and keeps none of it.

use std::net::SocketAddr;
use std::time::SystemTime;

use anyhow::{Context, anyhow, bail, ensure};
use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, SignableBody, SignableRequest, SigningSettings, sign,
};
use aws_sigv4::sign::v4;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::dataset::{DemoSample, SampleContent};
use crate::dev::DevAccessKey;

pub struct DemoClient {
    http: Http<HttpConnector, Full<Bytes>>,
    address: SocketAddr,
    key: DevAccessKey,
    bucket: &'static str,
}

impl DemoClient {
    pub fn new(address: SocketAddr, key: DevAccessKey, bucket: &'static str) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self { http: Http::builder(TokioExecutor::new()).build(connector), address, key, bucket }
    }

    /// Length of an object; `None` if there is none.
    pub async fn object_length(&self, key: &str) -> anyhow::Result<Option<u64>> {
        let answer = self.send_request(Method::HEAD, key, Bytes::new()).await?;
        match answer.status() {
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::OK => Ok(Some(content_length(&answer)?)),
            status => bail!("HEAD answered {status}"),
        }
    }

    pub async fn put_sample(&self, sample: &DemoSample) -> anyhow::Result<()> {
        let mut bytes = vec![0; usize::try_from(sample.bytes)?];
        SampleContent::for_key(&sample.key).fill_next(&mut bytes);
        let answer = self.send_request(Method::PUT, &sample.key, bytes.into()).await?;
        expect_ok(answer, "PUT").await?;
        Ok(())
    }

    /// Reads an object whole and checks every byte; gives the cache's verdict.
    pub async fn read(&self, sample: &DemoSample) -> anyhow::Result<String> {
        let answer = self.send_request(Method::GET, &sample.key, Bytes::new()).await?;
        let mut answer = expect_ok(answer, "GET").await?;
        let verdict = answer
            .headers()
            .get("x-verbs3-cache")
            .and_then(|value| value.to_str().ok())
            .unwrap_or("none");
        let verdict = verdict.to_owned();
        let (mut content, mut got) = (SampleContent::for_key(&sample.key), 0);
        while let Some(frame) = answer.body_mut().frame().await {
            if let Ok(data) = frame.context("the body broke off")?.into_data() {
                content
                    .verify_next(&data)
                    .map_err(|at| anyhow!("WRONG BYTES at offset {at}; please report this"))?;
                got += data.len() as u64;
            }
        }
        ensure!(got == sample.bytes, "{got} of {} bytes came", sample.bytes);
        Ok(verdict)
    }

    async fn send_request(
        &self,
        method: Method,
        key: &str,
        body: Bytes,
    ) -> anyhow::Result<Response<Incoming>> {
        // Keys of the dataset need no escaping.
        let url = format!("http://{}/{}/{key}", self.address, self.bucket);
        let identity =
            Credentials::new(&self.key.access_key, &self.key.secret_key, None, None, "demo").into();
        let mut settings = SigningSettings::default();
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region("us-east-1")
            .name("s3")
            .time(SystemTime::now())
            .settings(settings)
            .build()?
            .into();
        let host = self.address.to_string();
        let headers = [("host", host.as_str())].into_iter();
        // Not over the body: hashing it would be most of what is measured.
        let signable =
            SignableRequest::new(method.as_str(), &url, headers, SignableBody::UnsignedPayload)?;
        let (signed, _) = sign(signable, &parameters).context("can't sign")?.into_parts();
        let mut request = Request::builder().method(method).uri(&url);
        for (name, value) in signed.headers() {
            request = request.header(name, value);
        }
        Ok(self.http.request(request.body(Full::new(body))?).await?)
    }
}

fn content_length(answer: &Response<Incoming>) -> anyhow::Result<u64> {
    let value = answer
        .headers()
        .get(http::header::CONTENT_LENGTH)
        .context("the answer has no Content-Length")?;
    Ok(value.to_str()?.parse()?)
}

async fn expect_ok(answer: Response<Incoming>, method: &str) -> anyhow::Result<Response<Incoming>> {
    if answer.status() == StatusCode::OK {
        return Ok(answer);
    }
    let status = answer.status();
    let body = answer.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    bail!("{method} answered {status}: {}", String::from_utf8_lossy(&body))
}
