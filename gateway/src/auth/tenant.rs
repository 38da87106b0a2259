//! Owns a tenant: identities that are accounted for together. Does not account for anything itself.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use verbs3_metrics::MetricsTable as _;
use verbs3_protocol::TenantTag;

use crate::tenant_metrics::TenantMetrics;

/// Most tenants of an identities file. Where something is scarce, all of them are looked at to find
/// whose turn it is: some microseconds for this many.
pub(super) const TENANTS_MAX: usize = 1024;
/// Longest name of a tenant, which is a label of metrics.
const NAME_BYTES_MAX: usize = 64;
/// Largest weight of a tenant.
pub(super) const WEIGHT_MAX: u32 = 1000;

/// One or several identities that share what one party may hold.
pub struct Tenant {
    name: String,
    weight: u32,
    number: u32,
    is_alone: bool,
    /// How workers are told of it.
    tag: Option<TenantTag>,
    metrics: TenantMetrics,
    recent_misses: AtomicU32,
}

/// The number of whoever has not proven an identity.
pub(super) const NOBODY: u32 = 0;

/// What the number of recent misses is when all reads missed.
const ALL_MISSES: u32 = 1 << 16;
/// One read counts as one in this many of the recent ones.
const RECENT_READS: u32 = 16;
static UNKNOWN_TENANT: LazyLock<Arc<Tenant>> =
    LazyLock::new(|| Arc::new(Tenant::unnumbered("", 1)));

impl Tenant {
    /// Returns who is accounted for where no identity has been proven.
    pub(crate) fn unknown() -> &'static Arc<Self> {
        &UNKNOWN_TENANT
    }

    /// Makes a tenant that has no number yet.
    pub(super) fn unnumbered(name: &str, weight: u32) -> Self {
        let metrics = TenantMetrics::create_table(&[("tenant", name)]);
        let recent_misses = AtomicU32::new(0);
        let (tag, name) = (TenantTag::new(name, weight), name.to_owned());
        Self { name, weight, number: NOBODY, is_alone: true, tag, metrics, recent_misses }
    }

    /// Makes a tenant with its number and metrics. `is_alone`: there is no other.
    pub(super) fn numbered(self, number: u32, is_alone: bool, metrics: TenantMetrics) -> Self {
        Self { number, is_alone, metrics, ..self }
    }

    /// Makes one of several tenants, for tests.
    #[cfg(test)]
    pub(crate) fn one_of_several(name: &str, number: u32) -> Arc<Self> {
        Arc::new(Self { number, is_alone: false, ..Self::unnumbered(name, 1) })
    }

    /// Returns the name in the identities file.
    pub fn tenant_name(&self) -> &str {
        &self.name
    }

    /// Returns the part of scarce things that is due to it, relative to the others' weights.
    pub fn tenant_weight(&self) -> u32 {
        self.weight
    }

    /// Returns whether the identities file has no other tenant.
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Returns its number: small, and no other tenant's.
    pub fn tenant_number(&self) -> u32 {
        self.number
    }

    /// Returns how workers are told of it; `None` for whoever has not proven an identity. Also where
    /// there is no other: another gateway's file may have others.
    pub(crate) fn worker_tag(&self) -> Option<TenantTag> {
        self.tag
    }

    pub(crate) fn metrics(&self) -> &TenantMetrics {
        &self.metrics
    }

    /// Notes how a read ended, to know what the next ones are likely to be. Of two at once one may
    /// go unnoticed.
    pub(crate) fn note_read(&self, is_hit: bool) {
        let before = self.recent_misses.load(Ordering::Relaxed);
        let missed = if is_hit { 0 } else { ALL_MISSES };
        let after = before - before / RECENT_READS + missed / RECENT_READS;
        if after != before {
            self.recent_misses.store(after, Ordering::Relaxed);
        }
    }

    /// Returns whether most of its last reads missed, and others could be slowed down by that.
    pub(crate) fn reads_cold_data(&self) -> bool {
        !self.is_alone && self.recent_misses.load(Ordering::Relaxed) > ALL_MISSES / 2
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.name, self.number)
    }
}

/// Returns what is wrong with a tenant's name.
pub(super) fn check_tenant_name(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_plain) {
        return Ok(());
    }
    Err(format!(
        "is {name:?}; a tenant's name has 1 to {NAME_BYTES_MAX} letters, digits, dots, hyphens and \
         underscores"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tenant_read_last_says_whether_it_reads_cold_data() {
        let tenant = Tenant::one_of_several("t", 1);
        assert!(!tenant.reads_cold_data());
        (0..4).for_each(|_| tenant.note_read(false));
        assert!(!tenant.reads_cold_data(), "a few misses among hits are nothing");
        (0..40).for_each(|_| tenant.note_read(false));
        assert!(tenant.reads_cold_data());
        (0..40).for_each(|_| tenant.note_read(true));
        assert!(!tenant.reads_cold_data());
    }
}
