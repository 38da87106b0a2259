//! Owns the facts of RDMA devices: `/sys/class/infiniband` and the files that a process opens to
//! use them.

use std::fs::OpenOptions;
use std::io;

use super::file_tree::HostFileTree;
use super::network::NetworkDevice;
use super::pci::{self, PciFunction};
use super::port::{self, PortDescription};

/// One RDMA device, from its folder in `/sys/class/infiniband`.
#[derive(Debug, Clone, Default)]
pub struct DeviceDescription {
    /// Like `mlx5_0` or `rxe0`.
    pub name: String,
    pub kind: DeviceKind,
    /// Kernel module of the device: `mlx5_core`, `rdma_rxe`, `siw`.
    pub driver: Option<String>,
    pub iwarp: bool,
    /// It makes no reliable connections (EFA, usNIC), so it can't be a rail.
    pub datagram_only: bool,
    pub firmware: String,
    /// `None` if the kernel doesn't tell it, or has one node only.
    pub numa_node: Option<u32>,
    pub pci: PciFunction,
    /// Name of its file in `/dev/infiniband`.
    pub uverbs: Option<String>,
    pub access: DeviceFileAccess,
    pub ports: Vec<PortDescription>,
}

/// The executor of verbs: a NIC, or the kernel's CPU code.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeviceKind {
    #[default]
    Hardware,
    /// Soft-RoCE or soft-iWARP: real verbs, no real speed.
    Software,
}

/// This process's access to a file, for reading and writing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DeviceFileAccess {
    Open,
    #[default]
    Missing,
    /// Denied, with the kernel's message.
    Denied(String),
}

pub(super) fn read(tree: &HostFileTree, netdevs: &[NetworkDevice]) -> Vec<DeviceDescription> {
    let names = tree.list_names("sys/class/infiniband");
    names.into_iter().map(|name| read_device(tree, name, netdevs)).collect()
}

fn read_device(tree: &HostFileTree, name: String, netdevs: &[NetworkDevice]) -> DeviceDescription {
    let at = format!("sys/class/infiniband/{name}");
    let description = tree.read_text(&format!("{at}/node_desc")).unwrap_or_default();
    // The software devices have no driver in sysfs: siw's `device` even is that of the netdev below
    // it.
    let (kind, driver) = if description == "rxe" {
        (DeviceKind::Software, Some("rdma_rxe".to_owned()))
    } else if description.starts_with("Software iWARP") {
        (DeviceKind::Software, Some("siw".to_owned()))
    } else {
        (DeviceKind::Hardware, tree.link_target(&format!("{at}/device/driver")))
    };
    // "4: RNIC" is iWARP, "1: CA" InfiniBand and RoCE. The kernel gives EFA "7: unspecified", usNIC
    // 5 and 6: neither has the connection managers that rdma_cm goes by.
    let node = tree.read_text(&format!("{at}/node_type")).unwrap_or_default();
    let (iwarp, datagram_only) = (node.starts_with('4'), node.starts_with(['5', '6', '7']));
    let uverbs = tree.list_names("sys/class/infiniband_verbs").into_iter().find(|file| {
        tree.read_text(&format!("sys/class/infiniband_verbs/{file}/ibdev")).as_deref()
            == Some(name.as_str())
    });
    let access = uverbs.as_ref().map_or(DeviceFileAccess::Missing, |file| {
        probe_access(tree, &format!("dev/infiniband/{file}"))
    });
    let ports = tree
        .list_names(&format!("{at}/ports"))
        .into_iter()
        .filter_map(|number| number.parse().ok());
    let ports = ports.map(|number| port::read(tree, &at, number, iwarp, netdevs)).collect();
    let pci = match kind {
        DeviceKind::Hardware => pci::read(tree, &at),
        DeviceKind::Software => PciFunction::default(),
    };
    DeviceDescription {
        kind,
        driver,
        iwarp,
        datagram_only,
        pci,
        firmware: tree.read_text(&format!("{at}/fw_ver")).unwrap_or_default(),
        // -1 where there is no NUMA node.
        numa_node: tree.read_number(&format!("{at}/device/numa_node")),
        uverbs,
        access,
        ports,
        name,
    }
}

/// Opens the file like a user of RDMA, and closes it again. Permission bits don't show what a
/// container's device rules forbid.
pub(super) fn probe_access(tree: &HostFileTree, path: &str) -> DeviceFileAccess {
    match OpenOptions::new().read(true).write(true).open(tree.resolve_path(path)) {
        Ok(_) => DeviceFileAccess::Open,
        Err(error) if error.kind() == io::ErrorKind::NotFound => DeviceFileAccess::Missing,
        Err(error) => DeviceFileAccess::Denied(error.to_string()),
    }
}
