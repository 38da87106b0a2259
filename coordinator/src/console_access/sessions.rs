//! Sessions of users who have signed in. Bounded in number and time. Only digests of their tokens
//! are kept. Pure: takes the time.

use std::collections::HashMap;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::time::Instant;

use super::roles::ConsoleRole;
use super::users::{ConsoleUsers, EntryDigest, KnownUser};
use crate::settings::CoordinatorConsoleSettings;

/// Sessions of one user. The oldest one ends for a new one.
const PER_USER_MAX: usize = 8;

struct SessionRecord {
    user: String,
    entry: EntryDigest,
    form_token: String,
    began: Instant,
    used: Instant,
}

/// Who asks, as a session says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SignedInUser {
    pub(crate) name: String,
    pub(crate) role: ConsoleRole,
    /// What every changing form of this session holds.
    pub(crate) form_token: String,
}

impl SignedInUser {
    /// Returns whether a form is one of this session.
    pub(crate) fn owns_form(&self, token: Option<&str>) -> bool {
        let given = token.unwrap_or_default().as_bytes();
        self.form_token.as_bytes().ct_eq(given).into()
    }
}

/// Whether a request is made by the user's hand, or by the page that shows figures anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionUse {
    ByHand,
    /// Keeps no session alive.
    Refresh,
}

/// All sessions.
pub(crate) struct SessionTable {
    settings: CoordinatorConsoleSettings,
    sessions: HashMap<[u8; 32], SessionRecord>,
}

impl SessionTable {
    pub(crate) fn new(settings: CoordinatorConsoleSettings) -> Self {
        Self { settings, sessions: HashMap::new() }
    }

    /// Begins a session and returns its token. Who has as many as one user may, or where all places
    /// are taken, loses the one that was used longest ago.
    pub(crate) fn begin_session(&mut self, name: &str, known: KnownUser, now: Instant) -> String {
        let settings = &self.settings;
        self.sessions.retain(|_, session| is_alive(session, settings, now));
        let of_user = self.sessions.values().filter(|session| session.user == name).count();
        if of_user >= PER_USER_MAX {
            self.remove_oldest(|session| session.user == name);
        } else if self.sessions.len() >= self.settings.sessions_max as usize {
            self.remove_oldest(|_| true);
        }
        let (token, form_token) = (random_token(), random_token());
        let record = SessionRecord {
            user: name.to_owned(),
            entry: known.entry,
            form_token,
            began: now,
            used: now,
        };
        self.sessions.insert(digest_of(&token), record);
        token
    }

    /// Returns whose session a token is. `None`: it is over, or its user's entry has changed.
    pub(crate) fn find_session(
        &mut self,
        token: &str,
        users: &ConsoleUsers,
        purpose: SessionUse,
        now: Instant,
    ) -> Option<SignedInUser> {
        let digest = digest_of(token);
        let settings = &self.settings;
        let session = self.sessions.get_mut(&digest)?;
        let known = users.find_user(&session.user).filter(|known| known.entry == session.entry);
        let Some(known) = known.filter(|_| is_alive(session, settings, now)) else {
            self.sessions.remove(&digest);
            return None;
        };
        if purpose == SessionUse::ByHand {
            session.used = now;
        }
        Some(SignedInUser {
            name: session.user.clone(),
            role: known.role,
            form_token: session.form_token.clone(),
        })
    }

    /// Ends a session.
    pub(crate) fn end_session(&mut self, token: &str) {
        self.sessions.remove(&digest_of(token));
    }

    /// Ends all sessions that nobody could use any more.
    pub(crate) fn end_stale(&mut self, users: &ConsoleUsers, now: Instant) {
        let settings = &self.settings;
        self.sessions.retain(|_, session| {
            let known = users.find_user(&session.user);
            is_alive(session, settings, now)
                && known.is_some_and(|known| known.entry == session.entry)
        });
    }

    /// Returns how many sessions there are.
    pub(crate) fn session_count(&self) -> usize {
        self.sessions.len()
    }

    fn remove_oldest(&mut self, which: impl Fn(&SessionRecord) -> bool) {
        let candidates = self.sessions.iter().filter(|(_, session)| which(session));
        let oldest = candidates.min_by_key(|(_, session)| session.used).map(|(digest, _)| *digest);
        if let Some(digest) = oldest {
            self.sessions.remove(&digest);
        }
    }
}

fn is_alive(session: &SessionRecord, settings: &CoordinatorConsoleSettings, now: Instant) -> bool {
    now.duration_since(session.used) < settings.session_idle.0
        && now.duration_since(session.began) < settings.session_age.0
}

fn digest_of(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Draws 256 random bits from the system's generator, as 64 hexadecimal digits.
pub(crate) fn random_token() -> String {
    format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::users::make_user_entry;
    use super::*;
    use std::time::Duration;
    use verbs3_settings::TimePeriod;

    const IDLE: Duration = Duration::from_secs(600);

    struct Stage {
        folder: tempfile::TempDir,
        users: ConsoleUsers,
        table: SessionTable,
        start: Instant,
    }

    impl Stage {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            write(&folder, &["alice", "bob"]);
            let users = ConsoleUsers::read_file(&folder.path().join("users.toml")).unwrap();
            let age_max = Duration::from_secs(3600);
            let settings = CoordinatorConsoleSettings {
                sessions_max: 10,
                session_idle: TimePeriod(IDLE),
                session_age: TimePeriod(age_max),
                ..CoordinatorConsoleSettings::default()
            };
            Self { folder, users, table: SessionTable::new(settings), start: Instant::now() }
        }

        fn begin(&mut self, name: &str, after: u64) -> String {
            let known = self.users.find_user(name).unwrap();
            self.table.begin_session(name, known, self.start + Duration::from_secs(after))
        }

        fn find(&mut self, token: &str, purpose: SessionUse, after: u64) -> Option<SignedInUser> {
            let now = self.start + Duration::from_secs(after);
            self.table.find_session(token, &self.users, purpose, now)
        }
    }

    fn write(folder: &tempfile::TempDir, names: &[&str]) {
        let entry = |name| make_user_entry(name, ConsoleRole::Viewer, "a good password").unwrap();
        let entries: Vec<String> = names.iter().map(|&name| entry(name)).collect();
        std::fs::write(folder.path().join("users.toml"), entries.join("\n")).unwrap();
    }

    #[test]
    fn a_session_ends_when_nobody_uses_it_and_after_its_time() {
        let mut stage = Stage::new();
        let (idle, used, watched) =
            (stage.begin("alice", 0), stage.begin("alice", 0), stage.begin("bob", 0));
        for minute in 1..10 {
            assert!(stage.find(&used, SessionUse::ByHand, minute * 60).is_some());
            assert!(stage.find(&watched, SessionUse::Refresh, minute * 60).is_some());
        }
        assert_eq!(stage.find(&idle, SessionUse::ByHand, 600), None);
        // A page that is left open is no user.
        assert_eq!(stage.find(&watched, SessionUse::Refresh, 600), None);
        for minute in 10..60 {
            assert!(stage.find(&used, SessionUse::ByHand, minute * 60).is_some(), "{minute}");
        }
        assert_eq!(stage.find(&used, SessionUse::ByHand, 3600), None);
        assert_eq!(stage.table.session_count(), 0);
    }

    #[test]
    fn sessions_are_bounded_in_all_and_for_each_user() {
        let mut stage = Stage::new();
        let bobs = [stage.begin("bob", 0), stage.begin("bob", 1)];
        let first = stage.begin("alice", 2);
        (3..20).for_each(|second| drop(stage.begin("alice", second)));
        assert_eq!(stage.table.session_count(), 10);
        assert_eq!(stage.find(&first, SessionUse::ByHand, 20), None);
        // One user's sessions push nobody else out.
        for bob in &bobs {
            assert!(stage.find(bob, SessionUse::ByHand, 20).is_some());
        }
    }

    #[test]
    fn another_password_or_no_entry_ends_sessions() {
        let mut stage = Stage::new();
        let (alice, bob) = (stage.begin("alice", 0), stage.begin("bob", 0));
        write(&stage.folder, &["alice"]);
        stage.users = ConsoleUsers::read_file(&stage.folder.path().join("users.toml")).unwrap();
        // Another salt: it is as if the password had changed.
        assert_eq!(stage.find(&alice, SessionUse::ByHand, 1), None);
        assert_eq!(stage.find(&bob, SessionUse::ByHand, 1), None);
    }

    #[test]
    fn sessions_end_though_nobody_asks_for_them() {
        let mut stage = Stage::new();
        let _old = stage.begin("alice", 0);
        let _new = stage.begin("bob", 300);
        let later = |after| stage.start + Duration::from_secs(after);
        stage.table.end_stale(&stage.users, later(599));
        assert_eq!(stage.table.session_count(), 2);
        stage.table.end_stale(&stage.users, later(600));
        assert_eq!(stage.table.session_count(), 1);
        write(&stage.folder, &["alice"]);
        let users = ConsoleUsers::read_file(&stage.folder.path().join("users.toml")).unwrap();
        stage.table.end_stale(&users, later(600));
        assert_eq!(stage.table.session_count(), 0);
    }

    #[test]
    fn forms_of_other_sessions_are_not_ones_own() {
        let mut stage = Stage::new();
        let (one, other) = (stage.begin("alice", 0), stage.begin("alice", 0));
        let one = stage.find(&one, SessionUse::ByHand, 1).unwrap();
        let other = stage.find(&other, SessionUse::ByHand, 1).unwrap();
        assert!(one.owns_form(Some(&one.form_token)));
        assert!(!one.owns_form(Some(&other.form_token)) && !one.owns_form(None));
        assert!(!one.owns_form(Some("")));
    }
}
