//! Files that change while they are looked at.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use tempfile::TempDir;

use super::*;

/// A file of words; "bad" is refused.
struct WordFile {
    folder: TempDir,
    paths: Vec<PathBuf>,
    changes: FileChanges,
}

impl WordFile {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let paths = vec![folder.path().join("words")];
        fs::write(&paths[0], text).unwrap();
        let changes = FileChanges::since_now(&paths);
        Self { folder, paths, changes }
    }

    fn path(&self) -> &Path {
        &self.paths[0]
    }

    fn look(&mut self) -> Option<Result<String, String>> {
        let path = self.paths[0].clone();
        self.changes.read_changed(&self.paths, || match fs::read_to_string(path) {
            Ok(text) if text != "bad" => Ok(text),
            Ok(text) => Err(text),
            Err(_) => Err("gone".into()),
        })
    }
}

#[test]
fn a_file_is_read_once_it_is_at_rest_and_only_then() {
    let mut file = WordFile::new("one");
    assert_eq!([file.look(), file.look()], [None, None]);
    fs::write(file.path(), "").unwrap();
    assert_eq!(file.look(), None, "it is being written");
    fs::write(file.path(), "four").unwrap();
    assert_eq!(file.look(), None, "it has changed since");
    assert_eq!(file.look(), Some(Ok("four".into())));
    assert_eq!(file.look(), None);
}

#[test]
fn what_is_read_while_the_file_is_written_is_not_taken() {
    let mut file = WordFile::new("one");
    fs::write(file.path(), "seven").unwrap();
    assert_eq!(file.look(), None);
    let paths = file.paths.clone();
    let torn = file.changes.read_changed(&paths, || {
        fs::write(&paths[0], "").unwrap();
        let text = fs::read_to_string(&paths[0]).unwrap();
        fs::write(&paths[0], "eleven").unwrap();
        Ok::<_, ()>(text)
    });
    assert_eq!(torn, None, "an empty text is what the file never was meant to hold");
    assert_eq!([file.look(), file.look()], [None, Some(Ok("eleven".into()))]);
}

#[test]
fn a_failure_is_told_once_and_the_file_is_tried_again() {
    let mut file = WordFile::new("other");
    fs::write(file.path(), "bad").unwrap();
    assert_eq!([file.look(), file.look()], [None, Some(Err("bad".into()))]);
    assert_eq!(file.look(), None, "told twice");
    // Readable without a change of the file, as when rights change further up.
    let paths = file.paths.clone();
    assert_eq!(file.changes.read_changed(&paths, || Ok::<_, ()>("good")), Some(Ok("good")));
}

#[test]
fn a_file_that_is_moved_into_place_or_goes_away_has_changed() {
    let mut file = WordFile::new("one");
    let state = fs::metadata(file.path()).unwrap();
    let other = file.folder.path().join("other");
    fs::write(&other, "two").unwrap();
    fs::File::options()
        .write(true)
        .open(&other)
        .unwrap()
        .set_modified(state.modified().unwrap())
        .unwrap();
    fs::rename(&other, file.path()).unwrap();
    assert_eq!([file.look(), file.look()], [None, Some(Ok("two".into()))]);
    fs::remove_file(file.path()).unwrap();
    assert_eq!([file.look(), file.look()], [None, Some(Err("gone".into()))]);
}

#[test]
fn unknown_files_are_read() {
    let mut file = WordFile::new("one");
    file.changes = FileChanges::default();
    assert_eq!([file.look(), file.look(), file.look()], [None, Some(Ok("one".into())), None]);
}
