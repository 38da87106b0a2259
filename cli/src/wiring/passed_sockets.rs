//! Listening sockets that the service manager made and passed to this process (`LISTEN_FDS`, as
//! systemd's socket units do). They outlive the process: clients that come during a restart wait in
//! the socket's queue, and are not refused.
//!
//! Owns those that no role has taken yet.

use std::io;
use std::net::SocketAddr;
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
    /// What was passed and is no listening TCP socket.
    unfit: Vec<String>,
}

impl PassedSockets {
    fn from_environment(passed: &mut ListenFd) -> Self {
        let mut sockets = Self::default();
        for number in 0..passed.len() {
            let taken = passed.take_tcp_listener(number).and_then(|listener| {
                let Some(listener) = listener else { return Ok(None) };
                let address = listener.local_addr()?;
                let socket = Socket::from(listener);
                if !socket.is_listener()? {
                    return Err(io::Error::other("it does not listen"));
                }
                // What this process starts has no use for it.
                socket.set_cloexec(true)?;
                Ok(Some((address, socket)))
            });
            match taken {
                Ok(found) => sockets.waiting.extend(found),
                Err(error) => sockets.unfit.push(format!("number {number}: {error}")),
            }
        }
        sockets
    }

    fn take(&mut self, address: SocketAddr) -> Option<Socket> {
        let found = self.waiting.iter().position(|(of_socket, _)| *of_socket == address)?;
        Some(self.waiting.swap_remove(found).1)
    }

    fn require_none(&self) -> anyhow::Result<()> {
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
    use std::net::TcpListener;

    use super::*;

    fn passed_socket() -> (SocketAddr, Socket) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        (listener.local_addr().unwrap(), listener.into())
    }

    #[test]
    fn a_socket_is_taken_by_its_address_once() {
        let (first, other) = (passed_socket(), passed_socket());
        let addresses = [first.0, other.0];
        let mut passed = PassedSockets { waiting: vec![first, other], unfit: Vec::new() };
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
        let passed = PassedSockets { waiting: Vec::new(), unfit: vec!["number 0: odd".to_owned()] };
        let told = passed.require_none().unwrap_err().to_string();
        assert!(told.contains("number 0: odd"), "{told}");
    }
}
