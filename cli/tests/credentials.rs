//! Credentials of remote stores that run out: each kind is renewed before its end, and nothing of
//! them is logged.
//!
//! One `verbs3 dev` with a mount for each kind, in front of a store that verifies signatures and
//! lets no key be used past its end. STS, instance metadata and a credentials process are one small
//! service that gives out keys for seconds.
#![allow(clippy::unwrap_used)]

mod issuer;
mod processes;

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use aws_sdk_s3::primitives::ByteStream;
use issuer::{BASE_KEY, BASE_SECRET, Issuer, LIFETIME, VerifyingStore};
use processes::{Process, dev_key};

const KINDS: [&str; 4] = ["web", "machine", "role", "process"];

/// The SDK fetches credentials anew when they have less than this to live.
const RENEWED_BEFORE: Duration = Duration::from_secs(10);

fn configuration(folder: &Path, issuer: &str, store: &str) -> String {
    let token = folder.join("token");
    std::fs::write(&token, "hush-identity-token\n").unwrap();
    let script = folder.join("credentials.sh");
    let (host, port) = issuer.rsplit_once(':').unwrap();
    let ask = format!(
        "exec 3<>/dev/tcp/{host}/{port}; printf 'GET /process HTTP/1.0\\r\\n\\r\\n' >&3; sed \
        '1,/^\\r*$/d' <&3"
    );
    std::fs::write(&script, ask).unwrap();
    let profiles = folder.join("profiles");
    std::fs::write(
        &profiles,
        format!("[team]\ncredential_process = /bin/bash {}\n", script.display()),
    )
    .unwrap();
    let credentials = [
        (
            "web",
            format!(
                "kind = \"web_identity\", role_arn = \"arn:aws:iam::1:role/web\", token_file = \
                {token:?}, sts_endpoint = \"http://{issuer}\""
            ),
        ),
        ("machine", format!("kind = \"instance\", metadata_endpoint = \"http://{issuer}\"")),
        (
            "role",
            format!(
                "kind = \"assume_role\", role_arn = \"arn:aws:iam::1:role/assumed\", external_id = \
                \"hush-external-id\", sts_endpoint = \"http://{issuer}\""
            ),
        ),
        ("process", format!("kind = \"profile\", profile = \"team\", profile_file = {profiles:?}")),
    ];
    let mut text = "[log]\nlevel = \"trace\"\n".to_owned();
    for (kind, credentials) in credentials {
        text += &format!(
            "\n[[ufs]]\nname = \"{kind}\"\nendpoint = \"http://{store}\"\nnamespace = \
            \"{kind}\"\ncredentials = {{ {credentials} }}\n"
        );
        text += &format!(
            "[[mount]]\nname = \"{kind}\"\nufs = \"{kind}\"\nattributes_ttl = \"0\"\nabsence_ttl = \
            \"0\"\n"
        );
    }
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewed_keys_sign_requests_and_no_secret_is_logged() {
    let folder = tempfile::tempdir().unwrap();
    let issuer = Issuer::start().await;
    let store = VerifyingStore::start(folder.path(), &KINDS, issuer.keys.clone()).await;
    let file = folder.path().join("dev.toml");
    std::fs::write(&file, configuration(folder.path(), &issuer.address, &store.address)).unwrap();
    let dir = folder.path().join("data");
    let words = [
        "dev",
        "--config",
        file.to_str().unwrap(),
        "--no-demo",
        "--listen",
        "127.0.0.1:0",
        "--dir",
        dir.to_str().unwrap(),
    ];
    let small = ["--set", "worker.memory.capacity=32MiB", "--set", "gateway.memory.capacity=32MiB"];
    let variables = [
        ("AWS_ACCESS_KEY_ID", BASE_KEY),
        ("AWS_SECRET_ACCESS_KEY", BASE_SECRET),
        ("AWS_CONFIG_FILE", "/dev/null"),
    ];
    let mut dev =
        Process::start_in(folder.path(), "dev", &[&words[..], &small[..]].concat(), &variables);
    let (access, secret) = dev_key(&dir);
    let client = dev.client(&access, &secret);

    // Longer than two lifetimes: what was not renewed would be refused by the store, and recorded.
    let began = Instant::now();
    let mut round = 0;
    while began.elapsed() < LIFETIME * 2 + Duration::from_secs(2) {
        for kind in KINDS {
            let key = format!("{kind}-{round}");
            let put = client
                .put_object()
                .bucket(kind)
                .key(&key)
                .body(ByteStream::from_static(b"bytes"))
                .send()
                .await;
            assert!(put.is_ok(), "{kind}: {put:?}");
            let got = client.get_object().bucket(kind).key(&key).send().await.unwrap();
            assert_eq!(&got.body.collect().await.unwrap().to_vec(), b"bytes");
        }
        round += 1;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }

    let keys = issuer.keys.lock().unwrap().clone();
    for kind in KINDS {
        let mine: Vec<_> = keys.iter().filter(|key| key.kind == kind).collect();
        assert!(mine.len() >= 3, "{kind}: only {} keys were fetched in two lifetimes", mine.len());
        for pair in mine.windows(2) {
            let early = pair[0].until.duration_since(pair[1].given).unwrap_or_default();
            assert!(pair[1].given < pair[0].until, "{kind}: renewed only after the end");
            assert!(
                early <= RENEWED_BEFORE + Duration::from_secs(1),
                "{kind}: asked anew {early:?} before the end"
            );
        }
        let used: Vec<bool> = mine.iter().map(|key| store.uses(&key.access) > 0).collect();
        assert!(
            used[..used.len() - 1].iter().all(|used| *used),
            "{kind}: keys fetched and not used: {used:?}"
        );
        assert!(store.uses(&mine[0].access) > 0 && mine[0].until < SystemTime::now(), "{kind}");
    }
    assert_eq!(
        store.refused(),
        Vec::<String>::new(),
        "signed with keys that were over, unknown or without their token"
    );
    assert_eq!(issuer.complaints(), Vec::<String>::new());

    assert_eq!(dev.end(), Some(0));
    let log = dev.log();
    // Lines of the log are JSON; what else is there is what `verbs3 dev` tells its user, its own
    // new key among it.
    let log: Vec<&str> = log.lines().filter(|line| line.starts_with('{')).collect();
    assert!(log.iter().any(|line| line.contains("\"TRACE\"")), "the log is not at its loudest");
    let secrets = keys.iter().flat_map(|key| [key.secret.as_str(), key.token.as_str()]);
    for hush in secrets.chain(["hush-", BASE_SECRET]) {
        let line = log.iter().find(|line| line.contains(hush));
        assert!(line.is_none(), "{hush:?} is in the log: {}", line.unwrap_or(&""));
    }
    let loud: Vec<&str> = log
        .into_iter()
        .filter(|line| line.contains("\"WARN\"") || line.contains("\"ERROR\""))
        .collect();
    assert!(loud.is_empty(), "{loud:#?}");
}
