//! Who may do what: S3's own codes for bad signatures, the rules of the identities file, and its
//! reload.

use std::fs;
use std::path::Path;

use time::Duration;
use verbs3_gateway::auth::IdentityStore;

use crate::gateway_fixture::{GatewayFixture, GatewaySetup};
use crate::signing::{ACCESS_KEY, Request};

#[tokio::test]
async fn bad_signatures_get_s3s_codes() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/data/x", b"hello").await;
    let get = || Request::new("GET", "/data/x");
    let send = async |request: Request| fixture.send(&request, b"").await.error();
    assert_eq!(
        send(get().by(ACCESS_KEY, "wrong")).await,
        (403, "SignatureDoesNotMatch".to_owned())
    );
    assert_eq!(send(get().by("NOBODY", "wrong")).await, (403, "InvalidAccessKeyId".to_owned()));
    let mut early = get();
    early.time -= Duration::minutes(20);
    assert_eq!(send(early).await, (403, "RequestTimeTooSkewed".to_owned()));
    let host = fixture.host();
    let anonymous = format!("GET /data/x HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    assert_eq!(fixture.exchange(&anonymous, b"").await.error(), (403, "AccessDenied".to_owned()));
}

#[tokio::test]
async fn presigned_urls_work_until_they_expire() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/data/x", b"hello").await;
    let mut request = Request::new("GET", "/data/x");
    let answer = fixture.exchange(&request.presigned(&fixture.host(), 60), b"").await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
    request.time -= Duration::minutes(2);
    let answer = fixture.exchange(&request.presigned(&fixture.host(), 60), b"").await;
    assert_eq!(answer.error(), (403, "AccessDenied".to_owned()));
    request.secret_key = "wrong".to_owned();
    let answer = fixture.exchange(&request.presigned(&fixture.host(), 3600), b"").await;
    assert_eq!(answer.error(), (403, "SignatureDoesNotMatch".to_owned()));
}

pub fn rules(path: &Path, allow: &str) {
    let owner = "[[identity]]\naccess_key = \"AKOWNER\"\nsecret_key = \"owner-secret\"\n\
                 [[identity.allow]]\nmount = \"*\"\nrights = [\"read\", \"write\", \"list\", \
                     \"delete\"]\n";
    let other =
        format!("[[identity]]\naccess_key = \"AKOTHER\"\nsecret_key = \"other-secret\"\n{allow}");
    fs::write(path, format!("{owner}{other}")).unwrap();
}

fn file(path: &Path) -> impl FnOnce(&mut GatewaySetup) + use<> {
    let identities = IdentityStore::load_file(path).unwrap();
    move |setup| setup.identities = identities
}

fn other(request: Request) -> Request {
    request.by("AKOTHER", "other-secret")
}

#[tokio::test]
async fn an_identity_may_do_what_its_rules_say_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("identities.toml");
    rules(
        &path,
        "[[identity.allow]]\nmount = \"data\"\nprefix = \"mine/\"\nrights = [\"read\", \"write\", \"list\", \"delete\"]\n\
         [[identity.allow]]\nmount = \"data\"\nprefix = \"shared/\"\nrights = [\"read\"]\n",
    );
    let fixture = GatewayFixture::start_with(file(&path)).await;
    for key in ["mine/x", "shared/x", "secret/x"] {
        assert_eq!(fixture.put(&format!("/data/{key}"), b"hello").await.status, 200);
    }
    let put = |path: &str| other(Request::new("PUT", path).header("content-length", "0"));
    let copy = |path: &str, source: &str| put(path).header("x-amz-copy-source", source);
    let list = |query: &str| other(Request::new("GET", "/data").query(query));
    for (request, status) in [
        (other(Request::new("GET", "/data/mine/x")), 200),
        (other(Request::new("GET", "/data/shared/x")), 200),
        (other(Request::new("GET", "/data/secret/x")), 403),
        (other(Request::new("GET", "/data/secret/absent")), 403),
        (put("/data/mine/y"), 200),
        (put("/data/shared/y"), 403),
        (put("/sets/mine/y"), 403),
        (copy("/data/mine/z", "/data/shared/x"), 200),
        (copy("/data/mine/z", "/data/secret/x"), 403),
        (copy("/data/shared/z", "/data/mine/x"), 403),
        (list("prefix=mine%2F"), 200),
        (list("prefix=shared%2F"), 403),
        (list("list-type=2"), 403),
        (other(Request::new("DELETE", "/data/shared/x")), 403),
        (other(Request::new("HEAD", "/data")), 200),
        (other(Request::new("HEAD", "/sets")), 403),
        (other(Request::new("GET", "/data").query("policy=")), 403),
    ] {
        let answer = fixture.send(&request, b"").await;
        assert_eq!(
            answer.status,
            status,
            "{} {}?{} {}",
            request.method,
            request.path,
            request.query,
            answer.text()
        );
    }
    let text = fixture.send(&other(Request::new("GET", "/")), b"").await.text();
    assert!(text.contains("<Name>data</Name>") && !text.contains("<Name>sets</Name>"), "{text}");
}

#[tokio::test]
async fn a_batch_deletes_the_allowed_keys_and_names_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("identities.toml");
    rules(
        &path,
        "[[identity.allow]]\nmount = \"data\"\nprefix = \"mine/\"\nrights = [\"delete\"]\n",
    );
    let fixture = GatewayFixture::start_with(file(&path)).await;
    fixture.put("/data/mine/x", b"hello").await;
    fixture.put("/data/secret/x", b"hello").await;
    let document =
        b"<Delete><Object><Key>mine/x</Key></Object><Object><Key>secret/x</Key></Object></Delete>";
    let batch = Request::new("POST", "/data")
        .query("delete=")
        .header("content-length", &document.len().to_string());
    let answer = fixture.send(&other(batch), document).await;
    assert_eq!(answer.status, 200);
    let text = answer.text();
    assert!(text.contains("<Deleted><Key>mine/x</Key>"), "{text}");
    assert!(text.contains("<Code>AccessDenied</Code><Key>secret/x</Key>"), "{text}");
    assert!(!fixture.visible("data", "mine/x").await && fixture.visible("data", "secret/x").await);
}

#[tokio::test]
async fn a_changed_file_is_in_force_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("identities.toml");
    rules(&path, "[[identity.allow]]\nmount = \"data\"\nrights = [\"read\"]\n");
    let fixture = GatewayFixture::start_with(file(&path)).await;
    fixture.put("/data/x", b"hello").await;
    let get = other(Request::new("GET", "/data/x"));
    assert_eq!(fixture.send(&get, b"").await.status, 200);
    rules(&path, "");
    for _ in 0..3000 {
        if fixture.send(&get, b"").await.status == 403 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("the withdrawn right is still in force after 60 s");
}
