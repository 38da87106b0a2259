//! Owns the socket file: its folder, its mode and owner, and what becomes of a file that is there
//! already. It gets its name only when its mode is right.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net;
use std::path::{Path, PathBuf};

use rustix::fs::{Gid, Uid, chown};
use tokio::net::UnixListener;

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

/// A socket that accepts clients. Its file is removed when this is dropped, if it is still the same.
#[derive(Debug)]
pub struct LendingListener {
    pub(crate) socket: UnixListener,
    path: PathBuf,
    /// Device and inode.
    file: (u64, u64),
}

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
    /// Makes the socket. Replaces the file of a process that is gone. Must be called within a tokio
    /// runtime.
    pub fn open_socket(options: &LendingSocketOptions) -> Result<Self, LendingSocketError> {
        let path = &options.path;
        check_folder(path)?;
        check_place(path)?;
        let make = |source| LendingSocketError::Make { path: path.clone(), source };
        let made = make_socket(options).map_err(make)?;
        let socket = UnixListener::from_std(made.0).map_err(make)?;
        Ok(Self { socket, path: path.clone(), file: made.1 })
    }

    /// Returns the path that clients connect to and sign.
    pub fn socket_path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LendingListener {
    fn drop(&mut self) {
        let now = fs::symlink_metadata(&self.path).map(|file| (file.dev(), file.ino()));
        if now.is_ok_and(|file| file == self.file) {
            // What is left there is replaced by the next gateway.
            let _ = fs::remove_file(&self.path);
        }
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

/// Fails unless the place is free, or holds a socket that nobody listens on.
fn check_place(path: &Path) -> Result<(), LendingSocketError> {
    match fs::symlink_metadata(path) {
        Err(_) => Ok(()),
        Ok(file) if !file.file_type().is_socket() => {
            Err(LendingSocketError::NoSocket { path: path.to_owned() })
        }
        Ok(_) => match net::UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
            Ok(_) | Err(_) => Err(LendingSocketError::Live { path: path.to_owned() }),
        },
    }
}

/// Makes the socket under another name, and renames it once it is whole.
fn make_socket(options: &LendingSocketOptions) -> io::Result<(net::UnixListener, (u64, u64))> {
    let mut name = options.path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let unnamed = PathBuf::from(name);
    // A process of this number has left it.
    let _ = fs::remove_file(&unnamed);
    let socket = net::UnixListener::bind(&unnamed)?;
    let finished = finish_socket(&socket, &unnamed, options);
    if finished.is_err() {
        let _ = fs::remove_file(&unnamed);
    }
    Ok((socket, finished?))
}

fn finish_socket(
    socket: &net::UnixListener,
    unnamed: &Path,
    options: &LendingSocketOptions,
) -> io::Result<(u64, u64)> {
    socket.set_nonblocking(true)?;
    let mode = match options.access {
        SocketAccess::Owner => 0o600,
        SocketAccess::Group => 0o660,
        SocketAccess::Everyone => 0o666,
    };
    fs::set_permissions(unnamed, fs::Permissions::from_mode(mode))?;
    if options.owner.is_some() || options.group.is_some() {
        chown(unnamed, options.owner.map(Uid::from_raw), options.group.map(Gid::from_raw))?;
    }
    let file = fs::symlink_metadata(unnamed)?;
    fs::rename(unnamed, &options.path)?;
    Ok((file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
        let listener = LendingListener::open_socket(&options(path.clone())).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let second = LendingListener::open_socket(&options(path.clone()));
        assert!(matches!(second, Err(LendingSocketError::Live { .. })), "{second:?}");
        drop(listener);
        assert!(!path.exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
    }

    #[tokio::test]
    async fn access_is_what_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        for (access, mode) in [(SocketAccess::Group, 0o660), (SocketAccess::Everyone, 0o666)] {
            let path = folder.path().join("lend.sock");
            let options = LendingSocketOptions { access, ..options(path.clone()) };
            let _listener = LendingListener::open_socket(&options).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, mode);
        }
    }

    #[tokio::test]
    async fn what_is_no_socket_and_folders_of_anyone_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lend.sock");
        fs::write(&path, "a file").unwrap();
        let refused = LendingListener::open_socket(&options(path.clone()));
        assert!(matches!(refused, Err(LendingSocketError::NoSocket { .. })), "{refused:?}");
        assert_eq!(fs::read(&path).unwrap(), b"a file");
        fs::remove_file(&path).unwrap();
        let missing = LendingListener::open_socket(&options(folder.path().join("no/lend.sock")));
        assert!(matches!(missing, Err(LendingSocketError::NoFolder { .. })), "{missing:?}");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let open = LendingListener::open_socket(&options(path));
        assert!(matches!(open, Err(LendingSocketError::OpenFolder { .. })), "{open:?}");
    }
}
