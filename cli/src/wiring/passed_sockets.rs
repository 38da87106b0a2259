//! Listening sockets that this process has from others: from the service manager (`LISTEN_FDS`, as
//! systemd's socket units do), and from the process whose place it takes (`socket_handover`).
//! They outlive the process: clients that come during a restart wait in the socket's queue, and are
//! not refused.
//!
//! Owns those that no role has taken yet.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::LazyLock;

use anyhow::bail;
use listenfd::ListenFd;
use parking_lot::Mutex;
use socket2::Socket;

/// Sockets of this process that are not taken yet. The environment is the process's, so this is, too.
static PASSED: LazyLock<Mutex<PassedSockets>> = LazyLock::new(|| {
    let passed = match std::env::var_os("LISTEN_PID") {
        Some(_) => PassedSockets::from_environment(&mut ListenFd::from_env()),
        // Meant for nobody in particular, and so not for this process.
        None => PassedSockets::default(),
    };
    Mutex::new(passed)
});

#[derive(Default)]
struct PassedSockets {
    waiting: Vec<(SocketAddr, Socket)>,
    /// Of the process whose place this one takes: nobody minds if one is not needed.
    of_predecessor: Vec<(SocketAddr, Socket)>,
    /// What was passed and is no listening TCP socket.
    unfit: Vec<String>,
}

impl PassedSockets {
    fn from_environment(passed: &mut ListenFd) -> Self {
        let mut sockets = Self::default();
        for number in 0..passed.len() {
            let taken = passed
                .take_tcp_listener(number)
                .and_then(|listener| listener.map(require_listener).transpose());
            match taken {
                Ok(found) => sockets.waiting.extend(found),
                Err(error) => sockets.unfit.push(format!("number {number}: {error}")),
            }
        }
        sockets
    }

    fn take(&mut self, address: SocketAddr) -> Option<Socket> {
        [&mut self.waiting, &mut self.of_predecessor].into_iter().find_map(|waiting| {
            let found = waiting.iter().position(|(of_socket, _)| *of_socket == address)?;
            Some(waiting.swap_remove(found).1)
        })
    }

    fn require_none(&mut self) -> anyhow::Result<()> {
        self.of_predecessor.clear();
        if let Some(unfit) = self.unfit.first() {
            bail!(
                "the service manager passed something that is no listening TCP socket ({unfit}); \
                its socket unit may have ListenStream= with addresses and ports alone"
            );
        }
        if let Some((address, _)) = self.waiting.first() {
            bail!(
                "the service manager passed a socket on {address}, where nothing listens; \
                ListenStream= of its socket unit and the setting, such as gateway.listen, must \
                name the same address"
            );
        }
        Ok(())
    }
}

/// The address of a socket, which has to listen.
fn require_listener(listener: TcpListener) -> io::Result<(SocketAddr, Socket)> {
    let address = listener.local_addr()?;
    let socket = Socket::from(listener);
    if !socket.is_listener()? {
        return Err(io::Error::other("it does not listen"));
    }
    // What this process starts has no use for it.
    socket.set_cloexec(true)?;
    Ok((address, socket))
}

/// Adds listening sockets of the process whose place this one takes.
pub fn add_of_predecessor(sockets: Vec<OwnedFd>) -> io::Result<()> {
    let sockets: io::Result<Vec<_>> =
        sockets.into_iter().map(|socket| require_listener(socket.into())).collect();
    PASSED.lock().of_predecessor.extend(sockets?);
    Ok(())
}

/// Takes what was passed to this process. Call it before there are threads, or sockets of its own:
/// the environment is changed, and file descriptors are taken by their numbers.
pub fn take_from_environment() {
    LazyLock::force(&PASSED);
}

/// Takes the socket that was passed for an address. `None`: none was.
pub fn take_passed_socket(address: SocketAddr) -> Option<Socket> {
    PASSED.lock().take(address)
}

/// Fails, and says what to do, if a socket was passed that no role has taken. Otherwise clients
/// would wait there for ever.
pub fn require_all_taken() -> anyhow::Result<()> {
    PASSED.lock().require_none()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn passed_socket() -> (SocketAddr, Socket) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        (listener.local_addr().unwrap(), listener.into())
    }

    #[test]
    fn a_socket_is_taken_by_its_address_once() {
        let (first, other) = (passed_socket(), passed_socket());
        let addresses = [first.0, other.0];
        let mut passed = PassedSockets { waiting: vec![first, other], ..PassedSockets::default() };
        assert!(passed.take("127.0.0.1:1".parse().unwrap()).is_none());
        let taken = passed.take(addresses[1]).unwrap();
        assert_eq!(taken.local_addr().unwrap().as_socket(), Some(addresses[1]));
        assert!(passed.take(addresses[1]).is_none());
        let left = passed.require_none().unwrap_err().to_string();
        assert!(
            left.contains(&addresses[0].to_string()) && left.contains("ListenStream="),
            "{left}"
        );
        assert!(passed.take(addresses[0]).is_some() && passed.require_none().is_ok());
    }

    #[test]
    fn what_is_no_listening_socket_is_told() {
        let unfit = vec!["number 0: odd".to_owned()];
        let mut passed = PassedSockets { unfit, ..PassedSockets::default() };
        let told = passed.require_none().unwrap_err().to_string();
        assert!(told.contains("number 0: odd"), "{told}");
    }
}
