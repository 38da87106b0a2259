//! The users file: who may sign in, as what, and by which password. Follows the file, and keeps
//! what was read last where a change can't be used. A changed file may name nobody; the first one
//! may not.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};
use parking_lot::Mutex;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;
use verbs3_file_changes::{FileChanges, LOOK_EVERY};
use verbs3_settings::read_bounded_text;

use super::roles::ConsoleRole;

/// Longest file, in bytes: thousands of users.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Most users of one file.
const USERS_MAX: usize = 1000;
/// Longest name of a user, and longest password, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 64;
pub(crate) const PASSWORD_BYTES_MAX: usize = 256;
/// Shortest password, in letters. Tries are few, and the hash is slow; so no rule on kinds of
/// letters.
const PASSWORD_LETTERS_MIN: usize = 12;

/// Costs of a password's hash: 19 MiB, two passes, one lane (OWASP's recommendation for Argon2id in
/// its Password Storage Cheat Sheet).
const HASH_COST: [u32; 3] = [19 * 1024, 2, 1];
/// Highest costs that a file may ask for. A sign-in would take too much memory or time.
const HASH_COST_MAX: [u32; 3] = [64 * 1024, 10, 4];

/// Why an entry or a file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConsoleUsersError {
    #[error("can't read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is longer than {FILE_BYTES_MAX} bytes", path.display())]
    Long { path: PathBuf },
    #[error("{} is no TOML of users", path.display())]
    Toml { path: PathBuf, source: Box<toml::de::Error> },
    #[error("{} has no users: no [[user]]", path.display())]
    Nobody { path: PathBuf },
    #[error("{} has more than {USERS_MAX} users", path.display())]
    Many { path: PathBuf },
    #[error("user {name:?} stands there twice")]
    Twice { name: String },
    #[error("user {name:?}: a name has 1 to 64 letters, digits, `.`, `_`, `@` and `-`")]
    Name { name: String },
    #[error("user {name}: {flaw}; make an entry by: verbs3 console-user {name}")]
    Hash { name: String, flaw: PasswordHashFlaw },
    #[error("a password has at least {PASSWORD_LETTERS_MIN} letters, and at most 256 bytes")]
    Password,
    #[error("the password can't be hashed")]
    Hashing(#[source] argon2::password_hash::Error),
    #[error("the entry can't be written")]
    Entry(#[source] toml::ser::Error),
}

/// What is wrong with a password's hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PasswordHashFlaw {
    #[error("password_hash is no hash of the form $argon2id$…")]
    Form,
    #[error("its hash costs more than a sign-in may: 64 MiB, 10 passes, 4 lanes")]
    Costly,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UsersFile {
    #[serde(default)]
    user: Vec<UserEntry>,
}

#[derive(Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
struct UserEntry {
    name: String,
    role: ConsoleRole,
    password_hash: String,
}

/// Which entry of the file a session was begun by. It ends when the entry is another one.
pub(crate) type EntryDigest = [u8; 32];

/// A user as the file in force has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KnownUser {
    pub(crate) role: ConsoleRole,
    pub(crate) entry: EntryDigest,
}

struct UserRecord {
    known: KnownUser,
    hash: PasswordHash,
}

struct UserTable {
    users: BTreeMap<String, UserRecord>,
    /// Hash that a password of an unknown name is compared with, so that it takes as long as the
    /// costliest entry. `None`: there are no users.
    decoy: Option<PasswordHash>,
}

/// The users of the console, as their file has them. Clones share them.
#[derive(Clone)]
pub struct ConsoleUsers {
    path: PathBuf,
    table: Arc<Mutex<Arc<UserTable>>>,
    /// Why the file as it is now is not in force.
    flaw: Arc<Mutex<Option<String>>>,
}

impl std::fmt::Debug for ConsoleUsers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsoleUsers").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ConsoleUsers {
    /// Reads the file.
    pub fn read_file(path: &Path) -> Result<Self, ConsoleUsersError> {
        let table = read_table(path)?;
        if table.users.is_empty() {
            return Err(ConsoleUsersError::Nobody { path: path.to_owned() });
        }
        let table = Arc::new(Mutex::new(Arc::new(table)));
        Ok(Self { path: path.to_owned(), table, flaw: Arc::default() })
    }

    /// Returns the user of this name.
    pub(crate) fn find_user(&self, name: &str) -> Option<KnownUser> {
        self.table.lock().users.get(name).map(|user| user.known)
    }

    /// Returns why the file as it is now is not in force. `None`: it is.
    pub(crate) fn file_flaw(&self) -> Option<String> {
        self.flaw.lock().clone()
    }

    /// Verifies a password, which takes tens of milliseconds of CPU. Unknown names take as long.
    pub(crate) fn verify_password(&self, name: &str, password: &str) -> Option<KnownUser> {
        let table = self.table.lock().clone();
        let found = table.users.get(name);
        let hash = found.map(|user| &user.hash).or(table.decoy.as_ref())?;
        let is_right = Argon2::default().verify_password(password.as_bytes(), hash).is_ok();
        found.filter(|_| is_right).map(|user| user.known)
    }

    /// Reads the file again whenever it changes, until told to stop. May be cancelled at any time.
    pub(crate) async fn follow_file(self, stop: CancellationToken) {
        let paths = [self.path.clone()];
        // It may have changed since it was first read.
        let mut changes = FileChanges::default();
        while stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            if let Some(read) = changes.read_changed(&paths, || read_table(&self.path)) {
                self.take_over(read);
            }
        }
    }

    fn take_over(&self, read: Result<UserTable, ConsoleUsersError>) {
        let flaw = match read {
            Ok(table) => {
                let (path, users) = (self.path.display(), table.users.len());
                tracing::info!(%path, users, "the console's users file is in force");
                *self.table.lock() = Arc::new(table);
                None
            }
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(
                    %error, cause,
                    "the changed users file of the console is bad: the users read before stay"
                );
                Some(error.to_string())
            }
        };
        *self.flaw.lock() = flaw;
    }
}

fn read_table(path: &Path) -> Result<UserTable, ConsoleUsersError> {
    let owned = || path.to_owned();
    let read = |source| ConsoleUsersError::Read { path: owned(), source };
    if fs::metadata(path).map_err(read)?.len() > FILE_BYTES_MAX {
        return Err(ConsoleUsersError::Long { path: owned() });
    }
    let text = read_bounded_text(path, FILE_BYTES_MAX).map_err(read)?;
    let file: UsersFile = toml::from_str(&text)
        .map_err(|source| ConsoleUsersError::Toml { path: owned(), source: Box::new(source) })?;
    if file.user.len() > USERS_MAX {
        return Err(ConsoleUsersError::Many { path: owned() });
    }
    let mut users = BTreeMap::new();
    for UserEntry { name, role, password_hash } in file.user {
        check_name(&name)?;
        let hash = parse_hash(&password_hash)
            .map_err(|flaw| ConsoleUsersError::Hash { name: name.clone(), flaw })?;
        let digest = Sha256::new().chain_update(role.role_text()).chain_update(&password_hash);
        let known = KnownUser { role, entry: digest.finalize().into() };
        if users.contains_key(&name) {
            return Err(ConsoleUsersError::Twice { name });
        }
        users.insert(name, UserRecord { known, hash });
    }
    let costs = |user: &&UserRecord| password_costs(&user.hash).unwrap_or_default();
    let decoy = users.values().max_by_key(costs).map(|user| user.hash.clone());
    Ok(UserTable { users, decoy })
}

fn check_name(name: &str) -> Result<(), ConsoleUsersError> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._@-".contains(letter);
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(plain) {
        return Ok(());
    }
    Err(ConsoleUsersError::Name { name: name.to_owned() })
}

fn parse_hash(text: &str) -> Result<PasswordHash, PasswordHashFlaw> {
    let hash = PasswordHash::new(text).map_err(|_| PasswordHashFlaw::Form)?;
    if hash.algorithm.as_str() != "argon2id" || hash.hash.is_none() {
        return Err(PasswordHashFlaw::Form);
    }
    let asked = password_costs(&hash).ok_or(PasswordHashFlaw::Form)?;
    if asked.iter().zip(HASH_COST_MAX).any(|(&cost, most)| cost > most) {
        return Err(PasswordHashFlaw::Costly);
    }
    Ok(hash)
}

/// Returns memory in KiB, passes and lanes of a hash.
fn password_costs(hash: &PasswordHash) -> Option<[u32; 3]> {
    let costs = Params::try_from(hash).ok()?;
    Some([costs.m_cost(), costs.t_cost(), costs.p_cost()])
}

/// Makes an entry of the users file.
pub fn make_user_entry(
    name: &str,
    role: ConsoleRole,
    password: &str,
) -> Result<String, ConsoleUsersError> {
    check_name(name)?;
    let letters = password.chars().count();
    if letters < PASSWORD_LETTERS_MIN || password.len() > PASSWORD_BYTES_MAX {
        return Err(ConsoleUsersError::Password);
    }
    let [memory, passes, lanes] = HASH_COST;
    let costs = Params::new(memory, passes, lanes, None)
        .map_err(|error| ConsoleUsersError::Hashing(error.into()))?;
    let hash = Argon2::new(Algorithm::Argon2id, Version::V0x13, costs)
        .hash_password(password.as_bytes())
        .map_err(ConsoleUsersError::Hashing)?;
    let password_hash = hash.to_string();
    let entry = UserEntry { name: name.to_owned(), role, password_hash };
    let entry = toml::to_string(&entry).map_err(ConsoleUsersError::Entry)?;
    Ok(format!("[[user]]\n{entry}"))
}

#[cfg(test)]
mod tests;
