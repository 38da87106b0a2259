//! Tests what a follower does with answers, and whom it asks.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use verbs3_protocol::{ClusterMember, WorkerId};

use super::*;
use crate::client::CoordinatorClientOptions;
use crate::proof::{ANSWER_HEADER, ClusterSecret, ProvenRequest, REQUEST_HEADER};

fn secret() -> ClusterSecret {
    ClusterSecret::new("tests", "a secret of at least sixteen characters")
}

fn client(coordinators: Vec<String>) -> Arc<CoordinatorClient> {
    let within = Duration::from_secs(20);
    Arc::new(CoordinatorClient::new(CoordinatorClientOptions {
        coordinators,
        secrets: secret().into(),
        tls: None,
        connect_deadline: within,
        deadline: within,
    }))
}

fn membership(epoch: u64, workers: &[&str]) -> MemberRoster {
    let member = |id: &&str| ClusterMember {
        id: WorkerId((*id).into()),
        address: format!("{id}:9400"),
        weight: 1.0,
        zone: String::new(),
        draining: false,
    };
    MemberRoster::new(Epoch(epoch), 2, workers.iter().map(member).collect())
}

fn follows() -> (MapFollower, MapWatch) {
    MapFollower::new(client(vec!["http://nobody:1".into()]))
}

#[test]
fn a_change_of_the_known_map_makes_the_next_one() {
    let (follower, map) = follows();
    let (known, next) = (membership(5, &["a", "b"]), membership(9, &["b", "c"]));
    assert!(follower.adopt_answer(Some(&known), MapAnswer::Change(known.change_to(&next))));
    assert_eq!(map.borrow().as_deref(), Some(&next));
}

#[test]
fn a_change_of_another_map_changes_nothing() {
    let (follower, map) = follows();
    let (known, other, next) =
        (membership(5, &["a"]), membership(6, &["a", "b"]), membership(9, &["b"]));
    assert!(follower.adopt_answer(None, MapAnswer::Membership(known.clone())));
    assert!(!follower.adopt_answer(Some(&known), MapAnswer::Change(other.change_to(&next))));
    // Nor where none is known.
    assert!(!follower.adopt_answer(None, MapAnswer::Change(other.change_to(&next))));
    assert_eq!(map.borrow().as_deref(), Some(&known));
}

#[test]
fn after_a_gap_the_whole_list_is_taken_and_an_older_one_is_not() {
    let (follower, map) = follows();
    let (known, much_later, older) =
        (membership(5, &["a"]), membership(900, &["x", "y"]), membership(4, &["z"]));
    assert!(follower.adopt_answer(Some(&known), MapAnswer::Membership(much_later.clone())));
    assert!(!follower.adopt_answer(Some(&much_later), MapAnswer::Membership(older)));
    assert!(
        !follower.adopt_answer(Some(&much_later), MapAnswer::Membership(membership(900, &["z"])))
    );
    assert_eq!(map.borrow().as_deref(), Some(&much_later));
}

/// Starts a coordinator that knows only this map. Returns its URL and how often it was asked.
async fn coordinator(knows: MemberRoster) -> (String, Arc<AtomicUsize>) {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    let asked: Arc<AtomicUsize> = Arc::default();
    let counted = asked.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = socket.accept().await.unwrap();
            let mut request = String::new();
            while !request.ends_with("\r\n\r\n") {
                let mut piece = [0; 1024];
                let count = stream.read(&mut piece).await.unwrap();
                request.push_str(std::str::from_utf8(&piece[..count]).unwrap());
            }
            counted.fetch_add(1, Ordering::SeqCst);
            let path = request.split(' ').nth(1).unwrap();
            let epoch: u64 = path.split(['=', '&']).nth(1).unwrap().parse().unwrap();
            let header = request
                .lines()
                .find_map(|line| line.strip_prefix(REQUEST_HEADER)?.strip_prefix(": "))
                .unwrap();
            let said = ProvenRequest { method: "GET", path_and_query: path, body: b"" };
            let proof = secret().check_request(said.request_head(), Some(header)).unwrap();
            let (status, body) = match epoch < knows.epoch.0 {
                true => (200, serde_json::to_vec(&MapAnswer::Membership(knows.clone())).unwrap()),
                false => (204, Vec::new()),
            };
            let proved = secret().prove_answer(&proof, status, &body);
            let head = format!(
                "HTTP/1.1 {status} OK\r\n{ANSWER_HEADER}: {proved}\r\nconnection: close\r\n"
            );
            let length = if status == 204 {
                String::new()
            } else {
                format!("content-length: {}\r\n", body.len())
            };
            stream.write_all(format!("{head}{length}\r\n").as_bytes()).await.unwrap();
            stream.write_all(&body).await.unwrap();
        }
    });
    (url, asked)
}

#[tokio::test]
async fn a_coordinator_that_lags_behind_is_not_followed_for_ever() {
    let (old, new) = (membership(5, &["a"]), membership(8, &["a", "b"]));
    // Chance decides which of the two is asked first.
    for _ in 0..4 {
        let (lags, was_asked) = coordinator(old.clone()).await;
        let (leads, _) = coordinator(new.clone()).await;
        let (follower, mut map) = MapFollower::new(client(vec![lags, leads]));
        let stop = CancellationToken::new();
        let following =
            tokio::spawn(follower.with_wait(Duration::from_millis(10)).run(stop.clone()));
        let newest = |map: &Option<Arc<MemberRoster>>| map.as_deref() == Some(&new);
        tokio::time::timeout(Duration::from_secs(60), map.wait_for(newest)).await.unwrap().unwrap();
        // It is asked again, and what it knows does not count as news.
        let before = was_asked.load(Ordering::SeqCst);
        while was_asked.load(Ordering::SeqCst) < before + 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(map.borrow().as_deref(), Some(&new));
        stop.cancel();
        following.await.unwrap();
    }
}
