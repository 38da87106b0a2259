//! Lists of heads: each is what a HEAD by itself would be, and none is older.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use s3s::dto::HeadObjectInput;

use super::{BLOCK, ReadFixture, ReadSetup, content};
use crate::request_context::{ReadVerdict, RequestContext, RequestId};

fn head_of(key: &str) -> HeadObjectInput {
    HeadObjectInput { bucket: "train".into(), key: key.into(), ..Default::default() }
}

/// How often the store was asked.
fn asked(fixture: &ReadFixture) -> (u64, u64) {
    (fixture.store.gets.load(Ordering::Relaxed), fixture.store.heads.load(Ordering::Relaxed))
}

#[tokio::test]
async fn a_listed_head_says_what_a_head_says_and_asks_nobody() {
    let fixture = ReadSetup::default().start_fixture().await;
    fixture.put("a", &content(1, 10)).await;
    fixture.put("b", &content(2, BLOCK + 1)).await;
    let keys = ["a", "missing", "b", "a"];
    let unknown = fixture.reader.open_heads(&fixture.mount, &keys, None).await;
    assert!(unknown.iter().all(Option::is_none), "nobody knows them from memory yet");
    for key in keys {
        let _ = fixture.head(head_of(key)).await;
    }
    let before = asked(&fixture);
    let outcomes = fixture.reader.open_heads(&fixture.mount, &keys, None).await;
    for (key, outcome) in keys.into_iter().zip(outcomes) {
        let cx = Arc::new(RequestContext::new(RequestId::generate(), Instant::now()));
        let outcome = outcome.unwrap_or_else(|| panic!("{key} is known"));
        let listed = fixture.reader.judge_head(&cx, &fixture.mount, key, outcome).await;
        match (listed, fixture.head(head_of(key)).await) {
            (Ok(listed), Ok(single)) => {
                assert_eq!(listed.headers, single.headers, "{key}");
                assert_eq!(Some(listed.bytes as i64), single.output.content_length, "{key}");
                assert!(listed.body.is_none());
                assert_eq!(cx.cache_verdict(), Some(ReadVerdict::Hit), "{key}");
            }
            (Err(listed), Err(single)) => assert_eq!(listed.code(), single.code(), "{key}"),
            (listed, single) => panic!("{key}: {} {}", listed.is_ok(), single.is_ok()),
        }
    }
    assert_eq!(asked(&fixture), before);
}

#[tokio::test]
async fn a_write_leaves_nothing_to_tell_by_lists() {
    let fixture = ReadSetup::default().start_fixture().await;
    fixture.write("a", &content(1, 10)).await;
    fixture.write("b", &content(1, 10)).await;
    for key in ["a", "b", "c"] {
        let _ = fixture.head(head_of(key)).await;
    }
    fixture.write("a", &content(2, 20)).await;
    fixture.write("c", &content(2, 20)).await;
    let told = fixture.reader.open_heads(&fixture.mount, &["a", "b", "c"], None).await;
    let told: Vec<bool> = told.iter().map(Option::is_some).collect();
    assert_eq!(told, [false, true, false]);
}
