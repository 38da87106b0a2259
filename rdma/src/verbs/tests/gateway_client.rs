//! A client of another party that gets payloads of a running gateway by RDMA, as `hipobj-rc-v2` has
//! it, on real kernel verbs. The step `s3_over_rdma` of tests/testbed/vm-system.sh starts the gateway
//! and says where it is. What the gateway answers otherwise is tested in its own crate.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use super::client_memory::{COOKIE, Client, FIRST_PACKET, READS_MAX};
use crate::client_memory::{ClientPlace, OwnEnd, PortGid};

const STEP: &str = "set by the step s3_over_rdma of tests/testbed/vm-steps.sh";
const MARGIN: usize = 64;

/// The fields of a `ready`.
pub(super) type ReadyFields = [(&'static str, String); 5];

pub(super) fn from_step(name: &str) -> String {
    std::env::var(format!("VERBS3_TEST_{name}")).expect(STEP)
}

/// An answer: its status, and its head as it came.
pub(super) struct ControlAnswer {
    pub(super) status: u16,
    pub(super) head: String,
}

impl ControlAnswer {
    pub(super) fn field(&self, name: &str) -> &str {
        let field = format!("x-amz-rdma-{name}: ");
        let found = self.head.lines().find_map(|line| line.strip_prefix(&field));
        found.unwrap_or_else(|| panic!("no {name} in {}", self.head))
    }

    fn number(&self, name: &str) -> u32 {
        u32::from_str_radix(self.field(name), 16).unwrap()
    }
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// Returns now as `YYYYMMDDTHHMMSSZ`.
fn stamp_now() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let (days, second) = (now / 86_400, now % 86_400);
    // Days since 0000-03-01, in the calendar whose years begin in March.
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let (date, march) = (of_year - (153 * month + 2) / 5 + 1, month < 10);
    let month = if march { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(!march);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{year:04}{month:02}{date:02}T{hour:02}{minute:02}{:02}Z", second % 60)
}

/// Sends one request of the dialect, signed as hipObject's programs do.
fn ask(step: &str, fields: &[(&str, String)]) -> ControlAnswer {
    ask_with(step, fields, &[])
}

/// Sends one with headers that are not the dialect's.
fn ask_with(step: &str, fields: &[(&str, String)], plain: &[(&str, String)]) -> ControlAnswer {
    let (host, key) = (from_step("GATEWAY"), from_step("KEY"));
    let (access, secret) = key.split_once(':').unwrap();
    let stamp = stamp_now();
    let mut headers = vec![
        ("host".to_owned(), host.clone()),
        ("x-amz-date".to_owned(), stamp.clone()),
        ("x-amz-rdma-protocol".to_owned(), "hipobj-rc-v2".to_owned()),
    ];
    let named = fields.iter().map(|(name, value)| (format!("x-amz-rdma-{name}"), value.clone()));
    headers.extend(named);
    headers.extend(plain.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    headers.sort();
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    let (names, path) = (names.join(";"), format!("/.hipobj-rc/{step}"));
    let empty = hex::encode(Sha256::digest(b""));
    let canonical = format!("POST\n{path}\n\n{lines}\n{names}\n{empty}");
    let scope = format!("{}/us-east-1/hipobj/aws4_request", &stamp[..8]);
    let digest = hex::encode(Sha256::digest(canonical.as_bytes()));
    let signing = mac(format!("AWS4{secret}").as_bytes(), &stamp[..8]);
    let signing = mac(&mac(&mac(&signing, "us-east-1"), "hipobj"), "aws4_request");
    let signature = mac(&signing, &format!("AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"));
    let mut request = format!("POST {path} HTTP/1.1\r\n");
    for (name, value) in &headers {
        request += &format!("{name}: {value}\r\n");
    }
    request += &format!(
        "authorization: AWS4-HMAC-SHA256 Credential={access}/{scope}, SignedHeaders={names}, \
        Signature={}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        hex::encode(signature)
    );
    let mut socket = TcpStream::connect(host).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut head = String::new();
    socket.read_to_string(&mut head).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    ControlAnswer { status, head }
}

/// What a session is to do.
pub(super) struct SessionWish {
    pub(super) client: Client,
    pub(super) operation: &'static str,
    pub(super) target: String,
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

/// A session that is prepared, and connected on this side.
pub(super) struct PreparedSession {
    pub(super) client: Client,
    session: String,
}

impl PreparedSession {
    fn open(offset: usize, bytes: usize) -> Self {
        let client = Client::with_bytes(bytes + 2 * MARGIN);
        let target = "/demo/object".to_owned();
        Self::prepare(SessionWish { client, operation: "GET", target, offset, bytes }, &[])
    }

    /// Prepares a session, with headers that are not the dialect's.
    pub(super) fn prepare(wish: SessionWish, plain: &[(&str, String)]) -> Self {
        let SessionWish { client, operation, target, offset, bytes } = wish;
        let mut token = [0; 44];
        token[0] = 1;
        token[1..5].copy_from_slice(&client.end().pair_number.to_le_bytes());
        token[5..21].copy_from_slice(&client.gid.0);
        let mut fields = vec![
            ("token", hex::encode(token)),
            ("psn", format!("{FIRST_PACKET:06x}")),
            ("cookie", format!("{COOKIE:08x}")),
            ("op", operation.into()),
            ("target", target),
            ("offset", offset.to_string()),
            ("size", bytes.to_string()),
        ];
        if operation == "PUT" {
            fields.push(("pull", READS_MAX.to_string()));
        }
        let prepared = ask_with("prepare", &fields, plain);
        assert_eq!(prepared.status, 200, "{}", prepared.head);
        let reply = hex::decode(prepared.field("reply").strip_prefix("200:").unwrap()).unwrap();
        let gid = PortGid(reply[5..21].try_into().unwrap());
        let (pair_number, first_packet) = (prepared.number("qpn"), prepared.number("psn"));
        assert_eq!(reply[1..5], pair_number.to_le_bytes());
        client.connect_to(OwnEnd { pair_number, gid, first_packet, port: 1 });
        Self { client, session: prepared.field("session").to_owned() }
    }

    /// Has the bytes moved, by a key that is the client's, or not.
    fn order(&self, is_honest: bool) -> JoinHandle<ControlAnswer> {
        let mut place = self.client.place_at(MARGIN);
        if !is_honest {
            place.key ^= 0x00ff_ff00;
        }
        order_by(self.ready_fields(place))
    }

    pub(super) fn ready_fields(&self, place: ClientPlace) -> ReadyFields {
        [
            ("session", self.session.clone()),
            ("cookie", format!("{COOKIE:08x}")),
            ("qpn", format!("{:x}", self.client.end().pair_number)),
            ("mr-addr", format!("{:x}", place.address)),
            ("mr-rkey", format!("{:x}", place.key)),
        ]
    }

    pub(super) fn cancel(&self) -> u16 {
        ask("cancel", &[("session", self.session.clone())]).status
    }

    fn is_untouched(&self) -> bool {
        self.client.memory.iter().all(|&byte| byte == 0)
    }
}

/// Has the bytes of a session moved.
pub(super) fn order_by(fields: ReadyFields) -> JoinHandle<ControlAnswer> {
    thread::spawn(move || ask("ready", &fields))
}

async fn get_and_compare(object: &[u8], offset: usize, bytes: usize) {
    let session = PreparedSession::open(offset, bytes);
    session.client.pair.post_immediate_receive(1).unwrap();
    let answer = session.order(true);
    assert_eq!(session.client.await_immediate().await, COOKIE);
    let memory = &session.client.memory;
    // All of it is here before the answer is.
    assert!(memory[MARGIN..MARGIN + bytes] == object[offset..offset + bytes], "{offset} {bytes}");
    let answer = answer.join().unwrap();
    assert_eq!(answer.status, 200, "{}", answer.head);
    assert_eq!(answer.field("bytes-transferred"), bytes.to_string());
    assert_eq!(answer.number("cookie"), COOKIE);
    let margin = memory[..MARGIN].iter().chain(&memory[MARGIN + bytes..]);
    assert!(margin.copied().all(|byte| byte == 0), "{offset} {bytes}: only its place was written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a gateway and an RDMA device: the step s3_over_rdma of tests/testbed/vm-suite.sh"]
async fn gateway_client_gets_every_byte_of_its_ranges() {
    let object = std::fs::read(from_step("OBJECT")).unwrap();
    let all = object.len();
    for (offset, bytes) in [
        (0, 1),
        (all - 1, 1),
        (7, 4_095),
        (4 << 20, 4_096),
        ((4 << 20) - 5, 10),
        (123_456, 262_145),
        (1, 9_000_001),
        (0, 64 << 20),
        (0, all),
    ] {
        get_and_compare(&object, offset, bytes).await;
    }
}

/// The client has posted no receive, so that the write waits until the client gives it up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a gateway and an RDMA device: the step s3_over_rdma of tests/testbed/vm-suite.sh"]
async fn gateway_client_is_not_written_to_behind_its_cancel() {
    let session = PreparedSession::open(0, 512);
    let answer = session.order(true);
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(!answer.is_finished(), "it waits for the receive");
    assert_eq!(session.cancel(), 204);
    session.client.pair.post_immediate_receive(1).unwrap();
    assert_eq!(answer.join().unwrap().status, 409);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(session.client.take_immediate(), None);
    assert!(session.is_untouched());
    assert_eq!(session.cancel(), 204);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a gateway and an RDMA device: the step s3_over_rdma of tests/testbed/vm-suite.sh"]
async fn gateway_client_that_lies_harms_no_other() {
    let object = std::fs::read(from_step("OBJECT")).unwrap();
    let waiting = PreparedSession::open(0, 300_000);
    let liar = PreparedSession::open(0, 4_096);
    liar.client.pair.post_immediate_receive(1).unwrap();
    assert_eq!(liar.order(false).join().unwrap().status, 500);
    assert!(liar.is_untouched());
    let gone = PreparedSession::open(0, 4_096);
    let order = gone.order(true);
    drop(gone);
    assert_eq!(order.join().unwrap().status, 500);
    waiting.client.pair.post_immediate_receive(1).unwrap();
    let answer = waiting.order(true);
    assert_eq!(waiting.client.await_immediate().await, COOKIE);
    assert!(waiting.client.memory[MARGIN..MARGIN + 300_000] == object[..300_000]);
    assert_eq!(answer.join().unwrap().status, 200);
}
