//! The mount table: bucket names that clients see, and what stands behind them.

use std::fmt;
use std::time::Duration;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use verbs3_settings::{ByteSize, SettingsTable, TimePeriod};

/// One `[[mount]]` entry.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct MountSettings {
    /// Bucket name that clients use; `"*"` for every bucket of the UFS under its own name, those
    /// made later included.
    #[setting(required, example = "*")]
    pub name: String,
    /// Name of a `[[ufs]]`.
    #[setting(required, example = "ceph")]
    pub ufs: String,
    /// Bucket in the UFS; none means the mount's own name.
    #[setting(example = "training-data")]
    pub bucket: Option<String>,
    /// Only keys under this prefix are seen, without it; empty or ending in `/`. Bucket
    /// administration is refused on such a mount.
    #[setting(default = "")]
    pub prefix: String,
    /// How long attributes (length, ETag, headers) are believed without asking the UFS, where
    /// objects may change behind the gateways' back: a duration, `"0"` to ask on every read, or
    /// `"immutable"` if that never happens.
    #[setting(default = "10s")]
    pub attributes_ttl: AttributesTtl,
    /// How long "there is no such object" is believed.
    #[setting(default = "1s", range = "0"..="1h")]
    pub absence_ttl: TimePeriod,
    /// What a write does while the worker that guards its key can't be told: `"strict"` refuses it
    /// (503), `"ttl"` lets it through, and readers may see the old version for `attributes_ttl`.
    #[setting(default = "strict")]
    pub coherence: CoherenceSetting,
    /// Refuse every write.
    #[setting(default = false)]
    pub read_only: bool,
    /// `false`: everything goes to the UFS and nothing is cached. Writes are told to the workers
    /// all the same, for gateways that cache what this mount shows.
    #[setting(default = true)]
    pub cached: bool,
    /// `"on"`: what is written goes to the store and, as a copy, to the workers that own its blocks,
    /// so that reading it back takes nothing from the store (docs/populate.md). Workers have to
    /// take it: `worker.populate.staged_max`.
    #[setting(default = "off")]
    pub populate_on_write: PopulateSetting,
    /// Longest object that is copied.
    #[setting(default = "64GiB", range = "1B"..="16TiB")]
    pub populate_max: ByteSize,
}

/// How long cached attributes are believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributesTtl {
    /// Every read asks the UFS.
    AlwaysAsk,
    For(Duration),
    /// Objects never change but through a gateway.
    Immutable,
}

/// What a write does when its home can't be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CoherenceSetting {
    Strict,
    Ttl,
}

/// Whether writes are copied to workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PopulateSetting {
    Off,
    On,
}

impl MountSettings {
    /// The longest object that is copied to workers while it is written; `None`: none is.
    pub fn populate_bytes_max(&self) -> Option<u64> {
        (self.populate_on_write == PopulateSetting::On).then_some(self.populate_max.0)
    }

    /// Every bucket of the UFS under its own name.
    pub fn is_wildcard(&self) -> bool {
        self.name == "*"
    }

    /// The UFS's name of the bucket; `None` for `"*"`.
    pub fn ufs_bucket(&self) -> Option<&str> {
        match (&self.bucket, self.is_wildcard()) {
            (_, true) => None,
            (Some(bucket), false) => Some(bucket),
            (None, false) => Some(&self.name),
        }
    }
}

impl fmt::Display for AttributesTtl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlwaysAsk => f.write_str("0"),
            Self::For(ttl) => TimePeriod(*ttl).fmt(f),
            Self::Immutable => f.write_str("immutable"),
        }
    }
}

impl Serialize for AttributesTtl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AttributesTtl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = AttributesTtl;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration in quotes (\"10s\"), \"0\" or \"immutable\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<AttributesTtl, E> {
                if text == "immutable" {
                    return Ok(AttributesTtl::Immutable);
                }
                let TimePeriod(ttl) = text.parse().map_err(|source| {
                    E::custom(format_args!("{source}; or \"0\" (ask every time), or \"immutable\""))
                })?;
                Ok(if ttl.is_zero() { AttributesTtl::AlwaysAsk } else { AttributesTtl::For(ttl) })
            }
        }
        deserializer.deserialize_str(Text)
    }
}
