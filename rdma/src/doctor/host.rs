//! A description of the host, as far as RDMA depends on it, read from sysfs, procfs, /dev and /etc
//! below a root folder.
//!
//! Judges nothing. What can't be read is absent: a container hides files, and that is no error
//! here.

mod container;
mod device;
mod memory;
mod network;
mod port;
mod process;
mod software;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

pub use device::{Access, Device, DeviceKind};
pub use memory::{HugePages, HugePool, Memory};
pub use network::{Bond, Netdev};
pub use port::{Gid, GidKind, LinkLayer, Port, PortState, Rate};
pub use process::{CpuSet, Limit, Process};
pub(super) use software::DRIVERS;
pub use software::{Libraries, UnusedNic};
use tree::Tree;

use super::addresses::Addresses;

#[derive(Debug, Clone, Default)]
pub struct Host {
    pub kernel: String,
    pub modules: BTreeSet<String>,
    pub libraries: Libraries,
    pub devices: Vec<Device>,
    pub netdevs: Vec<Netdev>,
    /// Hardware that could do RDMA, or does nothing else, and is no RDMA device now.
    pub unused: Vec<UnusedNic>,
    /// `/dev/infiniband/rdma_cm`.
    pub connection_manager: Access,
    pub process: Process,
    pub memory: Memory,
    pub huge: HugePages,
    /// CPUs by NUMA node.
    pub nodes: BTreeMap<u32, CpuSet>,
    /// How it is known that this is a container; `None` outside.
    pub container: Option<String>,
    /// Devices that libibverbs lists, or its complaint; `None` if it was not asked.
    pub listed: Option<Result<BTreeSet<String>, String>>,
}

/// One port of one device: what a connection goes out of.
#[derive(Debug, Clone, Copy)]
pub struct Rail<'a> {
    pub device: &'a Device,
    pub port: &'a Port,
}

impl Host {
    /// Reads the host below `root` (`/` for this one). `addresses` come beside it, because no file
    /// has them.
    pub fn read(root: &Path, addresses: &Addresses) -> Self {
        let tree = Tree::new(root);
        let mut netdevs = network::read(&tree, addresses);
        let devices = device::read(&tree, &netdevs);
        network::add_gid_addresses(&mut netdevs, &devices);
        let process = process::read(&tree);
        Self {
            kernel: tree.text("proc/sys/kernel/osrelease").unwrap_or_default(),
            modules: software::modules(&tree),
            libraries: software::libraries(&tree),
            unused: software::unused(&tree, &devices, &netdevs),
            connection_manager: device::access(&tree, "dev/infiniband/rdma_cm"),
            memory: memory::read(&tree),
            huge: memory::huge(&tree),
            nodes: memory::nodes(&tree),
            container: container::evidence(&tree),
            listed: None,
            process,
            devices,
            netdevs,
        }
    }

    pub fn rails(&self) -> impl Iterator<Item = Rail<'_>> {
        self.devices
            .iter()
            .flat_map(|device| device.ports.iter().map(move |port| Rail { device, port }))
    }

    pub fn netdev(&self, name: &str) -> Option<&Netdev> {
        self.netdevs.iter().find(|netdev| netdev.name == name)
    }

    /// The network devices of a rail, and the bond above each: where its addresses are.
    pub fn netdevs_of(&self, rail: Rail<'_>) -> Vec<&Netdev> {
        let mut found: Vec<&Netdev> = Vec::new();
        for netdev in rail.port.netdevs.iter().filter_map(|name| self.netdev(name)) {
            let above = netdev
                .master
                .as_deref()
                .and_then(|name| self.netdev(name))
                .filter(|above| above.bond.is_some());
            for netdev in [Some(netdev), above].into_iter().flatten() {
                if !found.iter().any(|known| known.name == netdev.name) {
                    found.push(netdev);
                }
            }
        }
        found
    }

    /// Addresses that rdma_cm can use on a rail. Link-local ones need a scope that a configuration
    /// doesn't have.
    pub fn addresses_of(&self, rail: Rail<'_>) -> Vec<IpAddr> {
        let all =
            self.netdevs_of(rail).into_iter().flat_map(|netdev| netdev.addresses.iter().copied());
        all.filter(|address| !is_link_local(*address)).collect()
    }

    pub fn module(&self, name: &str) -> bool {
        self.modules.contains(name)
    }
}

impl Rail<'_> {
    /// `mlx5_0/1`
    pub fn name(&self) -> String {
        format!("{}/{}", self.device.name, self.port.number)
    }

    pub fn is_roce(&self) -> bool {
        self.port.link_layer == LinkLayer::Ethernet && !self.device.iwarp
    }
}

pub(super) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
