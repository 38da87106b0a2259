//! Owns the rules by which a configuration chooses rails: by name, all, those of a subnet, and which
//! are left out.

use std::net::IpAddr;

use super::{NetworkInterface, RailError, RailPort, RailSubnet, usable_ports};

/// Which ports of a host are its rails: `verbs.rails` and `verbs.rails_except`.
#[derive(Debug, Clone, Default)]
pub struct RailRules {
    wanted: Vec<RailSelector>,
    left_out: Vec<RailSelector>,
}

/// What one entry of the configuration means.
#[derive(Debug, Clone)]
enum RailSelector {
    /// Each port that has an address.
    All,
    /// Each port that has an address there, by this address.
    Subnet(RailSubnet),
    /// A device, a port of it, a network device, or an address.
    Name(String),
}

/// A rail of this host: its name, and by which of its addresses a rule took it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenRail {
    name: String,
    /// `None`: it was named.
    rule: Option<RailRule>,
}

/// Where the address of a rail lies that a rule took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RailRule {
    Anywhere,
    Within(RailSubnet),
}

impl ChosenRail {
    /// Makes the rail of a device, a port of it, a network device, or an address.
    pub fn with_name(name: impl Into<String>) -> Self {
        Self { name: name.into(), rule: None }
    }

    /// Returns the name, as logs and metrics have it.
    pub fn rail_name(&self) -> &str {
        &self.name
    }

    fn is_at(&self, interface: &NetworkInterface, port: &RailPort) -> bool {
        is_named(&self.name, interface, port)
            && match self.rule {
                Some(RailRule::Within(subnet)) => subnet.contains_address(interface.address),
                Some(RailRule::Anywhere) | None => true,
            }
    }
}

impl RailSelector {
    /// The configuration has been checked: what is no subnet is a name.
    fn from_entry(entry: &str) -> Self {
        match entry.parse() {
            _ if entry == "auto" => Self::All,
            Ok(subnet) => Self::Subnet(subnet),
            Err(_) => Self::Name(entry.to_owned()),
        }
    }

    /// Returns true if the entry means the port, whatever addresses it has.
    fn matches_bare_port(&self, port: &RailPort) -> bool {
        match self {
            Self::All => true,
            Self::Subnet(_) => false,
            Self::Name(name) => is_port_name(name, port),
        }
    }

    fn matches_port(&self, interface: &NetworkInterface, port: &RailPort) -> bool {
        match self {
            Self::All => true,
            Self::Subnet(subnet) => subnet.contains_address(interface.address),
            Self::Name(name) => is_named(name, interface, port),
        }
    }
}

/// An address of this host, and the port that it belongs to.
type AddressedPort<'a> = (&'a NetworkInterface, RailPort);

impl RailRules {
    /// Reads the entries of both settings.
    pub fn from_entries(wanted: &[String], left_out: &[String]) -> Self {
        let read = |entries: &[String]| {
            entries.iter().map(|entry| RailSelector::from_entry(entry)).collect()
        };
        Self { wanted: read(wanted), left_out: read(left_out) }
    }

    /// Returns true if a port may become a rail, by those of its addresses that there are now. A port
    /// that has none may get one of a subnet.
    pub fn may_take_port(&self, port: &RailPort, interfaces: &[NetworkInterface]) -> bool {
        let is_meant = |entries: &[RailSelector]| {
            interfaces.iter().any(|i| entries.iter().any(|entry| entry.matches_port(i, port)))
                || entries.iter().any(|entry| entry.matches_bare_port(port))
        };
        let is_name = |entry: &&RailSelector| matches!(entry, RailSelector::Name(_));
        let named: Vec<RailSelector> = self.wanted.iter().filter(is_name).cloned().collect();
        if is_meant(&named) {
            return true;
        }
        let has_subnet = self.wanted.iter().any(|entry| matches!(entry, RailSelector::Subnet(_)));
        !is_meant(&self.left_out)
            && (is_meant(&self.wanted) || (interfaces.is_empty() && has_subnet))
    }

    /// Returns the rails that are named.
    pub fn named_rails(&self) -> impl Iterator<Item = &str> {
        self.wanted.iter().filter_map(|entry| match entry {
            RailSelector::Name(name) => Some(name.as_str()),
            RailSelector::All | RailSelector::Subnet(_) => None,
        })
    }

    /// Returns true if a rail is named, and so is waited for where it is not there.
    pub fn names_a_rail(&self) -> bool {
        self.wanted.iter().any(|entry| matches!(entry, RailSelector::Name(_)))
    }

    /// Returns the rails of this host, in the order of the entries: those that are named, there or
    /// not, and the ports for which `probe` knows an address that an entry means. A port is taken
    /// once, by its name first of all.
    pub fn choose_rails(
        &self,
        interfaces: &[NetworkInterface],
        probe: impl Fn(IpAddr) -> Option<RailPort>,
    ) -> Vec<ChosenRail> {
        let known = usable_ports(interfaces, probe);
        let mut taken: Vec<&RailPort> = self
            .wanted
            .iter()
            .filter(|entry| matches!(entry, RailSelector::Name(_)))
            .filter_map(|name| known.iter().find(|(i, port)| name.matches_port(i, port)))
            .map(|(_, port)| port)
            .chain(self.ports_left_out(&known))
            .collect();
        let mut chosen = Vec::new();
        for entry in &self.wanted {
            let rule = match entry {
                RailSelector::Name(name) => {
                    chosen.push(ChosenRail::with_name(name));
                    continue;
                }
                RailSelector::All => RailRule::Anywhere,
                RailSelector::Subnet(subnet) => RailRule::Within(*subnet),
            };
            for (interface, port) in &known {
                if entry.matches_port(interface, port) && !taken.contains(&port) {
                    taken.push(port);
                    let RailPort { device, port } = port;
                    chosen.push(ChosenRail { name: format!("{device}:{port}"), rule: Some(rule) });
                }
            }
        }
        chosen
    }

    /// Returns the address of each rail, in their order, or why it has none now. A port that a rule
    /// took stays with it, whatever comes up later.
    pub fn resolve_rails(
        &self,
        chosen: &[ChosenRail],
        interfaces: &[NetworkInterface],
        probe: impl Fn(IpAddr) -> Option<RailPort>,
    ) -> Vec<Result<IpAddr, RailError>> {
        let known = usable_ports(interfaces, probe);
        let left_out: Vec<&RailPort> = self.ports_left_out(&known).collect();
        let place_of = |rail: &ChosenRail| {
            let is_allowed = |port| rail.rule.is_none() || !left_out.contains(&port);
            known.iter().find(|(i, port)| rail.is_at(i, port) && is_allowed(port))
        };
        let places: Vec<Option<&AddressedPort<'_>>> = chosen.iter().map(place_of).collect();
        let has_port =
            |at: &usize, wanted: &RailPort| places[*at].is_some_and(|(_, port)| port == wanted);
        let judge = |at: usize| {
            let rail = &chosen[at];
            let Some((interface, port)) = places[at] else {
                return Err(Self::explain_absence(&rail.name, interfaces));
            };
            // Of several at one port, the one of a rule has it, or else the first.
            let holder = (0..chosen.len())
                .filter(|other| has_port(other, port))
                .min_by_key(|&other| (chosen[other].rule.is_none(), other));
            match holder {
                Some(other) if other != at => Err(RailError::Twice {
                    first: chosen[other].name.clone(),
                    second: rail.name.clone(),
                }),
                _ => Ok(interface.address),
            }
        };
        (0..chosen.len()).map(judge).collect()
    }

    fn explain_absence(name: &str, interfaces: &[NetworkInterface]) -> RailError {
        let rail = name.to_owned();
        let is_there = |i: &NetworkInterface| i.name == name || name.parse() == Ok(i.address);
        match interfaces.iter().any(is_there) {
            true => RailError::NoRdma { rail },
            false => RailError::Absent { rail },
        }
    }

    /// Returns the ports that no rule takes: whole ports, whichever of their addresses or network
    /// devices an exception means.
    fn ports_left_out<'a>(
        &'a self,
        known: &'a [AddressedPort<'_>],
    ) -> impl Iterator<Item = &'a RailPort> {
        let is_left_out = |(interface, port): &&AddressedPort<'_>| {
            self.left_out.iter().any(|entry| entry.matches_port(interface, port))
        };
        known.iter().filter(is_left_out).map(|(_, port)| port)
    }
}

fn is_port_name(name: &str, port: &RailPort) -> bool {
    let with_port =
        name.split_once(':').and_then(|(device, port)| Some((device, port.parse::<u8>().ok()?)));
    name == port.device || with_port == Some((port.device.as_str(), port.port))
}

fn is_named(name: &str, interface: &NetworkInterface, port: &RailPort) -> bool {
    name == interface.name || is_port_name(name, port) || name.parse() == Ok(interface.address)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn host() -> Vec<NetworkInterface> {
        let interface = |name: &str, address: &str| NetworkInterface {
            is_up: true,
            name: name.into(),
            address: address.parse().unwrap(),
            prefix: 24,
        };
        vec![
            interface("lo", "127.0.0.1"),
            interface("eth0", "192.168.0.7"),
            interface("ib0", "fe80::1"),
            interface("ib0", "fd00::1"),
            interface("ib0", "10.0.0.7"),
            interface("ib1", "10.1.0.7"),
            interface("ib1", "10.1.0.8"),
        ]
    }

    /// As rdma_cm: anything goes for loopback.
    fn probe(address: IpAddr) -> Option<RailPort> {
        let port = |device: &str, port| Some(RailPort { device: device.into(), port });
        match address.to_string().as_str() {
            "127.0.0.1" | "fe80::1" | "fd00::1" | "10.0.0.7" => port("mlx5_0", 1),
            "10.1.0.7" | "10.1.0.8" => port("mlx5_0", 2),
            _ => None,
        }
    }

    fn rules(wanted: &[&str], left_out: &[&str]) -> RailRules {
        let entries = |entries: &[&str]| -> Vec<String> {
            entries.iter().map(|entry| (*entry).to_owned()).collect()
        };
        RailRules::from_entries(&entries(wanted), &entries(left_out))
    }

    /// What is chosen, and the address of each.
    fn chosen(wanted: &[&str], left_out: &[&str]) -> Vec<(String, Result<String, RailError>)> {
        let rules = rules(wanted, left_out);
        let chosen = rules.choose_rails(&host(), probe);
        let found = rules.resolve_rails(&chosen, &host(), probe).into_iter();
        let addresses = found.map(|found| found.map(|address| address.to_string()));
        chosen.iter().map(|rail| rail.rail_name().to_owned()).zip(addresses).collect()
    }

    fn rails(names: &[&str]) -> Vec<Result<String, RailError>> {
        chosen(names, &[]).into_iter().map(|(_, found)| found).collect()
    }

    fn found(names: &[&str]) -> Vec<String> {
        rails(names).into_iter().map(Result::unwrap).collect()
    }

    fn there(name: &str, address: &str) -> (String, Result<String, RailError>) {
        (name.to_owned(), Ok(address.to_owned()))
    }

    #[test]
    fn auto_takes_each_port_once_and_no_loopback() {
        let both = [there("mlx5_0:1", "10.0.0.7"), there("mlx5_0:2", "10.1.0.7")];
        assert_eq!(chosen(&["auto"], &[]), both);
        assert!(rules(&["auto"], &[]).choose_rails(&host(), |_| None).is_empty());
    }

    #[test]
    fn a_subnet_takes_ports_by_their_address_there() {
        assert_eq!(chosen(&["10.1.0.0/16"], &[]), [there("mlx5_0:2", "10.1.0.7")]);
        assert_eq!(chosen(&["10.1.0.8/32"], &[]), [there("mlx5_0:2", "10.1.0.8")]);
        assert_eq!(chosen(&["fd00::/16"], &[]), [there("mlx5_0:1", "fd00::1")]);
        let in_order = [there("mlx5_0:2", "10.1.0.7"), there("mlx5_0:1", "10.0.0.7")];
        assert_eq!(chosen(&["10.1.0.0/24", "10.0.0.0/8"], &[]), in_order);
        assert_eq!(chosen(&["192.168.0.0/16", "172.16.0.0/12"], &[]), []);
    }

    #[test]
    fn a_port_that_is_named_is_not_taken_by_a_subnet_as_well() {
        let once = [there("ib1", "10.1.0.7"), there("mlx5_0:1", "10.0.0.7")];
        assert_eq!(chosen(&["ib1", "10.0.0.0/8"], &[]), once);
        let [a, b] = once;
        assert_eq!(chosen(&["10.0.0.0/8", "ib1"], &[]), [b, a], "in any order");
    }

    #[test]
    fn what_is_left_out_is_no_rail_by_any_rule() {
        for left_out in ["mlx5_0:2", "ib1", "10.1.0.0/24"] {
            assert_eq!(chosen(&["auto"], &[left_out]), [there("mlx5_0:1", "10.0.0.7")]);
        }
        assert_eq!(chosen(&["auto"], &["mlx5_0"]), []);
        // A port goes whole, whatever else it has.
        for left_out in ["10.0.0.0/24", "fd00::1", "ib0"] {
            assert_eq!(chosen(&["auto"], &[left_out]), [there("mlx5_0:2", "10.1.0.7")]);
            assert_eq!(chosen(&["fd00::/16"], &[left_out]), []);
        }
        // Names need no rule.
        let named = chosen(&["ib0", "10.0.0.0/8"], &["mlx5_0"]);
        assert_eq!(named, [there("ib0", "10.0.0.7")]);
    }

    #[test]
    fn a_rail_that_is_named_comes_up_and_takes_no_port_of_a_rule() {
        let rules = rules(&["ib7", "10.0.0.0/8"], &[]);
        let chosen = rules.choose_rails(&host(), probe);
        let names: Vec<&str> = chosen.iter().map(ChosenRail::rail_name).collect();
        assert_eq!(names, ["ib7", "mlx5_0:1", "mlx5_0:2"]);
        let mut later = host();
        later[5].name = "ib7".into();
        let found = rules.resolve_rails(&chosen, &later, probe);
        assert!(matches!(found[0], Err(RailError::Twice { .. })), "{found:?}");
        assert!(found[1].is_ok() && found[2].is_ok(), "{found:?}");
    }

    #[test]
    fn rails_are_found_by_device_port_interface_or_address_in_order() {
        assert_eq!(found(&["mlx5_0:2", "mlx5_0:1"]), ["10.1.0.7", "10.0.0.7"]);
        assert_eq!(found(&["mlx5_0"]), ["10.0.0.7"]);
        assert_eq!(found(&["ib1", "ib0"]), ["10.1.0.7", "10.0.0.7"]);
        assert_eq!(found(&["10.1.0.8", "fd00::1"]), ["10.1.0.8", "fd00::1"]);
    }

    #[test]
    fn an_absent_or_repeated_rail_says_so_and_moves_no_other() {
        for absent in ["mlx5_9", "mlx5_0:3"] {
            let rails = rails(&[absent, "ib1"]);
            assert!(matches!(rails[0], Err(RailError::Absent { .. })));
            assert_eq!(rails[1].as_deref(), Ok("10.1.0.7"));
        }
        assert!(matches!(rails(&["192.168.0.7"])[0], Err(RailError::NoRdma { .. })));
        assert!(matches!(rails(&["eth0"])[0], Err(RailError::NoRdma { .. })));
        let twice = rails(&["ib0", "mlx5_0:1"]);
        assert_eq!(twice[0].as_deref(), Ok("10.0.0.7"));
        assert!(matches!(twice[1], Err(RailError::Twice { .. })));
    }
}
