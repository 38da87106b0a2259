//! Owns the numbers of tenants, which they keep while the identities file names them, and whose
//! metrics have series of their own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use verbs3_metrics::TableFamily;

use super::identities::IdentityTable;
use super::tenant::{NOBODY, Tenant};
use crate::tenant_metrics::TenantMetrics;

/// Most tenants with series of their own, and what the metrics call the others.
const METERED_MAX: usize = 64;
const UNMETERED: &str = "other";

/// The numbers of the tenants in force.
#[derive(Default)]
pub(super) struct TenantDirectory {
    numbers: HashMap<String, u32>,
    metrics: TableFamily<TenantMetrics>,
    /// Tenants with series of their own. They stay.
    metered: BTreeSet<String>,
}

impl TenantDirectory {
    /// Gives a table's tenants their numbers. A tenant keeps the number that it has. The number of
    /// one that is gone goes to a new one; what the old one still holds counts against it then.
    pub fn number_tenants(&mut self, table: &mut IdentityTable) {
        let weights: BTreeMap<String, u32> = (table.values())
            .map(|identity| {
                let tenant = identity.tenant();
                (tenant.tenant_name().to_owned(), tenant.tenant_weight())
            })
            .collect();
        self.numbers.retain(|name, _| weights.contains_key(name));
        let mut taken: BTreeSet<u32> = self.numbers.values().copied().collect();
        let is_alone = weights.len() <= 1;
        let mut tenants = HashMap::new();
        for (name, weight) in weights {
            let number = *self.numbers.entry(name.clone()).or_insert_with(|| {
                let free = (NOBODY + 1..).find(|number| !taken.contains(number));
                free.expect("there are fewer tenants than numbers")
            });
            taken.insert(number);
            let metrics = self.meter_tenant(&name);
            let tenant = Tenant::unnumbered(&name, weight).numbered(number, is_alone, metrics);
            tenants.insert(name, Arc::new(tenant));
        }
        for identity in table.values_mut() {
            let identity = Arc::make_mut(identity);
            if let Some(tenant) = tenants.get(identity.tenant.tenant_name()) {
                identity.tenant = tenant.clone();
            }
        }
    }

    /// Returns the metrics of all tenants, for a registry.
    pub fn all_metrics(&self) -> TableFamily<TenantMetrics> {
        self.metrics.clone()
    }

    fn meter_tenant(&mut self, name: &str) -> TenantMetrics {
        if self.metered.len() < METERED_MAX {
            self.metered.insert(name.to_owned());
        }
        let is_metered = self.metered.contains(name);
        self.metrics.select_table(if is_metered { name } else { UNMETERED })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use super::super::file::parse_identities;
    use super::*;

    fn table(tenants: &[(&str, Option<&str>)]) -> IdentityTable {
        let identity = |(name, tenant): &(&str, Option<&str>)| {
            let tenant = tenant.map_or(String::new(), |tenant| format!("tenant = \"{tenant}\"\n"));
            format!("[[identity]]\naccess_key = \"{name}\"\nsecret_key = \"s\"\n{tenant}")
        };
        let text: String = tenants.iter().map(identity).collect();
        parse_identities(&text, Path::new(".")).unwrap()
    }

    fn numbers(table: &IdentityTable) -> BTreeMap<String, (String, u32)> {
        let number = |(key, identity): (&String, &Arc<crate::auth::AuthIdentity>)| {
            let tenant = identity.tenant();
            (key.clone(), (tenant.tenant_name().to_owned(), tenant.tenant_number()))
        };
        table.iter().map(number).collect()
    }

    #[test]
    fn identities_of_one_tenant_have_one_number() {
        let mut table = table(&[("A", Some("t")), ("B", Some("t")), ("C", None)]);
        TenantDirectory::default().number_tenants(&mut table);
        let numbers = numbers(&table);
        assert_eq!(numbers["A"], ("t".to_owned(), numbers["B"].1));
        assert_eq!(numbers["C"].0, "C");
        assert!(numbers["C"].1 != numbers["A"].1 && numbers.values().all(|one| one.1 != NOBODY));
        assert!(!table["A"].tenant().is_alone());
    }

    #[test]
    fn tenant_keeps_its_number_over_a_change_of_the_file() {
        let mut directory = TenantDirectory::default();
        let mut before = table(&[("A", None), ("B", None), ("C", None)]);
        directory.number_tenants(&mut before);
        let mut after = table(&[("0", None), ("B", None)]);
        directory.number_tenants(&mut after);
        let (before, after) = (numbers(&before), numbers(&after));
        assert_eq!(before["B"], after["B"]);
        assert!(after["0"].1 != after["B"].1 && after["0"].1 <= 3, "{after:?}");
    }

    #[test]
    fn series_of_tenants_are_bounded() {
        let mut directory = TenantDirectory::default();
        let names: Vec<String> = (0..METERED_MAX + 2).map(|number| format!("t{number}")).collect();
        let tenants: Vec<(&str, Option<&str>)> =
            names.iter().map(|name| (name.as_str(), None)).collect();
        let mut table = table(&tenants);
        directory.number_tenants(&mut table);
        assert_eq!(directory.all_metrics().list_tables().len(), METERED_MAX + 1);
        table.values().for_each(|identity| identity.tenant().metrics().requests.inc());
        let others = directory.all_metrics().select_table(UNMETERED);
        assert_eq!(others.requests.get(), 2);
    }

    #[test]
    fn identities_of_a_single_tenant_are_alone() {
        let mut table = table(&[("A", Some("t")), ("B", Some("t"))]);
        TenantDirectory::default().number_tenants(&mut table);
        assert!(table["A"].tenant().is_alone() && table["B"].tenant().is_alone());
    }
}
