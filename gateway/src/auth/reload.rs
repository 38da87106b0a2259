//! Watches the identities file and its secret files, and puts changes into force. Owns the
//! interval, and the rule that a bad file changes nothing: the identities read last stay.

use std::path::Path;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use verbs3_file_changes::{FileChanges, LOOK_EVERY};

use super::file;
use super::identity_store::IdentityStore;

impl IdentityStore {
    /// Follows the file until told to stop. May be cancelled at any time. Returns at once if there
    /// is no file.
    pub(crate) async fn follow_file(self: Arc<Self>, stop: CancellationToken) {
        let Some(path) = self.source_path().map(Path::to_owned) else { return };
        // The file may have changed since it was first read.
        let mut changes = FileChanges::default();
        while stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            let paths =
                [path.clone()].into_iter().chain(file::secret_files(&path)).collect::<Vec<_>>();
            match changes.read_changed(&paths, || file::read(&path)) {
                None => {}
                Some(Ok(table)) => {
                    info!(
                        path = %path.display(), identities = table.len(),
                        "the identities file is in force"
                    );
                    self.replace_table(table);
                }
                Some(Err(problems)) => {
                    for problem in &problems {
                        warn!(
                            path = %path.display(), %problem,
                            "the changed identities file is bad: the identities read before stay"
                        );
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::time::Duration;

    use super::*;

    fn write(path: &Path, key: &str) {
        fs::write(path, format!("[[identity]]\naccess_key = \"{key}\"\nsecret_key = \"s\"\n"))
            .unwrap();
    }

    async fn until(condition: impl Fn() -> bool) {
        for _ in 0..500 {
            if condition() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("did not come true within 10 s");
    }

    #[tokio::test]
    async fn a_good_change_is_taken_over_and_a_bad_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("identities.toml");
        write(&path, "FIRST");
        let identities = IdentityStore::load_file(&path).unwrap();
        let stop = CancellationToken::new();
        let task = tokio::spawn(identities.clone().follow_file(stop.clone()));

        write(&path, "SECOND-ONE");
        until(|| identities.get("SECOND-ONE").is_some()).await;
        assert!(identities.get("FIRST").is_none());

        fs::write(&path, "[[identity]]\naccess_key = \"THIRD\"\n").unwrap();
        tokio::time::sleep(LOOK_EVERY * 2).await;
        assert!(identities.get("SECOND-ONE").is_some(), "a bad file took the good identities away");

        write(&path, "FOURTH-ONE-NOW");
        until(|| identities.get("FOURTH-ONE-NOW").is_some()).await;
        stop.cancel();
        task.await.unwrap();
    }
}
