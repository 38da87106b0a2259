//! Owns the workaround for keys of white space alone. The SDK takes them for missing; S3 does not.
//! The SDK gets a stand-in, and the request's path gets the key back before it is signed.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// The key that the SDK sees. A path that ends in it matters only where a key was taken.
const STAND_IN: &str = "verbs3-blank-key";

tokio::task_local! {
    static BLANK: String;
}

/// Takes a key that the SDK would refuse, and leaves the stand-in.
pub(super) fn take_blank(key: &mut String) -> Option<String> {
    let blank = !key.is_empty() && key.trim().is_empty();
    blank.then(|| std::mem::replace(key, STAND_IN.to_owned()))
}

/// Runs a call of the SDK whose key was taken.
pub(super) async fn with_blank<F: Future>(key: Option<String>, call: F) -> F::Output {
    match key {
        None => call.await,
        Some(key) => BLANK.scope(key, call).await,
    }
}

/// Returns the request's target with the key in the stand-in's place; `None` where no key was
/// taken.
pub(super) fn put_key_back(uri: &str) -> Option<String> {
    let key = BLANK.try_with(Clone::clone).ok()?;
    restore_key(uri, &key)
}

fn restore_key(uri: &str, key: &str) -> Option<String> {
    let (path, query) =
        uri.split_once('?').map_or((uri, None), |(path, query)| (path, Some(query)));
    let before = path.strip_suffix(STAND_IN)?;
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    Some(format!("{before}{}{query}", utf8_percent_encode(key, NON_ALPHANUMERIC)))
}

/// Takes the blank key out of a request, for each operation on an object.
#[rustfmt::skip]
macro_rules! blank_key_of {
    (abort_multipart_upload $req:ident) => { take_blank(&mut $req.input.key) };
    (complete_multipart_upload $req:ident) => { take_blank(&mut $req.input.key) };
    (copy_object $req:ident) => { take_blank(&mut $req.input.key) };
    (create_multipart_upload $req:ident) => { take_blank(&mut $req.input.key) };
    (delete_object $req:ident) => { take_blank(&mut $req.input.key) };
    (delete_object_tagging $req:ident) => { take_blank(&mut $req.input.key) };
    (get_object $req:ident) => { take_blank(&mut $req.input.key) };
    (get_object_acl $req:ident) => { take_blank(&mut $req.input.key) };
    (get_object_attributes $req:ident) => { take_blank(&mut $req.input.key) };
    (get_object_legal_hold $req:ident) => { take_blank(&mut $req.input.key) };
    (get_object_retention $req:ident) => { take_blank(&mut $req.input.key) };
    (get_object_tagging $req:ident) => { take_blank(&mut $req.input.key) };
    (get_object_torrent $req:ident) => { take_blank(&mut $req.input.key) };
    (head_object $req:ident) => { take_blank(&mut $req.input.key) };
    (list_parts $req:ident) => { take_blank(&mut $req.input.key) };
    (put_object $req:ident) => { take_blank(&mut $req.input.key) };
    (put_object_acl $req:ident) => { take_blank(&mut $req.input.key) };
    (put_object_legal_hold $req:ident) => { take_blank(&mut $req.input.key) };
    (put_object_retention $req:ident) => { take_blank(&mut $req.input.key) };
    (put_object_tagging $req:ident) => { take_blank(&mut $req.input.key) };
    (restore_object $req:ident) => { take_blank(&mut $req.input.key) };
    (select_object_content $req:ident) => { take_blank(&mut $req.input.key) };
    (upload_part $req:ident) => { take_blank(&mut $req.input.key) };
    (upload_part_copy $req:ident) => { take_blank(&mut $req.input.key) };
    ($op:ident $req:ident) => { None };
}
pub(super) use blank_key_of;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_key_comes_back_where_the_stand_in_was() {
        for (uri, key, wanted) in [
            (
                "http://h/b/verbs3-blank-key?x-id=PutObject",
                "  ",
                "http://h/b/%20%20?x-id=PutObject",
            ),
            ("http://b.h/verbs3-blank-key", "\t", "http://b.h/%09"),
            ("http://h/b/verbs3-blank-key", "\u{3000}", "http://h/b/%E3%80%80"),
        ] {
            assert_eq!(restore_key(uri, key).as_deref(), Some(wanted));
        }
        let mut key = " a".to_owned();
        assert!(take_blank(&mut key).is_none() && key == " a");
        assert!(put_key_back("http://h/b/verbs3-blank-key").is_none(), "none was taken");
    }
}
