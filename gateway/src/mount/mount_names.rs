//! The two names of what a mount shows: the client's and the UFS's. Owns how one is made of the
//! other.

use percent_encoding::percent_decode_str;
use s3s::dto::CommonPrefix;

use super::MountedBucket;

/// The two sides of a mount.
pub(crate) struct MountNamePair<'a> {
    /// The bucket's name for clients.
    pub outside: &'a str,
    /// The bucket's name in the UFS.
    pub inside: &'a str,
    /// The mount's prefix.
    pub prefix: &'a str,
}

impl<'a> MountNamePair<'a> {
    /// Returns both sides of a mount. Borrows the mount's own strings.
    pub fn for_mount(mount: &'a MountedBucket) -> Self {
        Self { outside: &mount.name, inside: &mount.bucket, prefix: &mount.prefix }
    }

    /// Returns whether clients see other names than the UFS. If not, nothing is rewritten, and a
    /// UFS's error documents are passed on.
    pub fn names_differ(&self) -> bool {
        self.outside != self.inside || !self.prefix.is_empty()
    }

    /// Prepends the mount's prefix to a client's key, in place.
    pub fn key_inward(&self, key: &mut String) {
        if !self.prefix.is_empty() {
            key.insert_str(0, self.prefix);
        }
    }

    /// Rewrites a marker. An absent or empty one means "from the start" and stays so.
    pub fn marker_inward(&self, marker: &mut Option<String>) {
        if let Some(marker) = marker.as_mut().filter(|marker| !marker.is_empty()) {
            self.key_inward(marker);
        }
    }

    /// Rewrites a prefix. An absent one becomes the mount's.
    pub fn prefix_inward(&self, prefix: &mut Option<String>) {
        if !self.prefix.is_empty() {
            self.key_inward(prefix.get_or_insert_default());
        }
    }

    /// Returns the client's name for a UFS name; `None` if it lies outside the mount. `encoded`
    /// names are percent-encoded (`encoding-type=url`); the rest stays encoded as the UFS encoded
    /// it.
    pub fn client_name<'n>(&self, name: &'n str, encoded: bool) -> Option<&'n str> {
        if !encoded {
            return name.strip_prefix(self.prefix);
        }
        let mut at = 0;
        for &wanted in self.prefix.as_bytes() {
            let (got, length) = decoded_at(name, at)?;
            if got != wanted {
                return None;
            }
            at += length;
        }
        name.get(at..)
    }

    /// Rewrites a name in place. A name outside the mount (a marker of the UFS's own making)
    /// becomes empty.
    pub fn name_outward(&self, name: &mut Option<String>, encoded: bool) {
        if let Some(name) = name.as_mut().filter(|name| !name.is_empty() && !self.prefix.is_empty())
        {
            *name = self.client_name(name, encoded).unwrap_or_default().to_owned();
        }
    }

    pub fn bucket_outward(&self, bucket: &mut Option<String>) {
        if let Some(bucket) = bucket {
            self.outside.clone_into(bucket);
        }
    }

    /// Rewrites the entries of a listing. Drops what is outside the mount, and the object whose
    /// whole key is the mount's prefix: clients can't name it. Returns how many were dropped.
    pub fn entries_outward<T>(
        &self,
        entries: &mut Option<Vec<T>>,
        key: impl Fn(&mut T) -> &mut Option<String>,
        encoded: bool,
    ) -> i32 {
        let Some(entries) = entries.as_mut().filter(|_| !self.prefix.is_empty()) else { return 0 };
        let before = entries.len();
        entries.retain_mut(|entry| {
            let name = key(entry);
            let seen = name
                .as_deref()
                .and_then(|name| self.client_name(name, encoded))
                .unwrap_or_default()
                .to_owned();
            let keep = !seen.is_empty();
            *name = Some(seen);
            keep
        });
        i32::try_from(before - entries.len()).unwrap_or(i32::MAX)
    }

    pub fn prefixes_outward(&self, prefixes: &mut Option<Vec<CommonPrefix>>, encoded: bool) -> i32 {
        self.entries_outward(prefixes, |entry| &mut entry.prefix, encoded)
    }
}

/// Returns the byte at `at` of a percent-encoded name, and how many characters spell it. S3 writes
/// a space as `+`.
fn decoded_at(name: &str, at: usize) -> Option<(u8, usize)> {
    match *name.as_bytes().get(at)? {
        b'%' => Some((percent_decode_str(name.get(at..at + 3)?).next()?, 3)),
        b'+' => Some((b' ', 1)),
        byte => Some((byte, 1)),
    }
}
