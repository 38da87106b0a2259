//! The progress of a preload job as a coordinator streams it: lines, each of which proves itself.
//! Until the stream ends, for whatever reason; what that means is the tests'.

use anyhow::{Context, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use verbs3_coordinator_client::proof::{
    ClusterSecret, ProofRecipient, ProvenRequest, RECIPIENT_HEADER, REQUEST_HEADER, wall_clock_ms,
};

/// Follows job `id` at the coordinator at `host`, which is asked before this returns. The lines,
/// once the stream has ended.
pub async fn follow(
    secret: ClusterSecret,
    host: &str,
    id: &str,
) -> anyhow::Result<JoinHandle<anyhow::Result<Vec<serde_json::Value>>>> {
    let path = format!("/v1/preload/{id}/progress");
    let said = ProvenRequest { method: "GET", path_and_query: &path, body: b"" };
    let (header, proof) = secret.prove_request(said, &recipient(host).await?, wall_clock_ms());
    let mut stream = TcpStream::connect(host).await.with_context(|| host.to_owned())?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{REQUEST_HEADER}: \
        {header}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = vec![0; 4096];
    let begun = stream.read(&mut answer).await?;
    answer.truncate(begun);
    Ok(tokio::spawn(async move {
        // A coordinator that steps down may end the stream as it likes.
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer)?;
        ensure!(
            answer.starts_with("HTTP/1.1 200") && answer.contains("application/x-ndjson"),
            "{answer}"
        );
        // Between the lines are the lengths of chunks.
        let lines =
            answer.lines().filter_map(|line| line.strip_prefix("{\"proof\":\"")?.strip_suffix('}'));
        let check = |(number, line): (usize, &str)| {
            let (mac, said) = line.split_once("\",\"said\":").with_context(|| line.to_owned())?;
            ensure!(
                secret.check_line(&proof, number as u64, said.as_bytes(), mac),
                "line {number} is not proved: {line}"
            );
            Ok(serde_json::from_str(said)?)
        };
        lines.enumerate().map(check).collect()
    }))
}

/// What a coordinator calls itself; it tells everybody.
async fn recipient(host: &str) -> anyhow::Result<ProofRecipient> {
    let mut stream = TcpStream::connect(host).await.with_context(|| host.to_owned())?;
    let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let name =
        answer.lines().find_map(|line| line.strip_prefix(RECIPIENT_HEADER)?.strip_prefix(": "));
    Ok(ProofRecipient(name.context("an answer without a name")?.to_owned()))
}
