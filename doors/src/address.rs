//! Decides which addresses count as one. Owns no count.

use std::net::{IpAddr, Ipv6Addr};

/// Bits of an IPv6 address that name a network: one host has all addresses behind them (RFC 4291,
/// section 2.5.1).
const NETWORK_MASK: u128 = !0 << 64;

/// Returns the unit by which addresses are bounded: an IPv4 address, or an IPv6 network of 64 bits.
pub fn address_group(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & NETWORK_MASK))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn addresses_of_one_host_count_as_one() {
        let group = |text: &str| address_group(text.parse().unwrap());
        assert_eq!(group("::ffff:10.0.0.1"), group("10.0.0.1"));
        assert_ne!(group("10.0.0.1"), group("10.0.0.2"));
        assert_eq!(group("2001:db8:1:2::1"), group("2001:db8:1:2:ffff::9"));
        assert_ne!(group("2001:db8:1:2::1"), group("2001:db8:1:3::1"));
    }
}
