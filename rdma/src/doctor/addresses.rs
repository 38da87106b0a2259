//! Owns the list of this process's IP addresses by network device. procfs lists IPv4 addresses
//! without their devices, hence `getifaddrs`.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses by network device.
pub type DeviceAddresses = BTreeMap<String, Vec<IpAddr>>;

/// Lists the addresses of every network device of this process's network namespace.
pub fn list_addresses() -> io::Result<DeviceAddresses> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `list` is a valid place for a pointer.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = DeviceAddresses::new();
    let mut at = list;
    while !at.is_null() {
        // SAFETY: `at` is an entry of the list, which lives until it is freed below.
        let entry = unsafe { &*at };
        if let Some(address) = parse_sockaddr(entry.ifa_addr) {
            // SAFETY: getifaddrs gives every entry a NUL-terminated name that lives as long as the
            // list.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
            found.entry(name).or_default().push(address);
        }
        at = entry.ifa_next;
    }
    // SAFETY: the list came from getifaddrs, and nothing of it is used after this.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// Parses an address. Returns `None` for an entry without one, or with one that is not IP.
fn parse_sockaddr(socket: *const libc::sockaddr) -> Option<IpAddr> {
    if socket.is_null() {
        return None;
    }
    // SAFETY: a `sockaddr` of getifaddrs has its family, whatever its kind.
    let family = libc::c_int::from(unsafe { (*socket).sa_family });
    match family {
        libc::AF_INET => {
            // SAFETY: the family says that it is a `sockaddr_in`.
            let socket = unsafe { &*socket.cast::<libc::sockaddr_in>() };
            Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(socket.sin_addr.s_addr))))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is a `sockaddr_in6`.
            let socket = unsafe { &*socket.cast::<libc::sockaddr_in6>() };
            Some(IpAddr::V6(Ipv6Addr::from(socket.sin6_addr.s6_addr)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_loopback_device_has_its_address() {
        let found = list_addresses().unwrap();
        assert!(found["lo"].contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)), "{found:?}");
    }
}
