//! Owns the description of a host, as far as RDMA depends on it. It is read from sysfs, procfs,
//! /dev and /etc below a root folder.
//!
//! Judges nothing. Unreadable facts are absent: a container hides files, and that is no error here.

mod cgroup;
mod container;
mod device;
mod file_tree;
mod gid_addresses;
mod memory;
mod network;
mod pci;
mod port;
mod process;
mod software;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

pub use cgroup::DeviceCgroupLimit;
pub use device::{DeviceDescription, DeviceFileAccess, DeviceKind};
use file_tree::HostFileTree;
pub use memory::{HostMemoryInfo, HugePages, HugePool};
pub use network::{BondDescription, NetworkDevice};
pub use pci::{IommuMode, PciFunction, PcieLink};
pub use port::{GidKind, GidTableEntry, LinkLayer, PortDataRate, PortDescription, PortState};
pub use process::{MemlockLimit, ProcessLimits};
pub(super) use software::DRIVERS;
pub use software::{UnusedNic, VerbsLibraries};
pub use verbs3_rdma::cpu_affinity::CpuSet;

use super::addresses::DeviceAddresses;

/// The facts of one host that RDMA depends on. A field is empty or `None` where its file can't be
/// read.
#[derive(Debug, Clone, Default)]
pub struct HostDescription {
    pub kernel: String,
    pub modules: BTreeSet<String>,
    pub libraries: VerbsLibraries,
    pub devices: Vec<DeviceDescription>,
    pub netdevs: Vec<NetworkDevice>,
    /// Hardware that could do RDMA, or does nothing else, but is no RDMA device now.
    pub unused: Vec<UnusedNic>,
    /// `/dev/infiniband/rdma_cm`.
    pub connection_manager: DeviceFileAccess,
    pub process: ProcessLimits,
    pub memory: HostMemoryInfo,
    pub huge: HugePages,
    /// Bounds of this process's cgroups on RDMA devices.
    pub device_limits: Vec<DeviceCgroupLimit>,
    /// irqbalance runs, which moves the interrupts of NICs.
    pub irqbalance: bool,
    /// CPUs by NUMA node.
    pub nodes: BTreeMap<u32, CpuSet>,
    /// The evidence that this is a container; `None` outside of one.
    pub container: Option<String>,
    /// Devices that libibverbs lists, or its error; `None` if it was not asked.
    pub listed: Option<Result<BTreeSet<String>, String>>,
}

/// One port of one device, which connections leave by.
#[derive(Debug, Clone, Copy)]
pub struct HostRailView<'a> {
    pub device: &'a DeviceDescription,
    pub port: &'a PortDescription,
}

impl HostDescription {
    /// Reads the host below `root` (`/` for this one). `addresses` are a separate argument, because
    /// no file has them.
    pub fn read(root: &Path, addresses: &DeviceAddresses) -> Self {
        let tree = HostFileTree::new(root);
        let mut netdevs = network::read(&tree, addresses);
        let devices = device::read(&tree, &netdevs);
        gid_addresses::add_gid_addresses(&mut netdevs, &devices);
        let process = process::read(&tree);
        Self {
            kernel: tree.read_text("proc/sys/kernel/osrelease").unwrap_or_default(),
            modules: software::read_modules(&tree),
            libraries: software::find_libraries(&tree),
            unused: software::find_unused_nics(&tree, &devices, &netdevs),
            connection_manager: device::probe_access(&tree, "dev/infiniband/rdma_cm"),
            memory: memory::read(&tree),
            huge: memory::read_huge_pages(&tree),
            device_limits: cgroup::read_device_limits(&tree),
            irqbalance: pci::find_irqbalance(&tree),
            nodes: memory::read_numa_nodes(&tree),
            container: container::find_container_evidence(&tree),
            listed: None,
            process,
            devices,
            netdevs,
        }
    }

    /// Returns every port of every device, in the order of device names and port numbers, usable or
    /// not.
    pub fn all_rails(&self) -> impl Iterator<Item = HostRailView<'_>> {
        self.devices
            .iter()
            .flat_map(|device| device.ports.iter().map(move |port| HostRailView { device, port }))
    }

    /// Returns the network device of this name, if this network namespace has it.
    pub fn find_netdev(&self, name: &str) -> Option<&NetworkDevice> {
        self.netdevs.iter().find(|netdev| netdev.name == name)
    }

    /// Returns the network devices of a rail, and the bond above each: they have its addresses.
    pub fn netdevs_of(&self, rail: HostRailView<'_>) -> Vec<&NetworkDevice> {
        let mut found: Vec<&NetworkDevice> = Vec::new();
        for netdev in rail.port.netdevs.iter().filter_map(|name| self.find_netdev(name)) {
            let above = netdev
                .master
                .as_deref()
                .and_then(|name| self.find_netdev(name))
                .filter(|above| above.bond.is_some());
            for netdev in [Some(netdev), above].into_iter().flatten() {
                if !found.iter().any(|known| known.name == netdev.name) {
                    found.push(netdev);
                }
            }
        }
        found
    }

    /// Returns the addresses that rdma_cm can use on a rail. Link-local ones need a scope that a
    /// configuration doesn't have.
    pub fn addresses_of(&self, rail: HostRailView<'_>) -> Vec<IpAddr> {
        let all =
            self.netdevs_of(rail).into_iter().flat_map(|netdev| netdev.addresses.iter().copied());
        all.filter(|address| !is_link_local(*address)).collect()
    }

    /// Returns true if the kernel module is loaded, or built in as far as that shows.
    pub fn has_module(&self, name: &str) -> bool {
        self.modules.contains(name)
    }
}

impl HostRailView<'_> {
    /// Returns the name, like `mlx5_0/1`.
    pub fn rail_name(&self) -> String {
        format!("{}/{}", self.device.name, self.port.number)
    }

    /// Returns true if RDMA runs over Ethernet as RoCE. iWARP is on Ethernet, too, and is not RoCE.
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
