//! Whom a users file lets in, what is refused in one, and how a change of it is taken over.
#![allow(clippy::unwrap_used)]

use super::*;

const PASSWORD: &str = "correct horse battery";

fn write(path: &Path, entries: &[&str]) {
    let next = path.with_extension("next");
    fs::write(&next, entries.join("\n")).unwrap();
    fs::rename(next, path).unwrap();
}

fn flaw_of(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users.toml");
    write(&path, &[text]);
    ConsoleUsers::read_file(&path).unwrap_err().to_string()
}

#[test]
fn an_entry_that_was_made_lets_its_user_in_and_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users.toml");
    let alice = make_user_entry("alice", ConsoleRole::Operator, PASSWORD).unwrap();
    let bob = make_user_entry("bob", ConsoleRole::Viewer, "another good password").unwrap();
    assert!(!alice.contains(PASSWORD));
    write(&path, &[&alice, &bob]);
    let users = ConsoleUsers::read_file(&path).unwrap();
    let known = users.verify_password("alice", PASSWORD).unwrap();
    assert_eq!(known.role, ConsoleRole::Operator);
    assert_eq!(users.find_user("alice"), Some(known));
    assert_eq!(users.verify_password("bob", PASSWORD), None);
    // The first entry's password, by which the unknown are measured, lets nobody else in.
    assert_eq!(users.verify_password("carol", PASSWORD), None);
}

#[test]
fn unknown_names_take_as_long_as_the_costliest_entry() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users.toml");
    let entry = |name| make_user_entry(name, ConsoleRole::Viewer, PASSWORD).unwrap();
    let cheap = entry("a").replace("m=19456", "m=8192");
    write(&path, &[&cheap, &entry("b"), &cheap.replace("\"a\"", "\"c\"")]);
    let users = ConsoleUsers::read_file(&path).unwrap();
    let table = users.table.lock().clone();
    assert_eq!(table.decoy.as_ref().and_then(password_costs), Some(HASH_COST));
}

#[test]
fn passwords_that_are_short_or_endless_get_no_entry() {
    for password in ["short", &"x".repeat(257)] {
        assert!(make_user_entry("alice", ConsoleRole::Viewer, password).is_err());
    }
    assert!(make_user_entry("a b", ConsoleRole::Viewer, PASSWORD).is_err());
}

#[test]
fn what_can_not_be_used_is_named() {
    assert!(flaw_of("").contains("no users"));
    assert!(flaw_of("[[user]]\nname = \"a\"\nrole = \"root\"\n").contains("no TOML"));
    let entry = |hash: &str| {
        format!("[[user]]\nname = \"a\"\nrole = \"viewer\"\npassword_hash = \"{hash}\"\n")
    };
    for hash in ["", "secret", "$argon2i$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2g"] {
        assert!(flaw_of(&entry(hash)).contains("no hash"), "{hash}");
    }
    let made = make_user_entry("a", ConsoleRole::Viewer, PASSWORD).unwrap();
    assert!(flaw_of(&made.replace("m=19456", "m=4000000")).contains("costs more"));
    assert!(flaw_of(&format!("{made}\n{made}")).contains("twice"));
    assert!(flaw_of(&made.replace("\"a\"", "\"<b>\"")).contains("a name has"));
}

/// Users whose file is followed.
struct Followed {
    folder: tempfile::TempDir,
    users: ConsoleUsers,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Followed {
    fn start(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("users.toml"), &[text]);
        let users = ConsoleUsers::read_file(&folder.path().join("users.toml")).unwrap();
        let stop = CancellationToken::new();
        let task = tokio::spawn(users.clone().follow_file(stop.clone()));
        Self { folder, users, stop, task }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("users.toml")
    }

    fn knows(&self, name: &str) -> bool {
        self.users.find_user(name).is_some()
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

fn viewer(name: &str) -> String {
    make_user_entry(name, ConsoleRole::Viewer, PASSWORD).unwrap()
}

async fn some_looks() {
    tokio::time::sleep(LOOK_EVERY * 4).await;
}

#[tokio::test(start_paused = true)]
async fn a_good_change_is_taken_over_and_a_bad_one_is_not() {
    let followed = Followed::start(&viewer("first"));
    some_looks().await;
    write(&followed.path(), &[&viewer("second")]);
    some_looks().await;
    assert!(followed.knows("second") && !followed.knows("first"));
    assert_eq!(followed.users.file_flaw(), None);
    write(&followed.path(), &["[[user]]\nname = 1\n"]);
    some_looks().await;
    assert!(followed.knows("second"), "a bad file took the good users away");
    let flaw = followed.users.file_flaw().unwrap();
    assert!(flaw.contains("is no TOML of users"), "{flaw}");
    write(&followed.path(), &[&viewer("third")]);
    some_looks().await;
    assert!(followed.knows("third"));
    assert_eq!(followed.users.file_flaw(), None);
    followed.end().await;
}

#[tokio::test(start_paused = true)]
async fn who_is_not_written_yet_is_not_removed() {
    let (first, second) = (viewer("first"), viewer("second"));
    let followed = Followed::start(&format!("{first}\n{second}"));
    some_looks().await;
    // In place, with a pause between the entries.
    for text in ["", &first, &format!("{first}\n{second}\n")] {
        fs::write(followed.path(), text).unwrap();
        tokio::time::sleep(LOOK_EVERY).await;
        assert!(followed.knows("first") && followed.knows("second"), "{text}");
    }
    followed.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_last_user_can_be_removed() {
    let followed = Followed::start(&viewer("first"));
    some_looks().await;
    write(&followed.path(), &["# nobody"]);
    some_looks().await;
    assert!(!followed.knows("first"));
    assert_eq!(followed.users.verify_password("first", PASSWORD), None);
    assert_eq!(followed.users.file_flaw(), None);
    followed.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_file_that_can_not_be_read_is_a_flaw() {
    let followed = Followed::start(&viewer("first"));
    some_looks().await;
    fs::remove_file(followed.path()).unwrap();
    some_looks().await;
    assert!(followed.knows("first"), "a file that is away took the users away");
    assert!(followed.users.file_flaw().unwrap().contains("can't read"));
    write(&followed.path(), &[&viewer("second")]);
    some_looks().await;
    assert!(followed.knows("second") && followed.users.file_flaw().is_none());
    followed.end().await;
}
