//! Rewrites names between clients and the UFS: a mount's name ↔ its bucket, a client's key ↔ the
//! key with the mount's prefix. Owns the fields in which inputs and outputs carry names. Does not
//! know who may see what.
//!
//! Each module here is a value of the table's *names* column. `listing_prefix` returns the prefix
//! of a listing. `rewrite_inward` rewrites what the client sent, beyond bucket and key, which
//! `operation_core` rewrites for all. `rewrite_outward` rewrites what the UFS answered.
//! `find_destinations` returns other buckets that the input names; `rights` judges and rewrites
//! them.

use s3s::dto::EncodingType;

use crate::mount::MountNamePair;

mod destinations;

pub(crate) use destinations::NamedDestination;
pub(super) use destinations::{
    create_bucket_metadata_table_configuration, put_bucket_analytics_configuration,
    put_bucket_inventory_configuration, put_bucket_logging, put_bucket_replication, restore_object,
};

fn is_url(encoding: &Option<EncodingType>) -> bool {
    encoding.as_ref().is_some_and(|encoding| encoding.as_str() == EncodingType::URL)
}

/// Operations whose only names are bucket and key.
pub(super) mod plain {
    use super::{MountNamePair, NamedDestination};
    /// Names no other bucket.
    pub fn find_destinations<T>(_: &mut T) -> Vec<NamedDestination<'_>> {
        Vec::new()
    }
    /// Lists nothing: the empty prefix.
    pub fn listing_prefix<T>(_: &T) -> &str {
        ""
    }
    /// Changes nothing: bucket and key are rewritten for all operations.
    pub fn rewrite_inward<T>(_: &mut T, _: &MountNamePair<'_>) {}
    /// Changes nothing: the answer holds no names.
    pub fn rewrite_outward<T>(_: &mut T, _: &MountNamePair<'_>) {}
}

pub(super) mod create_bucket {
    use super::MountNamePair;
    pub use super::plain::{find_destinations, listing_prefix, rewrite_inward};
    use s3s::dto::CreateBucketOutput;

    /// Puts the mount's name into the location.
    pub fn rewrite_outward(output: &mut CreateBucketOutput, names: &MountNamePair<'_>) {
        if names.names_differ() && output.location.is_some() {
            output.location = Some(format!("/{}", names.outside));
        }
    }
}

pub(super) mod create_multipart_upload {
    use super::MountNamePair;
    pub use super::plain::{find_destinations, listing_prefix, rewrite_inward};
    use s3s::dto::CreateMultipartUploadOutput;

    /// Puts the client's bucket and key into the answer.
    pub fn rewrite_outward(output: &mut CreateMultipartUploadOutput, names: &MountNamePair<'_>) {
        names.bucket_outward(&mut output.bucket);
        names.name_outward(&mut output.key, false);
    }
}

pub(super) mod complete_multipart_upload {
    use super::MountNamePair;
    pub use super::plain::{find_destinations, listing_prefix, rewrite_inward};
    use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
    use s3s::dto::CompleteMultipartUploadOutput;

    /// Characters to escape: all but RFC 3986's unreserved ones and the slash.
    const KEY: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

    /// Puts the client's bucket and key into the answer, and a path on this endpoint into its
    /// location.
    pub fn rewrite_outward(output: &mut CompleteMultipartUploadOutput, names: &MountNamePair<'_>) {
        if !names.names_differ() {
            return;
        }
        names.bucket_outward(&mut output.bucket);
        names.name_outward(&mut output.key, false);
        // The UFS's own URL would show its bucket and prefix, and a client that follows it would
        // leave the gateway.
        output.location = output.location.take().map(|_| {
            let key = output.key.as_deref().unwrap_or_default();
            format!("/{}/{}", names.outside, utf8_percent_encode(key, KEY))
        });
    }
}

pub(super) mod get_object_attributes {
    use super::MountNamePair;
    pub use super::plain::{find_destinations, listing_prefix, rewrite_outward};
    use s3s::dto::{GetObjectAttributesInput, ObjectAttributes};

    /// Splits the names of the wanted attributes. s3s takes each header for one name, but SDKs
    /// write all names into one header.
    pub fn rewrite_inward(input: &mut GetObjectAttributesInput, _: &MountNamePair<'_>) {
        let names = input.object_attributes.iter().flat_map(|header| header.as_str().split(','));
        let names = names.map(str::trim).filter(|name| !name.is_empty());
        input.object_attributes =
            names.map(|name| ObjectAttributes::from(name.to_owned())).collect();
    }
}

pub(super) mod list_parts {
    use super::MountNamePair;
    pub use super::plain::{find_destinations, listing_prefix, rewrite_inward};
    use s3s::dto::ListPartsOutput;

    /// Puts the client's bucket and key into the answer.
    pub fn rewrite_outward(output: &mut ListPartsOutput, names: &MountNamePair<'_>) {
        names.bucket_outward(&mut output.bucket);
        names.name_outward(&mut output.key, false);
    }
}

pub(super) mod delete_objects {
    use super::MountNamePair;
    pub use super::plain::{find_destinations, listing_prefix};
    use s3s::dto::{DeleteObjectsInput, DeleteObjectsOutput};

    /// Puts the mount's prefix before each key of the batch.
    pub fn rewrite_inward(input: &mut DeleteObjectsInput, names: &MountNamePair<'_>) {
        input.delete.objects.iter_mut().for_each(|object| names.key_inward(&mut object.key));
    }

    /// Removes the mount's prefix from the deleted keys and from those with errors.
    pub fn rewrite_outward(output: &mut DeleteObjectsOutput, names: &MountNamePair<'_>) {
        names.entries_outward(&mut output.deleted, |entry| &mut entry.key, false);
        names.entries_outward(&mut output.errors, |entry| &mut entry.key, false);
    }
}

pub(super) mod list_objects {
    pub use super::plain::find_destinations;
    use super::{MountNamePair, is_url};
    use s3s::dto::{ListObjectsInput, ListObjectsOutput};

    /// Returns the client's prefix; empty for the whole bucket.
    pub fn listing_prefix(input: &ListObjectsInput) -> &str {
        input.prefix.as_deref().unwrap_or_default()
    }

    /// Prepends the mount's prefix to the prefix and the marker.
    pub fn rewrite_inward(input: &mut ListObjectsInput, names: &MountNamePair<'_>) {
        names.prefix_inward(&mut input.prefix);
        names.marker_inward(&mut input.marker);
    }

    /// Rewrites bucket, markers and entries. Entries outside the mount are dropped.
    pub fn rewrite_outward(output: &mut ListObjectsOutput, names: &MountNamePair<'_>) {
        let encoded = is_url(&output.encoding_type);
        names.bucket_outward(&mut output.name);
        for name in [&mut output.prefix, &mut output.marker, &mut output.next_marker] {
            names.name_outward(name, encoded);
        }
        names.entries_outward(&mut output.contents, |entry| &mut entry.key, encoded);
        names.prefixes_outward(&mut output.common_prefixes, encoded);
    }
}

pub(super) mod list_objects_v2 {
    pub use super::plain::find_destinations;
    use super::{MountNamePair, is_url};
    use s3s::dto::{ListObjectsV2Input, ListObjectsV2Output};

    /// Returns the client's prefix; empty for the whole bucket.
    pub fn listing_prefix(input: &ListObjectsV2Input) -> &str {
        input.prefix.as_deref().unwrap_or_default()
    }

    /// Prepends the mount's prefix to the prefix and `start-after`.
    pub fn rewrite_inward(input: &mut ListObjectsV2Input, names: &MountNamePair<'_>) {
        names.prefix_inward(&mut input.prefix);
        names.marker_inward(&mut input.start_after);
    }

    /// Rewrites bucket, markers and entries. Drops entries outside the mount. Continuation tokens
    /// are the UFS's own and opaque: they stay.
    pub fn rewrite_outward(output: &mut ListObjectsV2Output, names: &MountNamePair<'_>) {
        let encoded = is_url(&output.encoding_type);
        names.bucket_outward(&mut output.name);
        for name in [&mut output.prefix, &mut output.start_after] {
            names.name_outward(name, encoded);
        }
        let dropped = names.entries_outward(&mut output.contents, |entry| &mut entry.key, encoded)
            + names.prefixes_outward(&mut output.common_prefixes, encoded);
        output.key_count = output.key_count.map(|count| count - dropped);
    }
}

pub(super) mod list_object_versions {
    pub use super::plain::find_destinations;
    use super::{MountNamePair, is_url};
    use s3s::dto::{ListObjectVersionsInput, ListObjectVersionsOutput};

    /// Returns the client's prefix; empty for the whole bucket.
    pub fn listing_prefix(input: &ListObjectVersionsInput) -> &str {
        input.prefix.as_deref().unwrap_or_default()
    }

    /// Prepends the mount's prefix to the prefix and the key marker.
    pub fn rewrite_inward(input: &mut ListObjectVersionsInput, names: &MountNamePair<'_>) {
        names.prefix_inward(&mut input.prefix);
        names.marker_inward(&mut input.key_marker);
    }

    /// Rewrites bucket, markers, versions and delete markers. Entries outside the mount are
    /// dropped.
    pub fn rewrite_outward(output: &mut ListObjectVersionsOutput, names: &MountNamePair<'_>) {
        let encoded = is_url(&output.encoding_type);
        names.bucket_outward(&mut output.name);
        for name in [&mut output.prefix, &mut output.key_marker, &mut output.next_key_marker] {
            names.name_outward(name, encoded);
        }
        names.entries_outward(&mut output.versions, |entry| &mut entry.key, encoded);
        names.entries_outward(&mut output.delete_markers, |entry| &mut entry.key, encoded);
        names.prefixes_outward(&mut output.common_prefixes, encoded);
    }
}

pub(super) mod list_multipart_uploads {
    pub use super::plain::find_destinations;
    use super::{MountNamePair, is_url};
    use s3s::dto::{ListMultipartUploadsInput, ListMultipartUploadsOutput};

    /// Returns the client's prefix; empty for the whole bucket.
    pub fn listing_prefix(input: &ListMultipartUploadsInput) -> &str {
        input.prefix.as_deref().unwrap_or_default()
    }

    /// Prepends the mount's prefix to the prefix and the key marker.
    pub fn rewrite_inward(input: &mut ListMultipartUploadsInput, names: &MountNamePair<'_>) {
        names.prefix_inward(&mut input.prefix);
        names.marker_inward(&mut input.key_marker);
    }

    /// Rewrites bucket, markers and uploads. Uploads outside the mount are dropped.
    pub fn rewrite_outward(output: &mut ListMultipartUploadsOutput, names: &MountNamePair<'_>) {
        let encoded = is_url(&output.encoding_type);
        names.bucket_outward(&mut output.bucket);
        for name in [&mut output.prefix, &mut output.key_marker, &mut output.next_key_marker] {
            names.name_outward(name, encoded);
        }
        names.entries_outward(&mut output.uploads, |entry| &mut entry.key, encoded);
        names.prefixes_outward(&mut output.common_prefixes, encoded);
    }
}

#[cfg(test)]
mod tests;
