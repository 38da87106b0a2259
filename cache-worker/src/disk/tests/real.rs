//! Real files: who may use a folder, and what a restart finds there.

use std::path::Path;

use super::super::DiskTierBuilder;
use super::super::disk_error::DiskError;
use super::super::folder_files::FolderFiles;
use super::super::segment_medium::SegmentMedium;
use super::super::{DiskFolderSettings, WorkerDiskSettings};
use crate::digest::DigestSecret;
use verbs3_settings::ByteSize;

fn begin(folder: &Path) -> FolderFiles {
    let opened = FolderFiles::lock_folder(folder, true).unwrap();
    assert!(opened.header.is_none() && !opened.damaged);
    opened.files.initialize_folder(DigestSecret(1, 2)).unwrap();
    opened.files
}

#[test]
fn a_folder_has_one_process_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let files = begin(folder.path());
    assert!(matches!(FolderFiles::lock_folder(folder.path(), true), Err(DiskError::InUse { .. })));
    drop(files);
    let opened = FolderFiles::lock_folder(folder.path(), true).unwrap();
    assert_eq!(opened.header.unwrap().secret, DigestSecret(1, 2));
}

#[test]
fn a_folder_of_something_else_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("thesis.tex"), "x").unwrap();
    let error = FolderFiles::lock_folder(folder.path(), true).err().unwrap();
    assert!(matches!(&error, DiskError::Foreign { found, .. } if found == "thesis.tex"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_newer_format_is_refused_and_a_damaged_header_starts_empty() {
    let folder = tempfile::tempdir().unwrap();
    let files = begin(folder.path());
    files.create_segment(3, 1 << 20).unwrap();
    drop(files);
    let header = folder.path().join("verbs3-disk");
    let good = std::fs::read(&header).unwrap();
    let mut newer = good.clone();
    newer[6] = 200;
    std::fs::write(&header, newer).unwrap();
    let error = FolderFiles::lock_folder(folder.path(), true).err().unwrap();
    assert!(matches!(error, DiskError::Newer { format: 200, .. }), "{error}");
    let mut damaged = good;
    damaged[40] ^= 1;
    std::fs::write(&header, damaged).unwrap();
    let opened = FolderFiles::lock_folder(folder.path(), true).unwrap();
    assert!(opened.damaged && opened.header.is_none());
    opened.files.initialize_folder(DigestSecret(3, 4)).unwrap();
    assert_eq!(opened.files.list_segments().unwrap(), [], "pages of other keys are of no use");
}

#[test]
fn folders_of_different_tiers_are_not_mixed() {
    let folder = tempfile::tempdir().unwrap();
    let settings = |names: &[&str]| WorkerDiskSettings {
        folders: names
            .iter()
            .map(|name| DiskFolderSettings {
                path: folder.path().join(name),
                capacity: ByteSize::from_mib(16),
            })
            .collect(),
        ..WorkerDiskSettings::default()
    };
    let open = |names: &[&str]| {
        DiskTierBuilder::lock_folders(settings(names), &prometheus::Registry::new())
    };
    open(&["a", "b"]).unwrap();
    open(&["c"]).unwrap();
    open(&["b", "a", "new"]).unwrap();
    let error = open(&["a", "c"]).err().unwrap();
    assert!(matches!(error, DiskError::Mixed { .. }), "{error}");
}

#[test]
fn bytes_are_the_same_past_the_page_cache_and_through_it() {
    let folder = tempfile::tempdir().unwrap();
    let files = begin(folder.path());
    files.create_segment(0, 1 << 20).unwrap();
    // Lengths and places that O_DIRECT takes, and some that it does not.
    let mut memory = vec![0u8; 512 << 10];
    let shift = memory.as_ptr().align_offset(4096);
    for (at, length, skew) in [
        (4096, 8192, 0),
        (4096, 65_536, 0),
        (8192, 65_536, 1),
        (100, 128, 3),
        (12_288, 70_000, 0),
        (65_536, 262_144, 0),
    ] {
        let piece = &mut memory[shift + skew..shift + skew + length];
        piece.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7 + length) as u8);
        files.write(0, at, piece).unwrap();
        let wanted = piece.to_vec();
        piece.fill(0);
        files.read(0, at, piece).unwrap();
        assert!(*piece == wanted[..], "{length} bytes at {at}");
        let mut elsewhere = vec![0; length];
        files.read(0, at, &mut elsewhere).unwrap();
        assert!(elsewhere == wanted, "{length} bytes at {at}");
    }
    assert!(files.read(0, (1 << 20) - 10, &mut [0; 20]).is_err(), "past the end");
    assert!(files.read(9, 0, &mut [0; 20]).is_err(), "no such segment");
    assert_eq!(files.list_segments().unwrap(), [(0, 1 << 20)]);
}
