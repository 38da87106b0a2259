//! Owns the unix socket that a worker listens on: its path, who may open it, and the removal of an
//! old one.
//!
//! The file mode keeps other users of the host out. The handshake keeps out those who lack the
//! secret.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::net::UnixListener;

/// Count of sockets that this process has made, to keep their first names apart.
static BOUND: AtomicU32 = AtomicU32::new(0);

/// Error of a server that can't listen on its unix socket. The cause is the `source`.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {}; choose a path of at most 90 bytes, in a directory that this user may \
    write to, for this worker alone", path.display())]
pub struct ShmBindError {
    pub path: PathBuf,
    #[source]
    pub source: io::Error,
}

/// The file of a listening socket. It is removed on drop, unless another one has taken its place.
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl SocketFile {
    pub(super) fn socket_path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if file_identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // It may be gone meanwhile; a stale one is replaced at the next start.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens on `path`, for this user alone. Makes a missing directory, and replaces a socket that
/// nobody listens on.
pub(super) fn listen_on(path: &Path) -> Result<(UnixListener, SocketFile), ShmBindError> {
    try_listen(path).map_err(|source| ShmBindError { path: path.to_owned(), source })
}

fn try_listen(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    check_replaceable(path)?;
    // Made beside its place and then moved there. So nobody meets it before its mode is right, and
    // a stale one is replaced in one step.
    let number = BOUND.fetch_add(1, Ordering::Relaxed);
    let beside = path.with_file_name(format!(".{}-{number}", std::process::id()));
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = StdListener::bind(&beside)?;
    let placed = fs::set_permissions(&beside, Permissions::from_mode(0o600))
        .and_then(|()| file_identity(&beside))
        .and_then(|identity| fs::rename(&beside, path).map(|()| identity));
    let identity = placed.inspect_err(|_| drop(fs::remove_file(&beside)))?;
    let file = SocketFile { path: path.to_owned(), identity };
    listener.set_nonblocking(true)?;
    Ok((UnixListener::from_std(listener)?, file))
}

/// Checks that nothing is at `path`, or a socket that nobody listens on.
fn check_replaceable(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !kind.is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "something else than a socket is there",
        ));
    }
    match StdStream::connect(path) {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn file_identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn the_socket_and_a_new_directory_are_for_this_user_alone() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("run/worker.sock");
        let (_listener, file) = listen_on(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        drop(file);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("worker.sock");
        drop(StdListener::bind(&path).unwrap());
        assert!(path.exists());
        let (first, _file) = listen_on(&path).unwrap();
        let error = listen_on(&path).err().unwrap();
        assert_eq!(error.source.kind(), io::ErrorKind::AddrInUse);
        drop(first);
        assert!(listen_on(&path).is_ok());
    }

    #[tokio::test]
    async fn a_socket_that_has_taken_the_place_is_left_there() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("worker.sock");
        let (first, old) = listen_on(&path).unwrap();
        drop(first);
        let (_second, _new) = listen_on(&path).unwrap();
        drop(old);
        assert!(path.exists());
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_never_removed() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("precious");
        fs::write(&path, "bytes").unwrap();
        assert!(listen_on(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"bytes");
    }
}
