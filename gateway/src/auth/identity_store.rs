//! Owns the identities in force. Reads their file by way of `file`, and does not watch it
//! (`reload`).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use verbs3_metrics::TableFamily;

use super::file;
use super::identities::{AuthIdentity, IdentityFileProblem, IdentityRule, IdentityTable};
use super::signing_key::SigningKeySlot;
use super::tenant::Tenant;
use super::tenant_directory::TenantDirectory;
use crate::operation_table::AccessRight;
use crate::tenant_metrics::TenantMetrics;

/// All identities, replaced as a whole when their file changes.
pub struct IdentityStore {
    table: ArcSwap<IdentityTable>,
    source: Option<PathBuf>,
    tenants: Mutex<TenantDirectory>,
}

/// All problems of an identities file.
#[derive(Debug, Clone, thiserror::Error)]
#[error("identities file {}: {}", .path.display(), join_problems(.problems))]
pub struct IdentitiesError {
    pub path: PathBuf,
    pub problems: Vec<IdentityFileProblem>,
}

fn join_problems(problems: &[IdentityFileProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl IdentityStore {
    /// Reads an identities file. Looks for `secret_file`s beside it.
    pub fn load_file(path: &Path) -> Result<Arc<Self>, IdentitiesError> {
        let table = file::read(path)
            .map_err(|problems| IdentitiesError { path: path.to_owned(), problems })?;
        Ok(Self::from_table(table, Some(path.to_owned())))
    }

    /// Makes a store with one identity that may do everything on every mount. For `verbs3 dev` and
    /// tests.
    pub fn with_single(access_key: &str, secret_key: &str) -> Arc<Self> {
        let rights = vec![
            AccessRight::read,
            AccessRight::write,
            AccessRight::list,
            AccessRight::delete,
            AccessRight::warm,
            AccessRight::admin,
        ];
        let rules = vec![IdentityRule { mount: "*".into(), prefix: String::new(), rights }];
        let name = "owner".to_owned();
        let tenant = Arc::new(Tenant::unnumbered(&name, 1));
        let identity = AuthIdentity {
            name,
            access_key: access_key.to_owned(),
            secret: secret_key.into(),
            rules,
            signing: SigningKeySlot::default(),
            tenant,
        };
        let table = IdentityTable::from([(access_key.to_owned(), Arc::new(identity))]);
        Self::from_table(table, None)
    }

    fn from_table(mut table: IdentityTable, source: Option<PathBuf>) -> Arc<Self> {
        let mut tenants = TenantDirectory::default();
        tenants.number_tenants(&mut table);
        let (table, tenants) = (ArcSwap::from_pointee(table), Mutex::new(tenants));
        Arc::new(Self { table, source, tenants })
    }

    /// Returns the number of identities in force.
    pub fn identities_count(&self) -> usize {
        self.table.load().len()
    }

    /// Returns the metrics of all tenants, for a registry.
    pub(crate) fn tenant_metrics(&self) -> TableFamily<TenantMetrics> {
        self.tenants.lock().all_metrics()
    }

    pub(crate) fn get(&self, access_key: &str) -> Option<Arc<AuthIdentity>> {
        self.table.load().get(access_key).cloned()
    }

    pub(super) fn source_path(&self) -> Option<&Path> {
        self.source.as_deref()
    }

    pub(super) fn replace_table(&self, mut table: IdentityTable) {
        self.tenants.lock().number_tenants(&mut table);
        self.table.store(Arc::new(table));
    }
}

impl fmt::Debug for IdentityStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identities")
            .field("source", &self.source)
            .field("count", &self.identities_count())
            .finish_non_exhaustive()
    }
}
