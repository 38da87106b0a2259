//! Serves objects that exist nowhere: any number, all of one length, all zeros. Tests that need a
//! million objects, or one of 100 GiB, can run on a machine that has room for neither.
//!
//! Owns just enough of S3: one bucket, GET with ranges, HEAD, ListObjectsV2. Checks no signature
//! and accepts no write. Not a reference for speed; `verbs3 dev` behind the proxy is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use percent_encoding::percent_decode_str;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Longest line of a request's head, in bytes.
const LINE_BYTES_MAX: usize = 16 << 10;
/// Bytes of one write.
const PIECE_BYTES: usize = 256 << 10;
static ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];

/// Objects of the store. A name is the prefix and a number of nine digits.
#[derive(Debug, Clone)]
pub struct SyntheticObjects {
    pub prefix: String,
    pub count: u64,
    pub bytes: u64,
}

/// Counts of the requests so far.
#[derive(Debug, Default)]
pub struct SyntheticCounters {
    pub gets: AtomicU64,
    pub lists: AtomicU64,
    pub body_bytes: AtomicU64,
}

/// Server that answers while `run` is polled.
pub struct SyntheticStore {
    listener: TcpListener,
    objects: Arc<SyntheticObjects>,
    asked: Arc<SyntheticCounters>,
}

impl SyntheticStore {
    /// Listens on `listen`; port 0 takes a free one. Accepts nothing before `run`.
    pub async fn bind(listen: SocketAddr, objects: SyntheticObjects) -> std::io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind(listen).await?,
            objects: Arc::new(objects),
            asked: Arc::default(),
        })
    }

    /// Address that clients connect to.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns the counters, which go on while the server runs.
    pub fn request_counters(&self) -> Arc<SyntheticCounters> {
        self.asked.clone()
    }

    /// Serves until it is dropped.
    pub async fn run(self) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    // The task ends with its connection, or with the process.
                    tokio::spawn(serve_connection(
                        stream,
                        self.objects.clone(),
                        self.asked.clone(),
                    ));
                }
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            }
        }
    }
}

struct SyntheticRequestHead {
    method: String,
    path: String,
    query: String,
    range: Option<(u64, Option<u64>)>,
}

async fn serve_connection(
    stream: TcpStream,
    objects: Arc<SyntheticObjects>,
    asked: Arc<SyntheticCounters>,
) {
    let mut stream = BufReader::new(stream);
    while let Some(head) = read_head(&mut stream).await {
        if answer_request(&mut stream, &head, &objects, &asked).await.is_err() {
            return;
        }
    }
}

/// Reads a request's head. `None`: the connection is over, or sent something else.
async fn read_head(stream: &mut BufReader<TcpStream>) -> Option<SyntheticRequestHead> {
    let mut line = String::new();
    let mut next = async |line: &mut String| {
        line.clear();
        let read = stream.read_line(line).await.ok()?;
        (read > 0 && read <= LINE_BYTES_MAX).then_some(())
    };
    next(&mut line).await?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let mut head = SyntheticRequestHead {
        method,
        path: decode_text(path),
        query: query.to_owned(),
        range: None,
    };
    loop {
        next(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(':') else { return Some(head) };
        if name.eq_ignore_ascii_case("range") {
            let (first, last) = value.trim().strip_prefix("bytes=")?.split_once('-')?;
            head.range = Some((first.parse().ok()?, last.parse().ok()));
        }
    }
}

fn decode_text(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

impl SyntheticRequestHead {
    fn query_parameter(&self, name: &str) -> Option<String> {
        let mut pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        Some(decode_text(pairs.find(|(known, _)| *known == name)?.1))
    }

    /// Returns the part of the path behind the bucket.
    fn object_key(&self) -> &str {
        self.path.trim_start_matches('/').split_once('/').map_or("", |(_, key)| key)
    }
}

async fn answer_request(
    stream: &mut BufReader<TcpStream>,
    head: &SyntheticRequestHead,
    objects: &SyntheticObjects,
    asked: &SyntheticCounters,
) -> std::io::Result<()> {
    let text = match (head.method.as_str(), head.object_key()) {
        ("GET", "") => {
            asked.lists.fetch_add(1, Ordering::Relaxed);
            let body = list_objects(head, objects);
            format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/xml\r\ncontent-length: \
                {}\r\n\r\n{body}",
                body.len()
            )
        }
        ("GET" | "HEAD", key) if objects.contains_key(key) => {
            return send_object(stream, head, objects, asked).await;
        }
        ("GET" | "HEAD", _) => {
            let body = "<Error><Code>NoSuchKey</Code></Error>";
            let body = if head.method == "HEAD" { "" } else { body };
            format!("HTTP/1.1 404 Not Found\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        }
        _ => "HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            .to_owned(),
    };
    stream.get_mut().write_all(text.as_bytes()).await
}

async fn send_object(
    stream: &mut BufReader<TcpStream>,
    head: &SyntheticRequestHead,
    objects: &SyntheticObjects,
    asked: &SyntheticCounters,
) -> std::io::Result<()> {
    let (first, end) = match head.range {
        None => (0, objects.bytes),
        Some((first, last)) => {
            (first, last.map_or(objects.bytes, |last| (last + 1).min(objects.bytes)))
        }
    };
    let same = format!(
        "etag: \"{:016x}\"\r\nlast-modified: Sat, 21 Nov 2026 00:00:00 GMT\r\n",
        objects.bytes
    );
    if head.range.is_some() && first >= objects.bytes {
        let text = format!("HTTP/1.1 416 Range Not Satisfiable\r\ncontent-length: 0\r\n{same}\r\n");
        return stream.get_mut().write_all(text.as_bytes()).await;
    }
    let status = match head.range {
        None => "200 OK\r\n".to_owned(),
        Some(_) => format!(
            "206 Partial Content\r\ncontent-range: bytes {first}-{}/{}\r\n",
            end - 1,
            objects.bytes
        ),
    };
    let text = format!(
        "HTTP/1.1 {status}content-length: {}\r\naccept-ranges: bytes\r\n{same}\r\n",
        end.saturating_sub(first)
    );
    stream.get_mut().write_all(text.as_bytes()).await?;
    if head.method == "HEAD" {
        return Ok(());
    }
    asked.gets.fetch_add(1, Ordering::Relaxed);
    let mut left = end.saturating_sub(first);
    while left > 0 {
        let piece = left.min(PIECE_BYTES as u64);
        stream.get_mut().write_all(&ZEROS[..piece as usize]).await?;
        asked.body_bytes.fetch_add(piece, Ordering::Relaxed);
        left -= piece;
    }
    Ok(())
}

impl SyntheticObjects {
    fn object_name(&self, number: u64) -> String {
        format!("{}{number:09}", self.prefix)
    }

    fn contains_key(&self, key: &str) -> bool {
        let number = key.strip_prefix(self.prefix.as_str()).filter(|digits| digits.len() == 9);
        number
            .and_then(|digits| digits.parse::<u64>().ok())
            .is_some_and(|number| number < self.count)
    }

    /// Returns the number of the first object whose name is greater than this one.
    fn first_after(&self, name: &str) -> u64 {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.object_name(middle).as_str() > name { high = middle } else { low = middle + 1 }
        }
        low
    }
}

fn list_objects(head: &SyntheticRequestHead, objects: &SyntheticObjects) -> String {
    let (prefix, most) =
        (head.query_parameter("prefix").unwrap_or_default(), head.query_parameter("max-keys"));
    let most = most.and_then(|most| most.parse().ok()).unwrap_or(1000).min(1000);
    let after = head
        .query_parameter("continuation-token")
        .or_else(|| head.query_parameter("start-after"))
        .unwrap_or_default();
    let first = objects.first_after(&after);
    let names = (first..objects.count)
        .map(|number| objects.object_name(number))
        .filter(|name| name.starts_with(&prefix));
    let mut names: Vec<String> = names.take(most + 1).collect();
    let is_truncated = names.len() > most;
    names.truncate(most);
    let mut body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
         <ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
         <Name>synthetic</Name><Prefix>{prefix}</Prefix><KeyCount>{}</KeyCount>\
         <MaxKeys>{most}</MaxKeys><IsTruncated>{is_truncated}</IsTruncated>",
        names.len()
    );
    if let Some(last) = names.last().filter(|_| is_truncated) {
        body.push_str(&format!("<NextContinuationToken>{last}</NextContinuationToken>"));
    }
    for name in &names {
        body.push_str(&format!(
            "<Contents><Key>{name}</Key><LastModified>2026-11-21T00:00:00.000Z</LastModified>\
             <ETag>&quot;{:016x}&quot;</ETag><Size>{}</Size>\
             <StorageClass>STANDARD</StorageClass></Contents>",
            objects.bytes, objects.bytes
        ));
    }
    body.push_str("</ListBucketResult>");
    body
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::io::AsyncReadExt;

    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[tokio::test]
    async fn objects_are_listed_in_pages_and_read_by_range() {
        let objects = SyntheticObjects { prefix: "a/".into(), count: 2500, bytes: 700_000 };
        let store = SyntheticStore::bind("127.0.0.1:0".parse().unwrap(), objects).await.unwrap();
        let (address, asked) = (store.local_addr().unwrap(), store.request_counters());
        let running = tokio::spawn(store.run());
        let (mut after, mut listed) = (String::new(), 0);
        loop {
            let page = ask(
                address,
                &format!("GET /b?list-type=2&prefix=a%2F&start-after={after} HTTP/1.1\r\n\r\n"),
            )
            .await;
            let keys: Vec<&str> =
                page.split("<Key>").skip(1).map(|part| part.split('<').next().unwrap()).collect();
            listed += keys.len();
            if page.contains("<IsTruncated>false") {
                break;
            }
            after = (*keys.last().unwrap()).to_owned();
        }
        assert_eq!((listed, asked.lists.load(Ordering::Relaxed)), (2500, 3));
        let part =
            ask(address, "GET /b/a/000002499 HTTP/1.1\r\nRange: bytes=699990-800000\r\n\r\n").await;
        assert!(
            part.starts_with("HTTP/1.1 206") && part.contains("bytes 699990-699999/700000"),
            "{part}"
        );
        assert!(part.ends_with(&"\0".repeat(10)) && asked.body_bytes.load(Ordering::Relaxed) == 10);
        let head = ask(address, "HEAD /b/a/000000000 HTTP/1.1\r\n\r\n").await;
        assert!(head.contains("content-length: 700000") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(
            ask(address, "GET /b/a/000002500 HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 404")
        );
        assert!(
            ask(address, "PUT /b/a/000000000 HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 405")
        );
        running.abort();
    }
}
