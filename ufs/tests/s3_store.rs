//! The S3 client against the conformance cases: over loopback, in front of the embedded store.
#![allow(clippy::unwrap_used)]

mod loopback;
#[allow(unused_macros, unused_imports)]
mod store_conformance;

use std::sync::Arc;

use loopback::Server;
use s3s::S3;
use verbs3_ufs::local::{LocalOptions, LocalStore};

/// A client of a store in a folder that goes with it.
struct Fresh {
    client: Arc<dyn S3>,
    _server: Server,
    _folder: tempfile::TempDir,
}

impl Fresh {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = LocalOptions { sync: false, ..LocalOptions::new(folder.path()) };
        let server = Server::over(LocalStore::open(options).unwrap()).await;
        Fresh { client: server.client().await, _server: server, _folder: folder }
    }

    fn store(&self) -> &dyn S3 {
        self.client.as_ref()
    }
}

// All cases but four. `a_wrong_digest_stores_nothing` ends with a promised trailing checksum, which whoever has the client's
// trailers must check: a store behind HTTP never sees them. `awkward_keys_are_kept_apart` lists keys that XML can't carry
// without `encoding-type=url`; the SDK's parser refuses such a listing.
// `operations_on_an_absent_bucket_say_no_such_bucket` asks for a code of a HEAD, whose 404 says not what is absent.
// `ranges_are_cut_as_rfc_9110_says` wants 206 of a HEAD, which the s3s server of this test can not send.
store_conformance::cases! { crate::Fresh::open;
    buckets::{
        a_bucket_is_made_listed_and_deleted,
        a_bucket_that_exists_is_already_owned,
        deleting_a_bucket_with_objects_is_refused,
        configurations_that_were_never_set_have_their_own_codes,
        a_recreated_bucket_is_empty_and_unfinished_uploads_are_gone,
    },
    objects::{
        bytes_and_attributes_come_back,
        an_empty_object_is_an_object,
        an_absent_key_says_no_such_key,
        a_key_of_1024_bytes_is_allowed_and_one_more_is_not,
        ranges_past_the_end_answer_416_with_the_size,
        a_short_or_long_body_stores_nothing,
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
