//! Owns the identities in force. Reads their file by way of `file`, and does not watch it
//! (`reload`).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::file;
use super::identities::{AuthIdentity, IdentityFileProblem, IdentityRule, IdentityTable};
use super::signing_key::SigningKeySlot;
use crate::operation_table::AccessRight;

/// All identities, replaced as a whole when their file changes.
pub struct IdentityStore {
    table: ArcSwap<IdentityTable>,
    source: Option<PathBuf>,
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
        Ok(Arc::new(Self { table: ArcSwap::from_pointee(table), source: Some(path.to_owned()) }))
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
        let identity = AuthIdentity {
            name,
            access_key: access_key.to_owned(),
            secret: secret_key.into(),
            rules,
            signing: SigningKeySlot::default(),
        };
        let table = IdentityTable::from([(access_key.to_owned(), Arc::new(identity))]);
        Arc::new(Self { table: ArcSwap::from_pointee(table), source: None })
    }

    /// Returns the number of identities in force.
    pub fn identities_count(&self) -> usize {
        self.table.load().len()
    }

    pub(crate) fn get(&self, access_key: &str) -> Option<Arc<AuthIdentity>> {
        self.table.load().get(access_key).cloned()
    }

    pub(super) fn source_path(&self) -> Option<&Path> {
        self.source.as_deref()
    }

    pub(super) fn replace_table(&self, table: IdentityTable) {
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
