//! Owns the list of this host's IP addresses and the network devices that have them. It comes from
//! one call of the C library, and nothing refers to that call's memory afterwards.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One address of one network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkInterface {
    pub name: String,
    pub address: IpAddr,
    /// Bits that all addresses of its subnet share.
    pub prefix: u8,
    pub is_up: bool,
}

/// Lists every address of every network device that is up.
pub fn list_interfaces() -> io::Result<Vec<NetworkInterface>> {
    let mut found = list_all_interfaces()?;
    found.retain(|interface| interface.is_up);
    Ok(found)
}

/// Lists every address of every network device of this process's network namespace.
pub fn list_all_interfaces() -> io::Result<Vec<NetworkInterface>> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `list` is a valid place for the result, which is freed below.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: not null, and an entry of the list, which is not freed before the loop's end.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        let is_up = entry.ifa_flags & libc::IFF_UP as libc::c_uint != 0;
        // SAFETY: the address of an entry of the list, which is alive.
        let Some(address) = (unsafe { address_of(entry.ifa_addr) }) else { continue };
        // SAFETY: getifaddrs gives every entry a name that ends with a zero and lives as long as
        // the list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        // SAFETY: as for the address.
        let prefix = match unsafe { address_of(entry.ifa_netmask) } {
            Some(IpAddr::V4(mask)) => mask.to_bits().leading_ones(),
            Some(IpAddr::V6(mask)) => mask.to_bits().leading_ones(),
            None => 0,
        };
        // At most 128.
        let (name, prefix) = (name.to_string_lossy().into_owned(), prefix as u8);
        found.push(NetworkInterface { name, address, prefix, is_up });
    }
    // SAFETY: made by getifaddrs, freed once; nothing of it is referred to any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// # Safety
/// Null, or a socket address whose family says how long it is.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null; every socket address begins with its family.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says that it is a `sockaddr_in`; the C library aligns it as one.
            let inet = unsafe { &*address.cast::<libc::sockaddr_in>() };
            Some(Ipv4Addr::from(u32::from_be(inet.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above, of a `sockaddr_in6`.
            let inet = unsafe { &*address.cast::<libc::sockaddr_in6>() };
            Some(Ipv6Addr::from(inet.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}
