//! Identities and their rules. Owns the decision whether an identity may do something: denied
//! unless a rule allows it. Does not read files (`file`) and does not watch them (`reload`).

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use s3s::auth::SecretKey;

use super::file;
use crate::operations::Right;

/// What one rule allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The mount's name; `*` for all.
    pub mount: String,
    /// Keys that start with it, whatever it ends in; empty for all. Of a file's prefix `a*` it is
    /// `a`.
    pub prefix: String,
    pub rights: Vec<Right>,
}

/// One access key and what it may do.
pub struct Identity {
    pub(super) name: String,
    pub(super) access_key: String,
    pub(super) secret: SecretKey,
    pub(super) rules: Vec<Rule>,
}

impl Identity {
    /// For logs: never the secret.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// For signatures: never for logs.
    pub(crate) fn secret(&self) -> &str {
        self.secret.expose()
    }

    /// `subject` is a key, or the prefix that is listed; `Right::seen` asks whether any rule speaks
    /// of the mount.
    pub fn allows(&self, mount: &str, subject: &str, right: Right) -> bool {
        self.rules.iter().filter(|rule| rule.mount == mount || rule.mount == "*").any(|rule| {
            match right {
                Right::seen => !rule.rights.is_empty(),
                // Administration concerns the bucket as a whole: a rule about a part of it does not
                // give it.
                Right::admin => rule.prefix.is_empty() && rule.rights.contains(&right),
                Right::read | Right::write | Right::list | Right::delete => {
                    rule.rights.contains(&right) && subject.starts_with(&rule.prefix)
                }
                // Who administers the bucket could open or lock all of it anyway, by its policy and
                // its lock configuration.
                Right::acl | Right::lock => {
                    (rule.rights.contains(&right) && subject.starts_with(&rule.prefix))
                        || (rule.prefix.is_empty() && rule.rights.contains(&Right::admin))
                }
            }
        })
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("name", &self.name)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

pub(super) type Table = HashMap<String, Arc<Identity>>;

/// All identities, replaced as a whole when their file changes.
pub struct Identities {
    table: ArcSwap<Table>,
    source: Option<PathBuf>,
}

/// One thing that is wrong with an identities file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct Problem {
    /// `identity[1].allow[0].rights`, or a line.
    pub place: String,
    pub what: String,
}

/// Everything that is wrong with an identities file.
#[derive(Debug, Clone, thiserror::Error)]
#[error("identities file {}: {}", .path.display(), list(.problems))]
pub struct IdentitiesError {
    pub path: PathBuf,
    pub problems: Vec<Problem>,
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Identities {
    /// Reads an identities file. `secret_file`s are looked for beside it.
    pub fn load(path: &Path) -> Result<Arc<Self>, IdentitiesError> {
        let table = file::read(path)
            .map_err(|problems| IdentitiesError { path: path.to_owned(), problems })?;
        Ok(Arc::new(Self { table: ArcSwap::from_pointee(table), source: Some(path.to_owned()) }))
    }

    /// One identity that may do everything on every mount: for `verbs3 dev` and tests.
    pub fn single(access_key: &str, secret_key: &str) -> Arc<Self> {
        let rights = vec![Right::read, Right::write, Right::list, Right::delete, Right::admin];
        let rules = vec![Rule { mount: "*".into(), prefix: String::new(), rights }];
        let name = "owner".to_owned();
        let identity =
            Identity { name, access_key: access_key.to_owned(), secret: secret_key.into(), rules };
        let table = Table::from([(access_key.to_owned(), Arc::new(identity))]);
        Arc::new(Self { table: ArcSwap::from_pointee(table), source: None })
    }

    pub fn count(&self) -> usize {
        self.table.load().len()
    }

    pub(crate) fn get(&self, access_key: &str) -> Option<Arc<Identity>> {
        self.table.load().get(access_key).cloned()
    }

    pub(super) fn source(&self) -> Option<&Path> {
        self.source.as_deref()
    }

    pub(super) fn replace(&self, table: Table) {
        self.table.store(Arc::new(table));
    }
}

impl fmt::Debug for Identities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identities")
            .field("source", &self.source)
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(rules: &[(&str, &str, &[Right])]) -> Identity {
        let rule = |&(mount, prefix, rights): &(&str, &str, &[Right])| Rule {
            mount: mount.into(),
            prefix: prefix.into(),
            rights: rights.to_vec(),
        };
        let rules = rules.iter().map(rule).collect();
        Identity {
            name: "someone".into(),
            access_key: "AK".into(),
            secret: "the-secret".into(),
            rules,
        }
    }

    #[test]
    fn what_no_rule_allows_is_denied() {
        let reader = identity(&[("train", "a/", &[Right::read])]);
        assert!(reader.allows("train", "a/x", Right::read));
        for (mount, key, right) in [
            ("train", "a/x", Right::write),
            ("train", "b/x", Right::read),
            ("train", "a", Right::read),
            ("other", "a/x", Right::read),
            ("train", "a/x", Right::admin),
        ] {
            assert!(!reader.allows(mount, key, right), "{mount} {key} {right:?}");
        }
        assert!(!identity(&[]).allows("train", "", Right::seen));
    }

    #[test]
    fn listing_above_the_allowed_prefix_is_denied() {
        let lister = identity(&[("*", "a/", &[Right::list])]);
        assert!(lister.allows("train", "a/b", Right::list));
        assert!(!lister.allows("train", "", Right::list));
    }

    #[test]
    fn admin_on_a_prefix_is_no_admin() {
        assert!(!identity(&[("train", "a/", &[Right::admin])]).allows("train", "", Right::admin));
        assert!(identity(&[("train", "", &[Right::admin])]).allows("train", "", Right::admin));
    }

    #[test]
    fn to_write_is_neither_to_open_nor_to_lock() {
        let writer =
            identity(&[("train", "", &[Right::read, Right::write, Right::list, Right::delete])]);
        let opener = identity(&[("train", "a/", &[Right::acl, Right::lock])]);
        let owner = identity(&[("train", "", &[Right::admin])]);
        let part_owner = identity(&[("train", "a/", &[Right::admin])]);
        for right in [Right::acl, Right::lock] {
            assert!(!writer.allows("train", "a/x", right), "{right:?}");
            assert!(
                opener.allows("train", "a/x", right) && !opener.allows("train", "b/x", right),
                "{right:?}"
            );
            assert!(!opener.allows("train", "a/x", Right::write));
            assert!(
                owner.allows("train", "a/x", right) && !owner.allows("other", "a/x", right),
                "{right:?}"
            );
            assert!(!part_owner.allows("train", "a/x", right), "{right:?}");
        }
    }

    #[test]
    fn debug_output_holds_no_secret() {
        let one = Identities::single("AK", "the-secret");
        let text = format!("{:?} {:?}", one, identity(&[]));
        assert!(!text.contains("the-secret"), "{text}");
    }
}
