//! The proxy's connections: one to the store for each request, so that a broken one takes nothing
//! else along.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, ETAG};
use http::{HeaderValue, Request, Response};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::body::{self, Body, Error};
use super::{Fault, Faults};

pub async fn serve(listener: TcpListener, upstream: String, faults: Faults) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        let _ = socket.set_nodelay(true);
        let (upstream, faults) = (upstream.clone(), faults.clone());
        connections.spawn(async move {
            let service =
                service_fn(move |request| handle(request, upstream.clone(), faults.clone()));
            // A connection that a fault has ended is no news.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
}

/// An error closes the client's connection without an answer, or in the middle of one.
async fn handle(
    request: Request<Incoming>,
    upstream: String,
    faults: Faults,
) -> Result<Response<Body>, Error> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let has_body = !request.body().is_end_stream();
    let (head, incoming) = request.into_parts();
    let fault = faults.take(&head, &path);
    match &fault {
        Some(Fault::Refused { status, code }) => {
            return Ok(refused(*status, code, head.method == "HEAD"));
        }
        Some(Fault::Dropped) => return Err("dropped by the proxy".into()),
        Some(Fault::Slow { wait, .. }) => tokio::time::sleep(*wait).await,
        Some(Fault::RequestHeld) => faults.hold().await,
        _ => {}
    }
    let body = match fault {
        Some(Fault::BodyCut { after }) if has_body => body::cut(incoming, after),
        _ => body::whole(incoming),
    };
    let answer = ask(&upstream, Request::from_parts(head, body)).await?;
    if fault == Some(Fault::AnswerLost) {
        return Err("the answer is lost".into());
    }
    if fault == Some(Fault::AnswerHeld) {
        faults.hold().await;
    }
    let (mut head, incoming) = answer.into_parts();
    let said = head
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    let length = said.unwrap_or(0);
    match &fault {
        Some(Fault::OtherEtag) => {
            if let Some(etag) = head.headers.get(ETAG) {
                // Of its own for each version: two versions under one ETag are one object, by S3's
                // rules.
                let other = etag.as_bytes().iter().rev().copied().collect::<Vec<u8>>();
                head.headers.insert(ETAG, HeaderValue::from_bytes(&other)?);
            }
        }
        Some(Fault::OtherLength { by }) if said.is_some() => {
            head.headers.insert(
                CONTENT_LENGTH,
                HeaderValue::from(length.saturating_add_signed(isize::try_from(*by)?)),
            );
        }
        _ => {}
    }
    let body = body::answer(incoming, length, fault.as_ref(), &faults);
    Ok(Response::from_parts(head, body))
}

async fn ask(upstream: &str, request: Request<Body>) -> Result<Response<Incoming>, Error> {
    let socket = TcpStream::connect(upstream).await?;
    socket.set_nodelay(true)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
    tokio::spawn(connection);
    let mut answer = sender.send_request(request).await?;
    // About the store's connection, which is not the client's.
    answer.headers_mut().remove(CONNECTION);
    Ok(answer)
}

fn refused(status: u16, code: &str, head: bool) -> Response<Body> {
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code><Message>on \
        purpose</Message></Error>"
    );
    let mut answer = Response::new(body::full(if head { Bytes::new() } else { Bytes::from(text) }));
    *answer.status_mut() =
        http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    answer
}
