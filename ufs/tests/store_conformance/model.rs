//! Listings compared with a sorted map, with random keys, prefixes, delimiters and page sizes.
//! Rerun one with `SEED=`.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use s3s::S3;
use s3s::dto::*;

use super::vocabulary::*;

/// Few letters, so that keys share prefixes, and the awkward neighbours of the delimiter.
const LETTERS: [&str; 8] = ["a", "b", "/", "//", "0", ".", "é", "\u{10ffff}"];

fn word(rng: &mut StdRng, max: usize) -> String {
    (0..rng.random_range(0..=max)).map(|_| LETTERS[rng.random_range(0..LETTERS.len())]).collect()
}

/// Returns what a listing should hold: names in order, true for common prefixes.
fn model(
    keys: &BTreeMap<String, usize>,
    prefix: &str,
    delimiter: &str,
    after: &str,
) -> Vec<(String, bool)> {
    let mut out = BTreeSet::new();
    let rolled = |key: &str| {
        let rest = key.strip_prefix(prefix)?;
        let at = if delimiter.is_empty() { None } else { rest.find(delimiter) }?;
        Some(key[..prefix.len() + at + delimiter.len()].to_owned())
    };
    for key in keys.keys().filter(|k| k.starts_with(prefix) && k.as_str() > after) {
        match rolled(key) {
            Some(common) if common == after => {}
            Some(common) => drop(out.insert((common, true))),
            None => drop(out.insert((key.clone(), false))),
        }
    }
    out.into_iter().collect()
}

async fn listed(s3: &dyn S3, first: ListObjectsV2Input, max: usize) -> Vec<(String, bool)> {
    let (mut out, mut token) = (Vec::new(), None);
    loop {
        let page =
            list(s3, ListObjectsV2Input { continuation_token: token, ..first.clone() }).await;
        let mut items: Vec<_> =
            names(&page.contents.unwrap_or_default()).into_iter().map(|k| (k, false)).collect();
        items.extend(prefixes(page.common_prefixes).into_iter().map(|p| (p, true)));
        items.sort();
        assert!(items.len() <= max);
        assert_eq!(page.key_count, Some(items.len() as i32));
        token = page.next_continuation_token;
        assert_eq!(page.is_truncated, Some(token.is_some()));
        assert!(token.is_none() || items.len() == max, "a truncated page is full");
        out.extend(items);
        if token.is_none() {
            return out;
        }
    }
}

pub async fn random_listings_agree_with_a_sorted_map(s3: &dyn S3, bucket: &str) {
    let seed = std::env::var("SEED").ok().map_or_else(rand::random, |s| s.parse().unwrap());
    println!("SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut keys = BTreeMap::new();
    for round in 0..6 {
        for _ in 0..25 {
            let key = word(&mut rng, 6);
            if key.is_empty() {
                continue;
            }
            if rng.random_bool(0.25) {
                delete(s3, bucket, &key).await.unwrap();
                keys.remove(&key);
            } else {
                put(s3, bucket, &key, &content(round, keys.len())).await;
                keys.insert(key, 0);
            }
        }
        for _ in 0..40 {
            let delimiter = ["", "/", "//", "a", "é", "0/"][rng.random_range(0..6)];
            let (prefix, after) = (word(&mut rng, 3), word(&mut rng, 3));
            let max = rng.random_range(1..8);
            let input = ListObjectsV2Input {
                bucket: bucket.to_owned(),
                prefix: Some(prefix.clone()),
                delimiter: Some(delimiter.to_owned()),
                start_after: Some(after.clone()),
                max_keys: Some(max as i32),
                ..Default::default()
            };
            let got = listed(s3, input, max).await;
            let want = model(&keys, &prefix, delimiter, &after);
            assert_eq!(
                got, want,
                "prefix {prefix:?} delimiter {delimiter:?} after {after:?} pages of {max}"
            );
        }
    }
}
