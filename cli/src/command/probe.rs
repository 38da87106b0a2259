//! `verbs3 probe`: asks one process for its health, over its socket file.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::arguments::probe::ProbeArguments;

/// An end for who asks by hand; a kubelet has its own, `timeoutSeconds`.
const ANSWER_MAX: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Prints what the process says. Status 0: it is so. 1: it is not, or can't be asked.
pub fn run_probe(arguments: &ProbeArguments) -> ExitCode {
    let asked = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("can't start a runtime")
        .and_then(|runtime| {
            runtime.block_on(async {
                timeout(ANSWER_MAX, ask_process(&arguments.socket, arguments.question.path()))
                    .await
                    .context("no answer within 10 seconds")?
            })
        });
    match asked {
        Ok((is_so, text)) => {
            print!("{text}");
            if is_so { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("{}: {error:#}", arguments.socket.display());
            ExitCode::FAILURE
        }
    }
}

async fn ask_process(socket: &Path, path: &str) -> anyhow::Result<(bool, String)> {
    let stream = UnixStream::connect(socket).await.context("nobody answers there")?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::get(path).header(header::HOST, "probe").body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    let is_so = answer.status().is_success();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    connection.abort();
    let bytes = body.map_err(|error| anyhow::anyhow!("{error}"))?.to_bytes();
    Ok((is_so, String::from_utf8_lossy(&bytes).into_owned()))
}
