//! Owns the next hop to an address, from the main routing tables of `/proc/net`. Policy routing is
//! not in them; the source address, which the kernel chose, tells the device.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// Finds the next hop to `to` out of `device`. Returns `None` if `to` is on the link, or the table
/// doesn't tell.
pub(super) fn find_next_hop(root: &Path, to: IpAddr, device: &str) -> Option<IpAddr> {
    match to {
        IpAddr::V4(to) => find_next_hop_v4(
            &std::fs::read_to_string(root.join("proc/net/route")).ok()?,
            to,
            device,
        ),
        IpAddr::V6(to) => find_next_hop_v6(
            &std::fs::read_to_string(root.join("proc/net/ipv6_route")).ok()?,
            to,
            device,
        ),
    }
}

/// Flags of `linux/route.h`: the route is usable; it leads through a gateway.
const UP: u32 = 1;
const GATEWAY: u32 = 2;

/// Finds the next hop in an IPv4 table. Columns: device, destination, gateway, flags, …, mask;
/// addresses are hexadecimal in the host's byte order.
fn find_next_hop_v4(table: &str, to: Ipv4Addr, device: &str) -> Option<IpAddr> {
    let address =
        |text: &str| Some(Ipv4Addr::from(u32::from_str_radix(text, 16).ok()?.to_ne_bytes()));
    let mut best: Option<(u32, u32, Option<Ipv4Addr>)> = None;
    for line in table.lines().skip(1) {
        let columns: Vec<_> = line.split_whitespace().collect();
        let [name, destination, hop, flags, _, _, metric, mask, ..] = columns[..] else { continue };
        let (Some(destination), Some(hop), Some(mask)) =
            (address(destination), address(hop), address(mask))
        else {
            continue;
        };
        let (flags, metric) =
            (u32::from_str_radix(flags, 16).unwrap_or(0), metric.parse().unwrap_or(u32::MAX));
        if name != device || flags & UP == 0 || to & mask != destination {
            continue;
        }
        let length = mask.to_bits().count_ones();
        // The longest prefix wins, then the smallest metric.
        if best
            .is_none_or(|(known, least, _)| length > known || (length == known && metric < least))
        {
            best = Some((length, metric, (flags & GATEWAY != 0).then_some(hop)));
        }
    }
    best?.2.map(IpAddr::V4)
}

/// Finds the next hop in an IPv6 table. Columns: destination, its prefix length, source, its prefix
/// length, next hop, metric, references, uses, flags, device.
fn find_next_hop_v6(table: &str, to: Ipv6Addr, device: &str) -> Option<IpAddr> {
    let address = |text: &str| Some(Ipv6Addr::from(u128::from_str_radix(text, 16).ok()?));
    let mut best: Option<(u32, u32, Option<Ipv6Addr>)> = None;
    for line in table.lines() {
        let columns: Vec<_> = line.split_whitespace().collect();
        let [destination, length, _, _, hop, metric, _, _, flags, name] = columns[..] else {
            continue;
        };
        let (Some(destination), Some(hop)) = (address(destination), address(hop)) else { continue };
        let number = |text: &str| u32::from_str_radix(text, 16).unwrap_or(0);
        let (length, metric, flags) = (number(length).min(128), number(metric), number(flags));
        let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
        if name != device || flags & UP == 0 || to.to_bits() & mask != destination.to_bits() {
            continue;
        }
        if best
            .is_none_or(|(known, least, _)| length > known || (length == known && metric < least))
        {
            best = Some((length, metric, (flags & GATEWAY != 0).then_some(hop)));
        }
    }
    best?.2.map(IpAddr::V6)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const V4: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0
eth0\t0000000A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0
eth0\t0001000A\t0200000A\t0003\t0\t0\t100\t00FFFFFF\t0\t0\t0
eth0\t0001000A\t0300000A\t0003\t0\t0\t50\t00FFFFFF\t0\t0\t0
eth1\t0002000A\t0400000A\t0003\t0\t0\t50\t00FFFFFF\t0\t0\t0
";

    #[test]
    fn the_longest_prefix_then_the_least_metric_names_the_next_hop() {
        let hop =
            |to: &str| find_next_hop_v4(V4, to.parse().unwrap(), "eth0").map(|hop| hop.to_string());
        assert_eq!(hop("10.0.0.9"), None, "on the link");
        assert_eq!(hop("10.0.1.9").as_deref(), Some("10.0.0.3"));
        assert_eq!(hop("8.8.8.8").as_deref(), Some("10.0.0.1"));
        assert_eq!(hop("10.0.2.9").as_deref(), Some("10.0.0.1"), "eth1's route is not eth0's");
    }

    #[test]
    fn ipv6_routes_are_read_alike() {
        let zero = "0".repeat(32);
        let line = |to: &str, length: &str, hop: &str, flags: &str| {
            format!(
                "{to:0<32} {length} {zero} 00 {hop:0<32} 00000400 00000001 00000000 {flags} eth0\n"
            )
        };
        let hop_text = format!("fd00{:0>28}", "1");
        let table = line("fd000001", "20", "", "00000001") + &line("", "00", &hop_text, "00000003");
        assert_eq!(
            find_next_hop_v6(&table, "fd00:1::9".parse().unwrap(), "eth0"),
            None,
            "on the link"
        );
        assert_eq!(
            find_next_hop_v6(&table, "fd01::9".parse().unwrap(), "eth0"),
            Some("fd00::1".parse().unwrap())
        );
    }
}
