//! Listening sockets of the roles http and control: an address and, where the configuration names
//! one, a network device.
//!
//! Owns the making of them, what is said when it fails, and the address that others are told. The
//! sockets of the data role are `verbs3_rdma`'s.

use std::io;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, bail};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;
use verbs3_rdma::rails::list_interfaces;

use super::passed_sockets;

/// Connections that the kernel may hold before they are accepted; `net.core.somaxconn` bounds it
/// too.
const BACKLOG: i32 = 1024;

/// Where a role listens, and the settings that say so.
pub struct ListenEndpoint<'a> {
    pub address: SocketAddr,
    pub address_setting: &'a str,
    /// Only what comes in over this device is answered, whatever the address; none: over any.
    pub device: Option<&'a str>,
    pub device_setting: &'a str,
}

impl<'a> ListenEndpoint<'a> {
    /// An endpoint that answers over any device.
    pub fn over_any_device(address: SocketAddr, address_setting: &'a str) -> Self {
        Self { address, address_setting, device: None, device_setting: "" }
    }

    /// Listens, or says which setting to change. A socket that the service manager has passed for
    /// this address is taken. Needs a tokio runtime.
    pub fn open_listener(&self) -> anyhow::Result<TcpListener> {
        let Self { address, address_setting, .. } = self;
        let wrong = || {
            format!(
                "can't listen on {address}: is another process there, or the address not of this \
                host? ({address_setting})"
            )
        };
        if let Some(passed) = passed_sockets::take_passed_socket(*address) {
            self.require_device(&passed)?;
            passed.set_nonblocking(true).with_context(wrong)?;
            return TcpListener::from_std(passed.into()).with_context(wrong);
        }
        let socket = Socket::new(Domain::for_address(*address), Type::STREAM, Some(Protocol::TCP))
            .with_context(wrong)?;
        self.bind_device(&socket)?;
        let listen = || {
            socket.set_nonblocking(true)?;
            // A restart need not wait for the connections of the process before.
            socket.set_reuse_address(true)?;
            socket.bind(&(*address).into())?;
            socket.listen(BACKLOG)
        };
        listen().with_context(wrong)?;
        TcpListener::from_std(socket.into()).with_context(wrong)
    }

    /// Holds a passed socket against the device that is configured. Its binding outlives this
    /// process, so it is for whoever made it.
    fn require_device(&self, passed: &Socket) -> anyhow::Result<()> {
        let bound = passed.device().context("can't ask a passed socket for its device")?;
        let bound = bound.as_deref().map(String::from_utf8_lossy);
        if bound.as_deref() == self.device {
            return Ok(());
        }
        let named = |device: Option<&str>| device.unwrap_or("any device").to_owned();
        bail!(
            "the socket that the service manager passed for {} hears {}, and {} says {}; make \
            BindToDevice= of its socket unit the same",
            self.address,
            named(bound.as_deref()),
            self.device_setting,
            named(self.device)
        )
    }

    fn bind_device(&self, socket: &Socket) -> anyhow::Result<()> {
        let Some(device) = self.device else { return Ok(()) };
        let setting = self.device_setting;
        socket.bind_device(Some(device.as_bytes())).map_err(|error| {
            let remedy = match error.kind() {
                io::ErrorKind::PermissionDenied => "kernels before 5.7 want CAP_NET_RAW for that",
                _ => "`ip link` lists those of this host",
            };
            anyhow::Error::new(error).context(format!(
                "can't listen on the network device {device}; {remedy} ({setting})"
            ))
        })
    }
}

/// `host:port` at which others reach what listens at `listen`. That address; where it is all of
/// them, the first one of the network device that connections must come in over; without such a
/// device, this host's name.
pub fn advertised_address(listen: SocketAddr, device: Option<&str>) -> anyhow::Result<String> {
    if !listen.ip().is_unspecified() {
        return Ok(listen.to_string());
    }
    if let Some(device) = device {
        return Ok(SocketAddr::new(address_of_device(device, listen)?, listen.port()).to_string());
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .context("can't read this host's name")?;
    let host = host.trim();
    if host.is_empty() {
        bail!("this host has no name; set the address that others reach it at (advertise)");
    }
    Ok(format!("{host}:{}", listen.port()))
}

/// Returns the device's first address that a listener at `listen` takes, IPv4 first. Link-local ones
/// are no use to other hosts.
fn address_of_device(device: &str, listen: SocketAddr) -> anyhow::Result<IpAddr> {
    let mut own: Vec<IpAddr> = list_interfaces()
        .context("can't list this host's addresses")?
        .into_iter()
        .filter(|interface| interface.name == device)
        .map(|interface| interface.address)
        .filter(|address| match address {
            IpAddr::V4(address) => !address.is_link_local(),
            IpAddr::V6(address) => !address.is_unicast_link_local() && listen.is_ipv6(),
        })
        .collect();
    own.sort_by_key(IpAddr::is_ipv6);
    own.first().copied().with_context(|| {
        format!(
            "network device {device} (tcp.bind_device) has no address that others could reach; \
            give it one, or set worker.advertise"
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::net::TcpStream;

    #[test]
    fn who_listens_on_a_device_is_told_by_its_address() {
        let listen = |text: &str| text.parse::<SocketAddr>().unwrap();
        let told = advertised_address(listen("0.0.0.0:9400"), Some("lo")).unwrap();
        assert_eq!(told, "127.0.0.1:9400");
        let told = advertised_address(listen("10.0.0.7:9400"), Some("lo")).unwrap();
        assert_eq!(told, "10.0.0.7:9400");
        let error = advertised_address(listen("0.0.0.0:9400"), Some("ib77")).unwrap_err();
        for part in ["ib77", "tcp.bind_device", "worker.advertise"] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    fn place(device: Option<&str>) -> ListenEndpoint<'_> {
        ListenEndpoint {
            address: "127.0.0.1:0".parse().unwrap(),
            address_setting: "gateway.listen",
            device,
            device_setting: "gateway.bind_device",
        }
    }

    #[tokio::test]
    async fn a_listener_on_a_device_hears_who_comes_over_it() {
        let listener = place(Some("lo")).open_listener().unwrap();
        let bound = socket2::SockRef::from(&listener).device().unwrap();
        assert_eq!(bound.as_deref(), Some(&b"lo"[..]));
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        assert_eq!(client.unwrap().local_addr().unwrap(), accepted.unwrap().1);
        assert_eq!(
            socket2::SockRef::from(&place(None).open_listener().unwrap()).device().unwrap(),
            None
        );
    }

    #[tokio::test]
    async fn a_missing_device_is_an_error_that_names_it_and_its_setting() {
        let error = format!("{:#}", place(Some("ib77")).open_listener().unwrap_err());
        for part in ["ib77", "ip link", "gateway.bind_device", "No such device"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_an_error_that_names_its_setting() {
        let first = place(None).open_listener().unwrap();
        let again = ListenEndpoint { address: first.local_addr().unwrap(), ..place(None) };
        let error = format!("{:#}", again.open_listener().unwrap_err());
        assert!(error.contains("another process") && error.contains("gateway.listen"), "{error}");
    }
}
