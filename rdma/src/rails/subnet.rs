//! Owns the question whether an address lies in the IP subnet of a rail.

use std::net::IpAddr;
use std::str::FromStr;

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

    /// Returns true if `text` is meant as a subnet: `10.2.0.0/16`.
    pub fn is_notation(text: &str) -> bool {
        let is_of_address = |c: char| c.is_ascii_hexdigit() || c == ':';
        text.split_once('/').is_some_and(|(address, _)| address.starts_with(is_of_address))
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

/// Why a text is no subnet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "is no subnet: an address, a slash, and the number of bits that all its addresses share, such \
    as 10.2.0.0/16"
)]
pub struct SubnetNotationError;

impl FromStr for RailSubnet {
    type Err = SubnetNotationError;

    fn from_str(text: &str) -> Result<Self, SubnetNotationError> {
        let (address, prefix) = text.split_once('/').ok_or(SubnetNotationError)?;
        let address: IpAddr = address.parse().map_err(|_| SubnetNotationError)?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.parse().ok().filter(|prefix| (1..=bits).contains(prefix));
        Ok(Self { address, prefix: prefix.ok_or(SubnetNotationError)? })
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

    #[test]
    fn a_subnet_is_written_with_its_bits() {
        let subnet: RailSubnet = "10.2.0.0/16".parse().unwrap();
        assert!(subnet.contains_address("10.2.9.9".parse().unwrap()));
        assert!("fd00:1::/64".parse::<RailSubnet>().is_ok());
        for wrong in ["10.2.0.0", "10.2.0.0/0", "10.2.0.0/33", "10.2/16", "ib0/16", "10.2.0.0/x"] {
            assert_eq!(wrong.parse::<RailSubnet>(), Err(SubnetNotationError), "{wrong}");
        }
    }
}
