//! Owns what `verbs.rails` and `verbs.rails_except` leave of a host: ports that are for others
//! (storage, management) are no rails, and are not judged as such. Rails that are named have to be
//! there.

use verbs3_rdma::rails::{NetworkInterface, RailPort, RailRules};
use verbs3_rdma::settings::{VerbsMode, VerbsSettings};

use crate::finding::{HostCheckKind, HostFinding};
use crate::host::{HostDescription, HostRailView, NetworkDevice, is_link_local};

/// Returns the host without the ports that `verbs.rails` and `verbs.rails_except` leave to others.
pub fn without_left_out_ports(host: &HostDescription, verbs: &VerbsSettings) -> HostDescription {
    let rules = RailRules::from_entries(&verbs.rails, &verbs.rails_except);
    let mut left = host.clone();
    for (device, of_host) in left.devices.iter_mut().zip(&host.devices) {
        device.ports.retain(|port| {
            let rail = HostRailView { device: of_host, port };
            let (port, interfaces) = (port_of(rail), interfaces_of(host, rail));
            rules.may_take_port(&port, &interfaces)
        });
    }
    let mut before = host.devices.iter();
    left.devices.retain(|device| {
        let had_none = before.next().is_some_and(|before| before.ports.is_empty());
        had_none || !device.ports.is_empty()
    });
    left
}

/// Returns the finding that no port is left.
pub(super) fn check_any_left(
    host: &HostDescription,
    left: &HostDescription,
    verbs: &VerbsSettings,
) -> Option<HostFinding> {
    if !left.devices.is_empty() || host.devices.is_empty() {
        return None;
    }
    let seen = format!(
        "no port that verbs.rails and verbs.rails_except allow: this host has {}; tcp is used",
        show_ports(host)
    );
    let (check, subject) = (HostCheckKind::Transport, "host");
    let finding = match verbs.mode {
        VerbsMode::On => HostFinding::new_failure(check, subject, seen),
        VerbsMode::Auto | VerbsMode::Off => HostFinding::new_warning(check, subject, seen),
    };
    let why = "without verbs, bytes pass through the kernel at both ends";
    Some(finding.with_explanation(why, "compare both settings with `rdma link` and `ip address`"))
}

/// Names the rails of the configuration that this host does not have.
pub(super) fn check_named_rails(host: &HostDescription, verbs: &VerbsSettings) -> Vec<HostFinding> {
    let rules = RailRules::from_entries(&verbs.rails, &verbs.rails_except);
    let is_there = |name: &str| {
        let named = RailRules::from_entries(&[name.to_owned()], &[]);
        host.all_rails().any(|rail| named.may_take_port(&port_of(rail), &interfaces_of(host, rail)))
    };
    let describe = |name: &str| {
        let seen = format!("verbs.rails names {name}; this host has {}", show_ports(host));
        let why = "a rail that is not there is waited for, and others carry its traffic meanwhile";
        let remedy = "name one that is there, or see why this one is not: `rdma link`, dmesg";
        HostFinding::new_warning(HostCheckKind::Transport, name, seen).with_explanation(why, remedy)
    };
    rules.named_rails().filter(|name| !is_there(name)).map(describe).collect()
}

fn show_ports(host: &HostDescription) -> String {
    let show = |rail: HostRailView<'_>| format!("{}:{}", rail.device.name, rail.port.number);
    let ports: Vec<String> = host.all_rails().map(show).collect();
    if ports.is_empty() { "no RDMA port".to_owned() } else { ports.join(", ") }
}

fn port_of(rail: HostRailView<'_>) -> RailPort {
    let port = u8::try_from(rail.port.number).unwrap_or(u8::MAX);
    RailPort { device: rail.device.name.clone(), port }
}

/// Returns the addresses by which rules may take a port: no rule means a link-local one.
fn interfaces_of(host: &HostDescription, rail: HostRailView<'_>) -> Vec<NetworkInterface> {
    let addresses_of =
        |netdev: &NetworkDevice| {
            let (name, is_up) = (netdev.name.clone(), netdev.up);
            let addresses = netdev.addresses.clone().into_iter();
            addresses.filter(|address| !is_link_local(*address)).map(move |address| {
                NetworkInterface { name: name.clone(), address, prefix: 0, is_up }
            })
        };
    host.netdevs_of(rail).into_iter().flat_map(addresses_of).collect()
}
