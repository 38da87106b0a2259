//! Owns the facts of RDMA ports: state, rate, GIDs, P_Keys, counters, and their network devices.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use super::file_tree::HostFileTree;
use super::network::NetworkDevice;

/// One port of an RDMA device, from its folder `ports/N`.
#[derive(Debug, Clone, Default)]
pub struct PortDescription {
    pub number: u32,
    pub state: PortState,
    /// Like `LinkUp`, `Polling` or `Disabled`.
    pub physical: String,
    pub link_layer: LinkLayer,
    pub rate: Option<PortDataRate>,
    /// GIDs that are set.
    pub gids: Vec<GidTableEntry>,
    /// P_Keys that are set; bit 15 is full membership.
    pub pkeys: Vec<u16>,
    /// `counters` and `hw_counters` together.
    pub counters: BTreeMap<String, u64>,
    pub netdevs: Vec<String>,
    /// In bytes, as the device reports it. No file has it: `None` unless the caller asked the
    /// device.
    pub active_mtu: Option<u32>,
}

/// The logical state of a port (IBTA PortState). Only an active port carries data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum PortState {
    Active,
    Init,
    Armed,
    Down,
    #[default]
    Unknown,
}

/// The network that the port is cabled to. iWARP ports are on Ethernet, too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LinkLayer {
    InfiniBand,
    Ethernet,
    #[default]
    Unknown,
}

/// The data rate of a port, like `100 Gb/sec (4X EDR)`.
#[derive(Debug, Clone, PartialEq)]
pub struct PortDataRate {
    pub gbits: f64,
    /// Lanes; 0 if the text doesn't say.
    pub width: u32,
    /// Like `EDR`.
    pub speed: String,
}

/// One entry of a port's GID table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GidTableEntry {
    pub index: u32,
    pub gid: Ipv6Addr,
    pub kind: GidKind,
    pub netdev: Option<String>,
}

/// The type of a GID table entry, from `gid_attrs/types`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GidKind {
    /// The kernel calls both `IB/RoCE v1`; the link layer tells them apart.
    InfiniBandOrRoceV1,
    RoceV2,
    Unknown,
}

/// Reads a port. `device` is its device's folder.
pub(super) fn read(
    tree: &HostFileTree,
    device: &str,
    number: u32,
    iwarp: bool,
    netdevs: &[NetworkDevice],
) -> PortDescription {
    let at = format!("{device}/ports/{number}");
    let gids = read_gids(tree, &at, iwarp);
    let counters = ["counters", "hw_counters"].iter().flat_map(|folder| {
        let folder = format!("{at}/{folder}");
        let names = tree.list_names(&folder).into_iter();
        names.filter_map(move |name| {
            Some((name.clone(), tree.read_number(&format!("{folder}/{name}"))?))
        })
    });
    let pkeys = tree.list_names(&format!("{at}/pkeys")).into_iter();
    let pkeys = pkeys.filter_map(|index| {
        let text = tree.read_text(&format!("{at}/pkeys/{index}"))?;
        u16::from_str_radix(text.trim_start_matches("0x"), 16).ok()
    });
    PortDescription {
        number,
        state: after_colon(tree, &format!("{at}/state"))
            .map_or(PortState::Unknown, |state| state.as_str().into()),
        physical: after_colon(tree, &format!("{at}/phys_state")).unwrap_or_default(),
        link_layer: match tree.read_text(&format!("{at}/link_layer")).as_deref() {
            Some("InfiniBand") => LinkLayer::InfiniBand,
            Some("Ethernet") => LinkLayer::Ethernet,
            _ => LinkLayer::Unknown,
        },
        rate: tree.read_text(&format!("{at}/rate")).and_then(|text| PortDataRate::parse(&text)),
        pkeys: pkeys.filter(|pkey| *pkey != 0).collect(),
        counters: counters.collect(),
        netdevs: netdevs_of(tree, device, number, &gids, netdevs),
        gids,
        active_mtu: None,
    }
}

/// Returns the text after the colon: `4: ACTIVE` → `ACTIVE`.
fn after_colon(tree: &HostFileTree, path: &str) -> Option<String> {
    let text = tree.read_text(path)?;
    Some(text.split_once(':').map_or(text.as_str(), |(_, name)| name).trim().to_owned())
}

/// Reads the GID table. It has holes, and up to 1,024 places; the type of an empty one can't be
/// read (EINVAL).
fn read_gids(tree: &HostFileTree, at: &str, iwarp: bool) -> Vec<GidTableEntry> {
    let indexes = tree
        .list_names(&format!("{at}/gids"))
        .into_iter()
        .filter_map(|index| index.parse::<u32>().ok());
    let gid = |index| {
        let gid: Ipv6Addr = tree.read_text(&format!("{at}/gids/{index}"))?.parse().ok()?;
        // An unused entry of an InfiniBand port has only the prefix. One of iWARP has only a MAC
        // address in front.
        if gid.is_unspecified() || (gid.segments()[4..] == [0; 4] && !iwarp) {
            return None;
        }
        let kind = match tree.read_text(&format!("{at}/gid_attrs/types/{index}")).as_deref() {
            Some("RoCE v2") => GidKind::RoceV2,
            Some(text) if text.contains("RoCE v1") => GidKind::InfiniBandOrRoceV1,
            _ => GidKind::Unknown,
        };
        let netdev = tree
            .read_text(&format!("{at}/gid_attrs/ndevs/{index}"))
            .filter(|name| !name.is_empty());
        Some(GidTableEntry { index, gid, kind, netdev })
    };
    indexes.filter_map(gid).collect()
}

/// Returns the network devices on a port. RoCE names them beside its GIDs, rxe in `parent`. iWARP
/// shows one by a GID that is the MAC address. InfiniBand shows them by the PCI device and the
/// port's number.
fn netdevs_of(
    tree: &HostFileTree,
    device: &str,
    number: u32,
    gids: &[GidTableEntry],
    netdevs: &[NetworkDevice],
) -> Vec<String> {
    let mut found: Vec<String> = gids.iter().filter_map(|gid| gid.netdev.clone()).collect();
    found.extend(tree.read_text(&format!("{device}/parent")));
    let macs = gids.iter().map(|gid| gid.gid.octets()).filter(|gid| gid[6..] == [0; 10]);
    for mac in macs
        .map(|gid| gid[..6].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"))
    {
        found.extend(
            netdevs.iter().filter(|netdev| netdev.mac == mac).map(|netdev| netdev.name.clone()),
        );
    }
    if found.is_empty() {
        // dev_port counts from 0, ports from 1.
        let same_port = |name: &String| {
            let port =
                tree.read_number::<u32>(&format!("sys/class/net/{name}/dev_port")).unwrap_or(0);
            port + 1 == number
        };
        found
            .extend(tree.list_names(&format!("{device}/device/net")).into_iter().filter(same_port));
    }
    let mut unique = Vec::new();
    for name in found {
        if !unique.contains(&name) {
            unique.push(name);
        }
    }
    unique
}

impl PortDataRate {
    fn parse(text: &str) -> Option<Self> {
        let (gbits, rest) = text.split_once(' ')?;
        let inside = rest.split_once('(').map_or("", |(_, inside)| inside.trim_end_matches(')'));
        let (width, speed) = inside.split_once(' ').unwrap_or((inside, ""));
        Some(Self {
            gbits: gbits.parse().ok()?,
            width: width.trim_end_matches('X').parse().unwrap_or(0),
            speed: speed.to_owned(),
        })
    }
}

impl From<&str> for PortState {
    fn from(name: &str) -> Self {
        match name {
            "ACTIVE" => Self::Active,
            "INIT" => Self::Init,
            "ARMED" => Self::Armed,
            "DOWN" => Self::Down,
            _ => Self::Unknown,
        }
    }
}

impl PortState {
    /// Returns the state in lower case, as it is printed.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Init => "init",
            Self::Armed => "armed",
            Self::Down => "down",
            Self::Unknown => "unknown",
        }
    }
}

impl LinkLayer {
    /// Returns the layer as it is printed; sysfs writes it in the same way.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InfiniBand => "InfiniBand",
            Self::Ethernet => "Ethernet",
            Self::Unknown => "unknown",
        }
    }
}

impl GidTableEntry {
    /// Returns true if the GID comes from an IP address of the network device, and not from its MAC
    /// address.
    pub fn is_routable(&self) -> bool {
        !self.gid.is_unicast_link_local()
    }
}
