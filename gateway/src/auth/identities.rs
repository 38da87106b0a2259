//! Owns an identity and its rules, and the decision whether it may do something: denied unless a
//! rule allows it. Does not read files.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use s3s::auth::SecretKey;

use super::signing_key::{SigningKey, SigningKeySlot};
use super::tenant::Tenant;
use crate::operation_table::AccessRight;

/// One rule of an identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityRule {
    /// The mount's name; `*` for all mounts.
    pub mount: String,
    /// The rule applies to keys that start with this; empty for all. A file's prefix `a*` is `a`
    /// here.
    pub prefix: String,
    pub rights: Vec<AccessRight>,
}

/// One access key and what it may do.
#[derive(Clone)]
pub struct AuthIdentity {
    pub(super) name: String,
    pub(super) access_key: String,
    pub(super) secret: SecretKey,
    pub(super) rules: Vec<IdentityRule>,
    pub(super) signing: SigningKeySlot,
    pub(super) tenant: Arc<Tenant>,
}

impl AuthIdentity {
    /// Returns the name for logs. It never is the secret.
    pub fn identity_name(&self) -> &str {
        &self.name
    }

    /// Returns who is accounted for what this identity does.
    pub fn tenant(&self) -> &Arc<Tenant> {
        &self.tenant
    }

    /// Returns the secret for signatures. Never log it.
    pub(crate) fn secret_key(&self) -> &str {
        self.secret.expose()
    }

    /// Signs a text, given in parts, with the secret's key for `scope`,
    /// `DAY/REGION/SERVICE/aws4_request`. `None`: there is no such key.
    pub(crate) fn sign_text(&self, scope: &str, text: &[&str]) -> Option<SigningKey> {
        self.signing.sign_text(self.secret.expose(), scope, text)
    }

    /// Returns whether a rule allows this. `subject` is a key, or the listed prefix.
    /// `AccessRight::seen` asks whether any rule names the mount.
    pub fn allows_right(&self, mount: &str, subject: &str, right: AccessRight) -> bool {
        self.rules.iter().filter(|rule| rule.mount == mount || rule.mount == "*").any(|rule| {
            match right {
                AccessRight::seen => !rule.rights.is_empty(),
                // Administration concerns the whole bucket. A rule about a part of it does not
                // grant it.
                AccessRight::admin => rule.prefix.is_empty() && rule.rights.contains(&right),
                AccessRight::read
                | AccessRight::write
                | AccessRight::list
                | AccessRight::delete
                | AccessRight::warm => {
                    rule.rights.contains(&right) && subject.starts_with(&rule.prefix)
                }
                // An administrator of the bucket could open or lock all of it anyway, by its policy
                // and lock configuration.
                AccessRight::acl | AccessRight::lock => {
                    (rule.rights.contains(&right) && subject.starts_with(&rule.prefix))
                        || (rule.prefix.is_empty() && rule.rights.contains(&AccessRight::admin))
                }
            }
        })
    }
}

impl fmt::Debug for AuthIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("name", &self.name)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

pub(super) type IdentityTable = HashMap<String, Arc<AuthIdentity>>;

/// One problem of an identities file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}{}: {what}", show_line(*.line))]
pub struct IdentityFileProblem {
    /// A path such as `identity[1].allow[0].rights`, or a line.
    pub place: String,
    /// The line of a path, or of what it would be in; from 1.
    pub line: Option<usize>,
    pub what: String,
}

fn show_line(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(" (line {line})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(rules: &[(&str, &str, &[AccessRight])]) -> AuthIdentity {
        let rule = |&(mount, prefix, rights): &(&str, &str, &[AccessRight])| IdentityRule {
            mount: mount.into(),
            prefix: prefix.into(),
            rights: rights.to_vec(),
        };
        let rules = rules.iter().map(rule).collect();
        AuthIdentity {
            name: "someone".into(),
            access_key: "AK".into(),
            secret: "the-secret".into(),
            rules,
            signing: SigningKeySlot::default(),
            tenant: Tenant::unknown().clone(),
        }
    }

    #[test]
    fn what_no_rule_allows_is_denied() {
        let reader = identity(&[("train", "a/", &[AccessRight::read])]);
        assert!(reader.allows_right("train", "a/x", AccessRight::read));
        for (mount, key, right) in [
            ("train", "a/x", AccessRight::write),
            ("train", "b/x", AccessRight::read),
            ("train", "a", AccessRight::read),
            ("other", "a/x", AccessRight::read),
            ("train", "a/x", AccessRight::admin),
        ] {
            assert!(!reader.allows_right(mount, key, right), "{mount} {key} {right:?}");
        }
        assert!(!identity(&[]).allows_right("train", "", AccessRight::seen));
    }

    #[test]
    fn listing_above_the_allowed_prefix_is_denied() {
        let lister = identity(&[("*", "a/", &[AccessRight::list])]);
        assert!(lister.allows_right("train", "a/b", AccessRight::list));
        assert!(!lister.allows_right("train", "", AccessRight::list));
    }

    #[test]
    fn admin_on_a_prefix_is_no_admin() {
        assert!(!identity(&[("train", "a/", &[AccessRight::admin])]).allows_right(
            "train",
            "",
            AccessRight::admin
        ));
        assert!(identity(&[("train", "", &[AccessRight::admin])]).allows_right(
            "train",
            "",
            AccessRight::admin
        ));
    }

    #[test]
    fn to_write_is_neither_to_open_nor_to_lock() {
        let writer = identity(&[(
            "train",
            "",
            &[AccessRight::read, AccessRight::write, AccessRight::list, AccessRight::delete],
        )]);
        let opener = identity(&[("train", "a/", &[AccessRight::acl, AccessRight::lock])]);
        let owner = identity(&[("train", "", &[AccessRight::admin])]);
        let part_owner = identity(&[("train", "a/", &[AccessRight::admin])]);
        for right in [AccessRight::acl, AccessRight::lock] {
            assert!(!writer.allows_right("train", "a/x", right), "{right:?}");
            assert!(
                opener.allows_right("train", "a/x", right)
                    && !opener.allows_right("train", "b/x", right),
                "{right:?}"
            );
            assert!(!opener.allows_right("train", "a/x", AccessRight::write));
            assert!(
                owner.allows_right("train", "a/x", right)
                    && !owner.allows_right("other", "a/x", right),
                "{right:?}"
            );
            assert!(!part_owner.allows_right("train", "a/x", right), "{right:?}");
        }
    }

    #[test]
    fn debug_output_holds_no_secret() {
        let one = crate::auth::IdentityStore::with_single("AK", "the-secret");
        let text = format!("{:?} {:?}", one, identity(&[]));
        assert!(!text.contains("the-secret"), "{text}");
    }
}
