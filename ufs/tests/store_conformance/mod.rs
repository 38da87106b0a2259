//! The duties of any object store behind verbs3, as functions over `&dyn S3` and an empty bucket.
//!
//! [`cases!`] names every case once; a store's own test file expands it. Nothing here knows the
//! store under test.
#![allow(clippy::unwrap_used, dead_code)]

pub mod buckets;
pub mod conditions;
pub mod copies;
pub mod listing;
pub mod model;
pub mod multipart;
pub mod objects;
pub mod tags;
pub mod uploads;
pub mod vocabulary;

use std::panic::AssertUnwindSafe;

use futures::FutureExt;

/// Makes one test of each case; `$store` is an async function that gives a guard with a `store()`
/// of `&dyn S3`.
macro_rules! cases {
    ($store:path, $exceptions:expr; $($module:ident :: { $($case:ident),* $(,)? }),* $(,)?) => {
        $(mod $module {
            $(#[tokio::test]
            async fn $case() {
                let guard = $store().await;
                let bucket = concat!("case-", stringify!($module)).replace('_', "-");
                crate::store_conformance::vocabulary::make_bucket(guard.store(), &bucket).await;
                let run = crate::store_conformance::$module::$case(guard.store(), &bucket);
                let name = concat!(stringify!($module), "::", stringify!($case));
                crate::store_conformance::hold(name, $exceptions, run).await;
            })*
        })*

        #[test]
        fn every_exception_names_a_case() {
            let cases = [$($(concat!(stringify!($module), "::", stringify!($case))),*),*];
            let exceptions: &[crate::store_conformance::Exception] = $exceptions;
            for (name, _) in exceptions {
                assert!(cases.contains(name), "{name} is no case");
            }
        }
    };
}
pub(crate) use cases;

/// A case that a store can't meet, and why.
pub type Exception = (&'static str, &'static str);

/// Runs a case. An exception has to fail: one that passes by now is to be taken away.
pub async fn hold(case: &str, exceptions: &[Exception], run: impl Future<Output = ()>) {
    let Some((_, why)) = exceptions.iter().find(|(name, _)| *name == case) else {
        return run.await;
    };
    let ended = AssertUnwindSafe(run).catch_unwind().await;
    assert!(ended.is_err(), "{case} passes, although {why}; take the exception away");
}

/// Expands every case for a store, but for the exceptions that it states.
macro_rules! all_cases {
    ($store:path) => {
        crate::store_conformance::all_cases!($store, &[]);
    };
    ($store:path, $exceptions:expr) => {
        crate::store_conformance::cases! { $store, $exceptions;
            buckets::{
                a_bucket_is_made_listed_and_deleted,
                a_bucket_that_exists_is_already_owned,
                deleting_a_bucket_with_objects_is_refused,
                operations_on_an_absent_bucket_say_no_such_bucket,
                configurations_that_were_never_set_have_their_own_codes,
                a_recreated_bucket_is_empty_and_unfinished_uploads_are_gone,
            },
            objects::{
                bytes_and_attributes_come_back,
                an_empty_object_is_an_object,
                an_absent_key_says_no_such_key,
                awkward_keys_are_kept_apart,
                a_key_of_1024_bytes_is_allowed_and_one_more_is_not,
                ranges_are_cut_as_rfc_9110_says,
                ranges_past_the_end_answer_416_with_the_size,
                a_short_or_long_body_stores_nothing,
                a_wrong_digest_stores_nothing,
                every_checksum_is_kept_and_returned_on_request,
                an_object_without_checksum_gets_crc64nvme,
                deleting_is_idempotent,
                a_batch_delete_reports_each_key,
                a_quiet_batch_delete_reports_errors_only,
                the_null_version_is_the_only_one,
                aws_chunked_is_not_stored_as_an_encoding,
            },
            conditions::{
                reads_follow_rfc_9110_precedence,
                not_modified_carries_etag_and_date,
                a_put_that_must_create_does_not_overwrite,
                a_put_that_must_replace_wants_the_right_etag,
                one_of_many_creating_puts_wins,
                a_conditional_delete_wants_the_right_etag,
            },
            listing::{
                keys_are_in_utf8_byte_order,
                a_delimiter_rolls_keys_up_and_counts_prefixes,
                pages_join_to_the_whole_listing,
                version_one_pages_by_next_marker,
                start_after_is_exclusive,
                zero_keys_are_never_truncated,
                url_encoding_round_trips,
                a_bad_token_is_an_invalid_argument,
                every_object_is_a_null_version,
                owners_are_fetched_on_request,
            },
            multipart::{
                the_etag_is_that_of_s3,
                parts_join_in_order_of_their_numbers,
                a_part_of_an_object_is_read_by_its_number,
                wrong_completions_change_nothing,
                small_parts_are_refused_except_the_last,
                an_unknown_upload_is_no_such_upload,
                an_aborted_upload_leaves_nothing,
                a_part_is_replaced_by_a_later_one_of_its_number,
                crcs_of_parts_combine_to_that_of_the_object,
                composite_checksums_are_hashes_of_hashes,
                completion_keeps_conditions,
                attributes_list_the_parts,
            },
            uploads::{
                parts_are_listed_in_pages,
                uploads_are_listed_in_pages,
                uploads_roll_up_at_a_delimiter,
            },
            copies::{
                a_copy_has_the_bytes_and_attributes,
                a_copy_onto_itself_must_change_something,
                directives_replace_metadata_and_tags,
                conditions_on_the_source_answer_412,
                a_copy_outlives_its_source,
                a_part_is_copied_from_a_range,
                a_copy_of_a_multipart_object_has_a_plain_etag,
            },
            tags::{
                object_tags_are_put_read_and_deleted,
                tags_come_with_a_put,
                tags_beyond_the_rules_are_invalid,
                bucket_tags_are_put_read_and_deleted,
                only_private_acls_are_accepted,
            },
            model::{
                random_listings_agree_with_a_sorted_map,
            },
        }
    };
}
pub(crate) use all_cases;
