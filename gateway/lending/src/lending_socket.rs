//! Owns the socket file: its folder, its mode and owner, and what becomes of a file that is there
//! already. It gets its name only when its mode is right.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net;
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;
use verbs3_doors::{NamedSocket, SocketFileOptions};

/// Who may connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketAccess {
    /// The file's owner: mode 0600.
    Owner,
    /// Its group as well: mode 0660.
    Group,
    /// Every process of the host: mode 0666.
    Everyone,
}

/// Where the socket is, and whose.
#[derive(Debug, Clone)]
pub struct LendingSocketOptions {
    pub path: PathBuf,
    pub access: SocketAccess,
    /// `None`: the gateway's own.
    pub owner: Option<u32>,
    /// `None`: the gateway's own.
    pub group: Option<u32>,
}

/// A socket that accepts clients, and keeps its name. Its file is removed when this is dropped, if
/// it is still the same.
#[derive(Debug)]
pub struct LendingListener(NamedSocket);

/// Reason why there can be no such socket.
#[derive(Debug, thiserror::Error)]
pub enum LendingSocketError {
    #[error("{path} can't be the lending socket: its folder is not there; make it")]
    NoFolder { path: PathBuf },
    #[error(
        "{path} can't be the lending socket: anyone may put files into its folder; take that right \
        away, or set its sticky bit"
    )]
    OpenFolder { path: PathBuf },
    #[error("{path} can't be the lending socket: it is there, and is no socket")]
    NoSocket { path: PathBuf },
    #[error("{path} can't be the lending socket: another process answers there")]
    Live { path: PathBuf },
    #[error(
        "{path} can't be the lending socket; is its path short, and is it this user's to make?"
    )]
    Make {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl LendingListener {
    /// Makes the socket. Replaces the file of a process that is gone; with `succeeds`, also of one
    /// that listens there still, whose place this process takes. Must be called within a tokio
    /// runtime.
    pub fn open_socket(
        options: &LendingSocketOptions,
        succeeds: bool,
    ) -> Result<Self, LendingSocketError> {
        let LendingSocketOptions { path, access, owner, group } = options;
        check_folder(path)?;
        check_place(path, succeeds)?;
        let make = |source| LendingSocketError::Make { path: path.clone(), source };
        let mode = match access {
            SocketAccess::Owner => 0o600,
            SocketAccess::Group => 0o660,
            SocketAccess::Everyone => 0o666,
        };
        let file = SocketFileOptions { path: path.clone(), mode, owner: *owner, group: *group };
        NamedSocket::open(file).map(Self).map_err(make)
    }

    /// Returns the path that clients connect to and sign.
    pub fn socket_path(&self) -> &Path {
        self.0.socket_path()
    }

    pub(crate) async fn accept(&mut self) -> io::Result<UnixStream> {
        self.0.accept().await
    }
}

fn check_folder(path: &Path) -> Result<(), LendingSocketError> {
    const STICKY: u32 = 0o1000;
    const ANYONE_WRITES: u32 = 0o002;
    let folder = path.parent().and_then(|folder| fs::metadata(folder).ok());
    let Some(folder) = folder.filter(fs::Metadata::is_dir) else {
        return Err(LendingSocketError::NoFolder { path: path.to_owned() });
    };
    let mode = folder.mode();
    if mode & ANYONE_WRITES != 0 && mode & STICKY == 0 {
        return Err(LendingSocketError::OpenFolder { path: path.to_owned() });
    }
    Ok(())
}

/// Fails unless the place is free, or holds a socket that nobody listens on, or that may be
/// `replaced` all the same.
fn check_place(path: &Path, replaced: bool) -> Result<(), LendingSocketError> {
    match fs::symlink_metadata(path) {
        Err(_) => Ok(()),
        Ok(file) if !file.file_type().is_socket() => {
            Err(LendingSocketError::NoSocket { path: path.to_owned() })
        }
        Ok(_) if replaced => Ok(()),
        Ok(_) => match net::UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
            Ok(_) | Err(_) => Err(LendingSocketError::Live { path: path.to_owned() }),
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn options(path: PathBuf) -> LendingSocketOptions {
        LendingSocketOptions { path, access: SocketAccess::Owner, owner: None, group: None }
    }

    #[tokio::test]
    async fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lend.sock");
        drop(net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "the file of a dead process stays");
        let listener = LendingListener::open_socket(&options(path.clone()), false).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let second = LendingListener::open_socket(&options(path.clone()), false);
        assert!(matches!(second, Err(LendingSocketError::Live { .. })), "{second:?}");
        // Who takes its place has the name from then on, and keeps it when the first one ends.
        let successor = LendingListener::open_socket(&options(path.clone()), true).unwrap();
        drop(listener);
        assert!(path.exists(), "the successor's file");
        drop(successor);
        assert!(!path.exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
    }

    #[tokio::test]
    async fn access_is_what_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        for (access, mode) in [(SocketAccess::Group, 0o660), (SocketAccess::Everyone, 0o666)] {
            let path = folder.path().join("lend.sock");
            let options = LendingSocketOptions { access, ..options(path.clone()) };
            let _listener = LendingListener::open_socket(&options, false).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, mode);
        }
    }

    #[tokio::test]
    async fn what_is_no_socket_and_folders_of_anyone_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lend.sock");
        fs::write(&path, "a file").unwrap();
        let refused = LendingListener::open_socket(&options(path.clone()), false);
        assert!(matches!(refused, Err(LendingSocketError::NoSocket { .. })), "{refused:?}");
        assert_eq!(fs::read(&path).unwrap(), b"a file");
        fs::remove_file(&path).unwrap();
        let missing =
            LendingListener::open_socket(&options(folder.path().join("no/lend.sock")), false);
        assert!(matches!(missing, Err(LendingSocketError::NoFolder { .. })), "{missing:?}");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let open = LendingListener::open_socket(&options(path), false);
        assert!(matches!(open, Err(LendingSocketError::OpenFolder { .. })), "{open:?}");
    }
}
