//! Rights beyond reading and writing: ACLs, locks, and buckets that a document names. Real
//! requests; where the store must have seen something, it is a store that remembers.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result};
use verbs3_gateway::auth::IdentityStore;
use verbs3_gateway::mount::MountedBucket;
use verbs3_ufs::{Ufs, UfsSettings};

use crate::gateway_fixture::{Answer, GatewayFixture, mount};
use crate::signing::Request;

/// The buckets that the store was told to write to.
#[derive(Clone, Default)]
struct RememberingStore(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl S3 for RememberingStore {
    async fn put_bucket_replication(
        &self,
        request: S3Request<PutBucketReplicationInput>,
    ) -> S3Result<S3Response<PutBucketReplicationOutput>> {
        let rules = request.input.replication_configuration.rules;
        self.0.lock().extend(rules.into_iter().map(|rule| rule.destination.bucket));
        Ok(S3Response::new(PutBucketReplicationOutput::default()))
    }

    async fn put_bucket_logging(
        &self,
        request: S3Request<PutBucketLoggingInput>,
    ) -> S3Result<S3Response<PutBucketLoggingOutput>> {
        let target = request.input.bucket_logging_status.logging_enabled;
        self.0.lock().extend(target.map(|target| target.target_bucket));
        Ok(S3Response::new(PutBucketLoggingOutput::default()))
    }

    async fn restore_object(
        &self,
        _: S3Request<RestoreObjectInput>,
    ) -> S3Result<S3Response<RestoreObjectOutput>> {
        self.0.lock().push("restored".to_owned());
        Ok(S3Response::new(RestoreObjectOutput::default()))
    }
}

fn rules(path: &Path, rules: &[(&str, &str, &str)]) -> Arc<IdentityStore> {
    let owner = "[[identity]]\naccess_key = \"AKOWNER\"\nsecret_key = \"owner-secret\"\n\
                 [[identity.allow]]\nmount = \"*\"\nrights = [\"read\", \"write\", \"delete\", \"admin\"]\n\
                 [[identity]]\naccess_key = \"AKOTHER\"\nsecret_key = \"other-secret\"\n";
    let rules = rules.iter().map(|(mount, prefix, rights)| {
        format!(
            "[[identity.allow]]\nmount = \"{mount}\"\nprefix = \"{prefix}\"\nrights = [{rights}]\n"
        )
    });
    fs::write(path, owner.to_owned() + &rules.collect::<String>()).unwrap();
    IdentityStore::load_file(path).unwrap()
}

fn other(method: &'static str, path: &str) -> Request {
    Request::new(method, path).by("AKOTHER", "other-secret")
}

const ALL: &str = "\"read\", \"write\", \"list\", \"delete\"";
const REPLICATES: &str = "\"write\", \"delete\", \"acl\", \"lock\"";

/// What opens or locks, each with the right that it needs.
fn more_than_writes() -> Vec<(Request, &'static str)> {
    let put = |path: &str| other("PUT", path).header("content-length", "0");
    vec![
        (put("/data/mine/x").query("acl=").header("x-amz-acl", "public-read"), "acl"),
        (put("/data/mine/y").header("x-amz-acl", "public-read"), "acl"),
        (put("/data/mine/y").header("x-amz-grant-read", "uri=all"), "acl"),
        (
            put("/data/mine/y")
                .header("x-amz-copy-source", "/data/mine/x")
                .header("x-amz-acl", "public-read"),
            "acl",
        ),
        (
            other("POST", "/data/mine/y")
                .query("uploads=")
                .header("x-amz-grant-full-control", "id=a"),
            "acl",
        ),
        (put("/data/mine/x").query("retention="), "lock"),
        (put("/data/mine/x").query("legal-hold="), "lock"),
        (put("/data/mine/y").header("x-amz-object-lock-legal-hold", "ON"), "lock"),
        (
            put("/data/mine/y")
                .header("x-amz-object-lock-mode", "COMPLIANCE")
                .header("x-amz-object-lock-retain-until-date", "2099-01-01T00:00:00Z"),
            "lock",
        ),
        (
            other("POST", "/data/mine/y")
                .query("uploads=")
                .header("x-amz-object-lock-legal-hold", "ON"),
            "lock",
        ),
    ]
}

#[tokio::test]
async fn who_may_write_may_neither_open_nor_lock() {
    let folder = tempfile::tempdir().unwrap();
    let identities = rules(&folder.path().join("identities.toml"), &[("data", "mine/", ALL)]);
    let fixture = GatewayFixture::start_with(|setup| setup.identities = identities).await;
    fixture.put("/data/mine/x", b"hello").await;
    let before = fixture.told().len();
    let document = |request: &Request| match request.query.as_str() {
        "retention=" => {
            "<Retention><Mode>COMPLIANCE</Mode><RetainUntilDate>2099-01-01T00:00:00Z</RetainUntilDate></Retention>"
        }
        "legal-hold=" => "<LegalHold><Status>ON</Status></LegalHold>",
        _ => "",
    };
    for (mut request, right) in more_than_writes() {
        let body = document(&request);
        request.headers.retain(|(name, _)| name != "content-length");
        let request = request.header("content-length", &body.len().to_string());
        let answer = fixture.send(&request, body.as_bytes()).await;
        assert_eq!(answer.error(), (403, "AccessDenied".to_owned()), "{:?}", request.headers);
        assert!(
            answer.text().contains(&format!("the right &quot;{right}&quot;")),
            "{}",
            answer.text()
        );
    }
    let bypass =
        other("DELETE", "/data/mine/x").header("x-amz-bypass-governance-retention", "true");
    assert_eq!(fixture.send(&bypass, b"").await.error(), (403, "AccessDenied".to_owned()));
    assert!(!fixture.visible("data", "mine/y").await && fixture.visible("data", "mine/x").await);
    assert_eq!(fixture.told().len(), before, "a home was told of it");
    // The default of many clients opens nothing.
    let closed =
        other("PUT", "/data/mine/y").header("content-length", "0").header("x-amz-acl", "private");
    assert_eq!(fixture.send(&closed, b"").await.status, 200);
}

#[tokio::test]
async fn the_rights_open_what_they_are_for() {
    let folder = tempfile::tempdir().unwrap();
    let allow = format!("{ALL}, \"acl\", \"lock\"");
    let identities = rules(&folder.path().join("identities.toml"), &[("data", "mine/", &allow)]);
    let fixture = GatewayFixture::start_with(|setup| setup.identities = identities).await;
    fixture.put("/data/mine/x", b"hello").await;
    for (request, _) in more_than_writes() {
        // What the local store makes of it is its own.
        assert_ne!(fixture.send(&request, b"").await.status, 403, "{:?}", request.headers);
    }
    let theirs = other("PUT", "/data/theirs")
        .query("acl=")
        .header("content-length", "0")
        .header("x-amz-acl", "private");
    assert_eq!(fixture.send(&theirs, b"").await.status, 403);
    let bypass =
        other("DELETE", "/data/mine/x").header("x-amz-bypass-governance-retention", "true");
    assert_eq!(fixture.send(&bypass, b"").await.status, 403, "who locks could unlock");
}

fn replication(bucket: &str) -> String {
    format!(
        "<ReplicationConfiguration><Role>r</Role><Rule><Status>Enabled</Status><Destination><Bucket>{bucket}</Bucket>\
         </Destination></Rule></ReplicationConfiguration>"
    )
}

fn logging(bucket: &str) -> String {
    format!(
        "<BucketLoggingStatus><LoggingEnabled><TargetBucket>{bucket}</TargetBucket><TargetPrefix>logs/</TargetPrefix>\
         </LoggingEnabled></BucketLoggingStatus>"
    )
}

/// Logging whose target everybody may read.
fn open_logging(bucket: &str) -> String {
    let grants = "<TargetGrants><Grant>\
         <Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:type=\"Group\">\
         <URI>http://acs.amazonaws.com/groups/global/AllUsers</URI></Grantee>\
         <Permission>FULL_CONTROL</Permission></Grant></TargetGrants><TargetPrefix>";
    logging(bucket).replace("<TargetPrefix>", grants)
}

/// A replication that gives the replicas to another account.
fn foreign_replication(bucket: &str) -> String {
    let owner = "</Bucket><Account>666666666666</Account>\
         <AccessControlTranslation><Owner>Destination</Owner></AccessControlTranslation>";
    replication(bucket).replace("</Bucket>", owner)
}

/// A fixture whose identity AKOTHER administers `here`, may do in `there` what replication needs,
/// and not all of that elsewhere.
async fn administered(folder: &Path, told: &RememberingStore) -> GatewayFixture {
    let identities = rules(
        &folder.join("identities.toml"),
        &[
            ("here", "", "\"write\", \"admin\""),
            ("there", "", REPLICATES),
            ("half", "", "\"write\""),
            ("closed", "", "\"write\", \"delete\", \"lock\""),
            ("unlocked", "", "\"write\", \"delete\", \"acl\""),
            ("kept", "", "\"write\", \"acl\", \"lock\""),
            ("narrow", "logs/", REPLICATES),
            ("part", "", REPLICATES),
            ("shut", "", REPLICATES),
            ("loose", "", REPLICATES),
        ],
    );
    let ufs = Ufs::new(Arc::new(told.clone()), UfsSettings::with_name("remembering"));
    GatewayFixture::start_with(|setup| {
        setup.identities = identities;
        setup.mounts = vec![
            mount("here", ufs.clone(), "real-here", ""),
            mount("there", ufs.clone(), "real-there", ""),
            mount("half", ufs.clone(), "real-half", ""),
            mount("closed", ufs.clone(), "real-closed", ""),
            mount("unlocked", ufs.clone(), "real-unlocked", ""),
            mount("kept", ufs.clone(), "real-kept", ""),
            mount("narrow", ufs.clone(), "real-narrow", ""),
            mount("part", ufs.clone(), "real-part", "team/"),
            MountedBucket { read_only: true, ..mount("shut", ufs.clone(), "real-shut", "") },
            mount("secret", ufs, "real-secret", ""),
        ];
    })
    .await
}

/// Sends a document of the bucket `here`.
async fn send_document(fixture: &GatewayFixture, query: &str, document: &str) -> Answer {
    let request =
        other("PUT", "/here").query(query).header("content-length", &document.len().to_string());
    fixture.send(&request, document.as_bytes()).await
}

#[tokio::test]
async fn an_admin_reaches_no_other_bucket_by_a_document() {
    let (folder, told) = (tempfile::tempdir().unwrap(), RememberingStore::default());
    let fixture = administered(folder.path(), &told).await;
    let send =
        async |query: &str, document: String| send_document(&fixture, query, &document).await;
    for (bucket, status) in [
        ("arn:aws:s3:::secret", 403),
        ("arn:aws:s3:::real-secret", 404),
        ("real-there", 404),
        ("arn:aws:s3:::half", 403),
        ("arn:aws:s3:::narrow", 403),
        ("arn:aws:s3:::part", 501),
        ("arn:aws:s3:::shut", 501),
        ("arn:aws:s3:::loose", 501),
        ("arn:aws:s3:eu-1:1:accesspoint/there", 501),
    ] {
        let answer = send("replication=", replication(bucket)).await;
        assert_eq!(answer.status, status, "{bucket}: {}", answer.text());
    }
    for (bucket, status) in [("secret", 403), ("real-there", 404), ("narrow", 403), ("part", 501)] {
        let answer = send("logging=", logging(bucket)).await;
        assert_eq!(answer.status, status, "{bucket}: {}", answer.text());
    }
    assert_eq!(told.0.lock().as_slice(), [""; 0], "the store was asked");

    assert_eq!(send("replication=", replication("arn:aws:s3:::there")).await.status, 200);
    assert_eq!(send("logging=", logging("half")).await.status, 200);
    assert_eq!(told.0.lock().as_slice(), ["arn:aws:s3:::real-there", "real-half"]);
}

#[tokio::test]
async fn an_admin_neither_opens_nor_locks_another_bucket() {
    let (folder, told) = (tempfile::tempdir().unwrap(), RememberingStore::default());
    let fixture = administered(folder.path(), &told).await;
    let send =
        async |query: &str, document: String| send_document(&fixture, query, &document).await;
    for (query, document, lacks) in [
        ("logging=", open_logging("half"), "acl"),
        ("logging=", open_logging("closed"), "acl"),
        ("replication=", replication("closed"), "acl"),
        ("replication=", foreign_replication("arn:aws:s3:::closed"), "acl"),
        ("replication=", replication("unlocked"), "lock"),
    ] {
        let answer = send(query, document).await;
        assert_eq!(answer.error(), (403, "AccessDenied".to_owned()), "{query} {lacks}");
        let told = format!("the right &quot;{lacks}&quot;");
        assert!(answer.text().contains(&told), "{}", answer.text());
    }
    assert_eq!(send("replication=", replication("kept")).await.status, 403, "deletions");
    assert_eq!(told.0.lock().as_slice(), [""; 0], "the store was asked");

    assert_eq!(send("logging=", open_logging("unlocked")).await.status, 200);
    let no_grants = logging("half").replace("<TargetPrefix>", "<TargetGrants/><TargetPrefix>");
    assert_eq!(send("logging=", no_grants).await.status, 200, "no grants open nothing");
    assert_eq!(send("replication=", foreign_replication("there")).await.status, 200);
    assert_eq!(told.0.lock().as_slice(), ["real-unlocked", "real-half", "real-there"]);
}

#[tokio::test]
async fn a_restore_writes_nowhere_else() {
    let (folder, told) = (tempfile::tempdir().unwrap(), RememberingStore::default());
    let fixture = administered(folder.path(), &told).await;
    let send = async |document: &str| {
        let request = other("POST", "/here/k")
            .query("restore=")
            .header("content-length", &document.len().to_string());
        fixture.send(&request, document.as_bytes()).await
    };
    let elsewhere = "<RestoreRequest><Type>SELECT</Type><OutputLocation><S3><BucketName>there</BucketName><Prefix>p</Prefix></S3>\
                     </OutputLocation></RestoreRequest>";
    let answer = send(elsewhere).await;
    assert_eq!(answer.error(), (501, "NotImplemented".to_owned()));
    assert!(answer.text().contains("OutputLocation"), "{}", answer.text());
    assert_eq!(told.0.lock().as_slice(), [""; 0], "the store was asked");
    assert!(send("<RestoreRequest><Days>1</Days></RestoreRequest>").await.status < 300);
    assert_eq!(told.0.lock().as_slice(), ["restored"]);
}
