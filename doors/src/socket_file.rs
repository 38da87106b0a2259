//! Owns the file of a unix socket: it gets its name only when its mode and owner are right, is given
//! it again where somebody takes it away, and is removed by who made it, unless another has the name.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::net;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};

/// How often a socket looks whether it has its name.
pub const NAME_LOOK: Duration = Duration::from_secs(2);

/// Where a socket's file is, and whose.
#[derive(Debug, Clone)]
pub struct SocketFileOptions {
    pub path: PathBuf,
    /// Permissions, such as `0o600`.
    pub mode: u32,
    /// `None`: the process's own.
    pub owner: Option<u32>,
    /// `None`: the process's own.
    pub group: Option<u32>,
}

/// Who answers at the name of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameHolder {
    /// This process.
    Own,
    /// Another one, which has taken the name and lives.
    Other,
}

/// A listening socket with a file. Dropped, the file is removed, if it is still its own.
#[derive(Debug)]
pub struct NamedSocket {
    socket: UnixListener,
    options: SocketFileOptions,
    /// Device and inode.
    file: (u64, u64),
}

impl NamedSocket {
    /// Makes the socket under another name, and renames it once it is whole: a socket that has the
    /// name is replaced, alive or not, and nobody finds the name missing. Fails if something else
    /// has it. Must be called within a tokio runtime.
    pub fn open(options: SocketFileOptions) -> io::Result<Self> {
        let (socket, file) = make_socket(&options)?;
        Ok(Self { socket: UnixListener::from_std(socket)?, options, file })
    }

    /// Returns the path that clients connect to.
    pub fn socket_path(&self) -> &Path {
        &self.options.path
    }

    /// Accepts the next connection, and keeps the name meanwhile: a file that is gone, or that a
    /// process has left that is gone, is made anew. Fails where that can't be done.
    pub async fn accept(&mut self) -> io::Result<UnixStream> {
        loop {
            tokio::select! {
                accepted = self.socket.accept() => return Ok(accepted?.0),
                () = tokio::time::sleep(NAME_LOOK) => {
                    self.keep_name().await?;
                }
            }
        }
    }

    /// Sees to the name once. Says who has it then.
    pub async fn keep_name(&mut self) -> io::Result<NameHolder> {
        let path = &self.options.path;
        if file_of(path).is_ok_and(|file| file == self.file) {
            return Ok(NameHolder::Own);
        }
        // One that can't be asked lives as well.
        if !matches!(connect_named(path).await, Ok(None)) {
            return Ok(NameHolder::Other);
        }
        let (socket, file) = make_socket(&self.options)?;
        (self.socket, self.file) = (UnixListener::from_std(socket)?, file);
        Ok(NameHolder::Own)
    }
}

impl Drop for NamedSocket {
    fn drop(&mut self) {
        let path = &self.options.path;
        if file_of(path).is_ok_and(|file| file == self.file) {
            // What is left there is replaced by the next one.
            let _ = fs::remove_file(path);
        }
    }
}

/// Connects to whoever has the name; `None`: nobody listens there.
pub async fn connect_named(path: &Path) -> io::Result<Option<UnixStream>> {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    match UnixStream::connect(path).await {
        Err(error) if matches!(error.kind(), NotFound | ConnectionRefused) => Ok(None),
        connected => connected.map(Some),
    }
}

fn file_of(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

fn make_socket(options: &SocketFileOptions) -> io::Result<(net::UnixListener, (u64, u64))> {
    let path = &options.path;
    if fs::symlink_metadata(path).is_ok_and(|there| !there.file_type().is_socket()) {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is there, and is no socket"));
    }
    let mut name = path.as_os_str().to_owned();
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
    options: &SocketFileOptions,
) -> io::Result<(u64, u64)> {
    socket.set_nonblocking(true)?;
    fs::set_permissions(unnamed, fs::Permissions::from_mode(options.mode))?;
    if options.owner.is_some() || options.group.is_some() {
        chown(unnamed, options.owner, options.group)?;
    }
    let file = file_of(unnamed)?;
    fs::rename(unnamed, &options.path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn make(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
            fs::create_dir(&folder).unwrap();
            Self(folder)
        }

        fn options(&self) -> SocketFileOptions {
            let path = self.0.join("a.sock");
            SocketFileOptions { path, mode: 0o600, owner: None, group: None }
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[tokio::test]
    async fn who_is_replaced_removes_nothing_of_its_successor() {
        let folder = Folder::make("socket-file-replaced");
        let mut first = NamedSocket::open(folder.options()).unwrap();
        let second = NamedSocket::open(folder.options()).unwrap();
        assert_eq!(first.keep_name().await.unwrap(), NameHolder::Other);
        drop(first);
        assert_eq!(fs::metadata(second.socket_path()).unwrap().mode() & 0o777, 0o600);
        drop(second);
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0, "nothing is left");
    }

    #[tokio::test]
    async fn a_name_that_is_lost_comes_back() {
        let folder = Folder::make("socket-file-lost");
        let mut first = NamedSocket::open(folder.options()).unwrap();
        // One that took the name has ended, and its file is gone, or still there.
        drop(NamedSocket::open(folder.options()).unwrap());
        assert_eq!(first.keep_name().await.unwrap(), NameHolder::Own);
        fs::remove_file(first.socket_path()).unwrap();
        drop(net::UnixListener::bind(first.socket_path()).unwrap());
        let path = first.socket_path().to_owned();
        let accepting = tokio::spawn(async move { first.accept().await.map(|_| first) });
        while UnixStream::connect(&path).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut first = accepting.await.unwrap().unwrap();
        assert_eq!(first.keep_name().await.unwrap(), NameHolder::Own);
    }

    #[tokio::test]
    async fn what_is_no_socket_is_not_replaced() {
        let folder = Folder::make("socket-file-other");
        fs::write(folder.0.join("a.sock"), "a file").unwrap();
        let error = NamedSocket::open(folder.options()).unwrap_err();
        assert!(error.to_string().contains("no socket"), "{error}");
        assert_eq!(fs::read(folder.0.join("a.sock")).unwrap(), b"a file");
    }
}
