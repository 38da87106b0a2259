//! Owns the text form of a host's ways beside tcp, and the checks on it. A server tells its ways in
//! its welcome; this host uses some of them.
//!
//! Chooses nothing (`peer`), opens nothing.
//!
//! ```text
//! shm 0b6c6a9e-… /run/verbs3/gpu-01.sock      the host's boot, and a unix socket
//! verbs 10.1.0.7:9403                         one rail; the order is that of the rails
//! verbs down                                  a rail that can't be used now, and keeps its place
//! ticket 5d41402abc4b2a76…                    inside TLS alone: what opens the ways above
//! ```
//! Lines that begin with another word belong to a later release and are skipped.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::way_ticket::{TicketTextError, WayTicket};

/// Most rails that a host may name: more than any host has ports, and too few to fill the welcome.
pub const RAILS_MAX: usize = 32;

/// Longest path that fits a `sockaddr_un` with its final zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The word for a rail that can't be used now, in place of its address.
const DOWN: &str = "down";

/// Longest text that is parsed, in bytes; the handshake has the same bound.
const TEXT_BYTES_MAX: usize = 4096;

/// File with an id that changes with every boot. It is the same in all containers of a host.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The ways to one host beside tcp.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct TransportWays {
    pub shm: Option<ShmWay>,
    /// Address of each rail, in the order of the rails; `None` while one is down. At most
    /// [`RAILS_MAX`] are told.
    pub rails: Vec<Option<SocketAddr>>,
    /// What this requester shows over these ways. Each requester is told its own. Not written with
    /// the rest.
    pub ticket: Option<WayTicket>,
}

/// The source of a server's ways. It is called at each handshake, since rails come and go.
#[derive(Clone)]
pub struct WaysProvider(Arc<dyn Fn() -> String + Send + Sync>);

impl WaysProvider {
    /// Calls `now` at each handshake, on the task of the connection. It must not block.
    pub fn new(now: impl Fn() -> TransportWays + Send + Sync + 'static) -> Self {
        Self(Arc::new(move || now().to_string()))
    }

    /// Returns the current ways as a text.
    pub fn current_text(&self) -> String {
        (self.0)()
    }
}

impl From<TransportWays> for WaysProvider {
    fn from(ways: TransportWays) -> Self {
        ways.to_string().into()
    }
}

/// Makes a provider that always tells this text, unchecked.
impl From<String> for WaysProvider {
    fn from(text: String) -> Self {
        Self(Arc::new(move || text.clone()))
    }
}

impl Default for WaysProvider {
    fn default() -> Self {
        TransportWays::default().into()
    }
}

impl fmt::Debug for WaysProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.current_text().fmt(f)
    }
}

/// A unix socket of one host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ShmWay {
    host_id: String,
    path: PathBuf,
}

/// Reason why a text about ways, or a part of it, can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WaysError {
    #[error("{bytes} bytes about ways; at most {TEXT_BYTES_MAX} are read")]
    TooLong { bytes: usize },
    #[error("{0:?} names no host id: 1 to 64 letters, digits and dashes")]
    HostId(String),
    #[error(
        "{0:?} is no path for a socket: absolute, at most {SOCKET_PATH_BYTES_MAX} bytes, no \
        control characters"
    )]
    Path(String),
    #[error("{0:?} is no address that a rail can be reached at; ip:port is")]
    Rail(String),
    #[error("more than {RAILS_MAX} rails")]
    TooManyRails,
    #[error("two sockets for shared memory; a host has one")]
    TwoSockets,
    #[error(transparent)]
    Ticket(#[from] TicketTextError),
}

impl TransportWays {
    /// The ways of a host with tcp alone.
    pub const NONE: &'static Self = &Self { shm: None, rails: Vec::new(), ticket: None };

    /// Makes the ways of a host with these rails alone.
    pub fn over_rails(rails: Vec<Option<SocketAddr>>) -> Self {
        Self { rails, ..Self::default() }
    }

    /// Parses a peer's text. Rejects a text that is wrong anywhere.
    pub fn parse(text: &str) -> Result<Self, WaysError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(WaysError::TooLong { bytes: text.len() });
        }
        let mut ways = Self::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("shm", rest)) => {
                    let (host_id, path) =
                        rest.split_once(' ').ok_or_else(|| WaysError::Path(String::new()))?;
                    if ways.shm.replace(ShmWay::new(host_id, path)?).is_some() {
                        return Err(WaysError::TwoSockets);
                    }
                }
                Some(("verbs", rail)) => {
                    if ways.rails.len() == RAILS_MAX {
                        return Err(WaysError::TooManyRails);
                    }
                    ways.rails.push(if rail == DOWN { None } else { Some(rail_address(rail)?) });
                }
                Some(("ticket", ticket)) => ways.ticket = Some(ticket.parse()?),
                _ => {}
            }
        }
        Ok(ways)
    }
}

fn rail_address(text: &str) -> Result<SocketAddr, WaysError> {
    let wrong = || WaysError::Rail(text.to_owned());
    let address: SocketAddr = text.parse().map_err(|_| wrong())?;
    let broadcast = matches!(address.ip(), IpAddr::V4(ip) if ip.is_broadcast());
    if address.port() == 0
        || address.ip().is_unspecified()
        || address.ip().is_multicast()
        || broadcast
    {
        return Err(wrong());
    }
    Ok(address)
}

impl fmt::Display for TransportWays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(ShmWay { host_id, path }) = &self.shm {
            writeln!(f, "shm {host_id} {}", path.display())?;
        }
        self.rails.iter().take(RAILS_MAX).try_for_each(|rail| match rail {
            Some(rail) => writeln!(f, "verbs {rail}"),
            None => writeln!(f, "verbs {DOWN}"),
        })
    }
}

impl ShmWay {
    /// Makes the way to the socket at `path` of the host whose boot has this id.
    pub fn new(host_id: &str, path: impl AsRef<Path>) -> Result<Self, WaysError> {
        let id_fits = |id: &str| {
            (1..=64).contains(&id.len())
                && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        if !id_fits(host_id) {
            return Err(WaysError::HostId(host_id.to_owned()));
        }
        let path = path.as_ref();
        let fits = path.to_str().is_some_and(|text| {
            text.starts_with('/')
                && text.len() <= SOCKET_PATH_BYTES_MAX
                && !text.chars().any(char::is_control)
        });
        if !fits {
            return Err(WaysError::Path(path.display().to_string()));
        }
        Ok(Self { host_id: host_id.to_owned(), path: path.to_owned() })
    }

    /// Makes the way to the socket at `path` of this host.
    pub fn of_this_host(path: impl AsRef<Path>) -> Result<Self, WaysError> {
        Self::new(&host_id().unwrap_or_default(), path)
    }

    /// Returns the absolute path of the unix socket, at most 107 bytes.
    pub fn socket_path(&self) -> &Path {
        &self.path
    }

    /// Returns true if the socket is one of this host that this process sees. Two containers of a
    /// host that share no folder have the same host id, but can't see each other's sockets: they
    /// use the network.
    pub fn is_here(&self) -> bool {
        use std::os::unix::fs::FileTypeExt;
        host_id().is_some_and(|id| id == self.host_id)
            && std::fs::metadata(&self.path).is_ok_and(|found| found.file_type().is_socket())
    }
}

fn host_id() -> Option<String> {
    std::fs::read_to_string(BOOT_ID).ok().map(|id| id.trim().to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::way_ticket::TicketRules;
    use proptest::prelude::*;
    use verbs3_certificates::NodeRole;

    fn shm(path: &str) -> ShmWay {
        ShmWay::new("0b6c6a9e-1111", path).unwrap()
    }

    #[test]
    fn ways_are_read_as_they_were_written() {
        let rails = vec![
            Some("10.0.0.7:9403".parse().unwrap()),
            None,
            Some("[fd00::7]:9404".parse().unwrap()),
        ];
        let ways = TransportWays { shm: Some(shm("/run/with space/a.sock")), rails, ticket: None };
        let text = "shm 0b6c6a9e-1111 /run/with space/a.sock\nverbs 10.0.0.7:9403\nverbs \
            down\nverbs [fd00::7]:9404\n";
        assert_eq!(ways.to_string(), text);
        assert_eq!(TransportWays::parse(text).unwrap(), ways);
        assert_eq!(TransportWays::parse("").as_ref(), Ok(TransportWays::NONE));
    }

    #[test]
    fn words_of_a_later_release_are_passed_over() {
        let ways =
            TransportWays::parse("quic 10.0.0.7:1 x\n\nverbs 10.0.0.7:9403\nnothing\n").unwrap();
        assert_eq!(ways.rails, [Some("10.0.0.7:9403".parse().unwrap())]);
    }

    #[test]
    fn a_text_that_is_wrong_anywhere_is_an_error() {
        let long = format!("shm a /{}", "x".repeat(200));
        let many = "verbs 10.0.0.7:9403\n".repeat(RAILS_MAX + 1);
        let wrong = [
            "verbs 10.0.0.7",
            "verbs 10.0.0.7:0",
            "verbs 0.0.0.0:9403",
            "verbs 224.0.0.1:9403",
            "verbs 255.255.255.255:9403",
            "verbs host.example:9403",
            "shm a relative/path",
            "shm  /no/host",
            "shm ../.. /path",
            "shm a /tab\there",
            "shm a /one\nshm a /two",
            "shm lonely",
            "ticket 00",
            &long,
            &many,
        ];
        for text in wrong {
            assert!(TransportWays::parse(text).is_err(), "{text:?}");
        }
        assert!(TransportWays::parse(&many[..many.len() - 20]).is_ok());
        assert_eq!(
            TransportWays::parse(&"x".repeat(5000)),
            Err(WaysError::TooLong { bytes: 5000 })
        );
    }

    #[test]
    fn the_most_that_a_host_may_say_fits_the_welcome() {
        let rail = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535".parse().ok();
        let path = format!("/{}", "x".repeat(SOCKET_PATH_BYTES_MAX - 1));
        let ways = TransportWays {
            shm: Some(ShmWay::new(&"a".repeat(64), path).unwrap()),
            rails: vec![rail; RAILS_MAX],
            ticket: None,
        };
        let ticket = TicketRules::new(true).office.issue_ticket(NodeRole::Gateway, i64::MAX);
        let text = ways.to_string() + &ticket.to_line();
        assert!(text.len() <= TEXT_BYTES_MAX);
        assert_eq!(TransportWays::parse(&ticket.to_line()).unwrap().ticket, Some(ticket));
    }

    #[test]
    fn a_socket_counts_only_where_it_is_seen() {
        let folder = std::env::temp_dir().join(format!("verbs3-ways-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (socket, file) = (folder.join("a.sock"), folder.join("a.file"));
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::fs::write(&file, "").unwrap();
        assert!(ShmWay::of_this_host(&socket).unwrap().is_here());
        assert!(!ShmWay::of_this_host(&file).unwrap().is_here(), "a file is no socket");
        assert!(!ShmWay::of_this_host(folder.join("absent")).unwrap().is_here());
        assert!(!ShmWay::new("another-host", &socket).unwrap().is_here());
        std::fs::remove_dir_all(folder).unwrap();
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(shm|verbs|x)? ?[ -~\n/:.\\[\\]0-9]{0,80}") {
            if let Ok(ways) = TransportWays::parse(&text) {
                prop_assert_eq!(TransportWays::parse(&ways.to_string()), Ok(ways));
            }
        }
    }
}
