//! Owns the facts of network devices, as far as RDMA's addresses, MTU and bonding depend on them.

use std::net::IpAddr;
use std::path::PathBuf;

use super::file_tree::HostFileTree;
use crate::addresses::DeviceAddresses;

/// One network device, from its folder in `/sys/class/net`.
#[derive(Debug, Clone, Default)]
pub struct NetworkDevice {
    pub name: String,
    /// IPoIB (ARPHRD_INFINIBAND).
    pub infiniband: bool,
    pub loopback: bool,
    pub up: bool,
    pub mtu: u32,
    pub mac: String,
    pub addresses: Vec<IpAddr>,
    /// The bond or bridge that the device belongs to.
    pub master: Option<String>,
    pub bond: Option<BondDescription>,
    /// State as part of a bond: `up`, `down`.
    pub mii_status: Option<String>,
    /// IPoIB: `datagram` or `connected`.
    pub ipoib_mode: Option<String>,
    pub driver: Option<String>,
    /// Folder of the hardware below; an RDMA device on it has the same folder.
    pub hardware: Option<PathBuf>,
}

/// The bonding settings of a network device, from its `bonding` folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BondDescription {
    /// `802.3ad`, `active-backup`, …
    pub mode: String,
    pub slaves: Vec<String>,
    /// `layer2`, `layer3+4`, …
    pub hash_policy: Option<String>,
}

/// ARPHRD_INFINIBAND and ARPHRD_LOOPBACK of `linux/if_arp.h`.
const TYPE_INFINIBAND: u32 = 32;
const TYPE_LOOPBACK: u32 = 772;

pub(super) fn read(tree: &HostFileTree, addresses: &DeviceAddresses) -> Vec<NetworkDevice> {
    // `bonding_masters` is a file between the links.
    let names = tree.list_names("sys/class/net").into_iter();
    let names = names.filter(|name| tree.path_exists(&format!("sys/class/net/{name}/mtu")));
    names.map(|name| read_netdev(tree, name, addresses)).collect()
}

fn read_netdev(tree: &HostFileTree, name: String, addresses: &DeviceAddresses) -> NetworkDevice {
    let at = format!("sys/class/net/{name}");
    let text = |file: &str| tree.read_text(&format!("{at}/{file}"));
    let kind: u32 = tree.read_number(&format!("{at}/type")).unwrap_or(0);
    let first_word = |text: String| text.split_whitespace().next().map(str::to_owned);
    let bond = text("bonding/mode").and_then(first_word).map(|mode| BondDescription {
        mode,
        slaves: text("bonding/slaves")
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        hash_policy: text("bonding/xmit_hash_policy").and_then(first_word),
    });
    NetworkDevice {
        infiniband: kind == TYPE_INFINIBAND,
        loopback: kind == TYPE_LOOPBACK,
        // A device without carrier detection says "unknown" and works.
        up: text("operstate").is_some_and(|state| state == "up" || state == "unknown"),
        mtu: tree.read_number(&format!("{at}/mtu")).unwrap_or(0),
        mac: text("address").unwrap_or_default().to_lowercase(),
        addresses: addresses.get(&name).cloned().unwrap_or_default(),
        master: tree.link_target(&format!("{at}/master")),
        bond,
        mii_status: text("bonding_slave/mii_status"),
        ipoib_mode: text("mode").filter(|_| kind == TYPE_INFINIBAND),
        driver: tree.link_target(&format!("{at}/device/driver")),
        hardware: tree.canonical_path(&format!("{at}/device")),
        name,
    }
}
