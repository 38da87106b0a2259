//! Owns the pairing of rails: which of a peer's rails one of this host connects to.
//!
//! Pure. Hosts may name their rails in different orders, or have different counts of them. A rail
//! reaches those of its own subnet over one switch; to reach others it needs a route, if there is
//! any. So the subnet decides, and between equals the index.

use std::net::SocketAddr;

use crate::rails::RailSubnet;

/// Returns the rail of `theirs` for this host's rail `index`, which has an address in `subnet`.
/// `Some(None)` means that it is down there, `None` that the peer has no rails.
pub(super) fn pair_rail(
    index: usize,
    subnet: Option<RailSubnet>,
    theirs: &[Option<SocketAddr>],
) -> Option<Option<SocketAddr>> {
    let of_index = theirs.get(index % theirs.len().max(1)).copied()?;
    let is_near =
        |rail: &SocketAddr| subnet.is_some_and(|subnet| subnet.contains_address(rail.ip()));
    if of_index.as_ref().is_some_and(is_near) {
        return Some(of_index);
    }
    let near: Vec<SocketAddr> = theirs.iter().flatten().copied().filter(is_near).collect();
    // A rail that is down tells no address, so it may be the one of this subnet.
    Some(near.get(index % near.len().max(1)).copied().or(of_index))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn rails(addresses: &[&str]) -> Vec<Option<SocketAddr>> {
        addresses.iter().map(|address| address.parse().ok()).collect()
    }

    fn subnet(address: &str) -> Option<RailSubnet> {
        Some(RailSubnet::new(address.parse().unwrap(), 24))
    }

    #[test]
    fn rails_in_another_order_meet_in_their_subnet() {
        let theirs = rails(&["10.1.0.8:9403", "10.0.0.8:9403"]);
        assert_eq!(pair_rail(0, subnet("10.0.0.7"), &theirs), Some(theirs[1]));
        assert_eq!(pair_rail(1, subnet("10.1.0.7"), &theirs), Some(theirs[0]));
    }

    #[test]
    fn rails_of_one_subnet_meet_by_their_index() {
        let theirs = rails(&["10.0.0.8:9403", "10.0.0.9:9403"]);
        assert_eq!(pair_rail(0, subnet("10.0.0.6"), &theirs), Some(theirs[0]));
        assert_eq!(pair_rail(1, subnet("10.0.0.7"), &theirs), Some(theirs[1]));
        assert_eq!(pair_rail(2, subnet("10.0.0.7"), &theirs), Some(theirs[0]));
    }

    #[test]
    fn rails_without_a_common_subnet_meet_by_their_index() {
        let theirs = rails(&["10.8.0.8:9403", "10.9.0.8:9403"]);
        assert_eq!(pair_rail(1, subnet("10.0.0.7"), &theirs), Some(theirs[1]));
        assert_eq!(pair_rail(1, None, &theirs), Some(theirs[1]));
    }

    #[test]
    fn a_rail_that_is_down_there_stays_down() {
        let theirs = rails(&["down", "10.1.0.8:9403"]);
        assert_eq!(pair_rail(0, subnet("10.0.0.7"), &theirs), Some(None));
        assert_eq!(pair_rail(0, subnet("10.0.0.7"), &[]), None);
    }

    #[test]
    fn a_rail_that_is_down_takes_no_rail_of_another_subnet_along() {
        let theirs = rails(&["down", "10.0.0.8:9403"]);
        assert_eq!(pair_rail(0, subnet("10.0.0.7"), &theirs), Some(theirs[1]));
        let [one, other] = ["10.0.0.7", "10.1.0.7"].map(subnet);
        let theirs = rails(&["10.1.0.8:9403", "down"]);
        assert_eq!(
            [pair_rail(0, one, &theirs), pair_rail(1, other, &theirs)],
            [Some(theirs[0]); 2]
        );
    }
}
