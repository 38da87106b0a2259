//! Owns the question whether an address lies in the IP subnet of a rail.

use std::net::IpAddr;

/// The subnet of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RailSubnet {
    address: IpAddr,
    prefix: u8,
}

impl RailSubnet {
    /// Makes the subnet of `address`, whose first `prefix` bits all its addresses share.
    pub fn new(address: IpAddr, prefix: u8) -> Self {
        Self { address, prefix }
    }

    /// Returns true if `address` lies in this subnet. Every address of a subnet without any common
    /// bits does, which says nothing: then `false`.
    pub fn contains_address(&self, address: IpAddr) -> bool {
        let differing = match (self.address, address) {
            (IpAddr::V4(mine), IpAddr::V4(other)) => {
                (mine.to_bits() ^ other.to_bits()).leading_zeros()
            }
            (IpAddr::V6(mine), IpAddr::V6(other)) => {
                (mine.to_bits() ^ other.to_bits()).leading_zeros()
            }
            _ => 0,
        };
        self.prefix > 0 && differing >= u32::from(self.prefix)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn addresses_of_a_subnet_share_its_first_bits() {
        let contains = |subnet: &str, prefix, other: &str| {
            RailSubnet::new(subnet.parse().unwrap(), prefix)
                .contains_address(other.parse().unwrap())
        };
        assert!(contains("10.1.0.7", 24, "10.1.0.200"));
        assert!(!contains("10.1.0.7", 24, "10.1.1.7"));
        assert!(contains("10.1.0.6", 31, "10.1.0.7") && !contains("10.1.0.6", 31, "10.1.0.8"));
        assert!(contains("fd00:1::7", 64, "fd00:1::9") && !contains("fd00:1::7", 64, "fd00:2::9"));
        assert!(!contains("10.1.0.7", 24, "fd00::1") && !contains("10.1.0.7", 0, "10.1.0.8"));
    }
}
