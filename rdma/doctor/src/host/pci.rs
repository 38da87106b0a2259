//! Owns the facts of the PCI function below an RDMA device: its link, its IOMMU group, the CPUs of
//! its interrupts. Also whether irqbalance moves these.

use super::file_tree::HostFileTree;
use verbs3_rdma::cpu_affinity::CpuSet;

/// The PCI function of an RDMA device, from the folder `device` in its own. It is empty for a
/// device in software.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PciFunction {
    /// Like `0000:03:00.1`; empty if there is no such folder.
    pub address: String,
    /// The link as it came up. `None` where that is not told, as of virtual functions.
    pub link: Option<PcieLink>,
    /// The fastest link that the card can have.
    pub link_max: Option<PcieLink>,
    pub iommu: IommuMode,
    /// CPUs of its NUMA node, as the device says; empty if unknown.
    pub near_cpus: CpuSet,
    /// The CPUs of each of its interrupts (MSI), as far as they can be read.
    pub interrupt_cpus: Vec<CpuSet>,
}

/// A PCIe link: its lanes, and how fast each of them is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PcieLink {
    pub lanes: u32,
    /// Transfers of a lane, in GT/s.
    pub transfers: f64,
}

/// What the IOMMU does with the addresses that a device uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum IommuMode {
    /// No IOMMU is in between.
    Absent,
    /// It passes them on (`identity`).
    Identity,
    /// It translates each, with the group's type: `DMA` or `DMA-FQ`.
    Translating(String),
    #[default]
    Unknown,
}

/// Most lanes of a link (PCIe base specification). The kernel writes 255 for an unknown number.
const LANES_MAX: u32 = 32;
/// Speeds of a lane in GT/s, from PCIe 1.0 (2.5) to well above 7.0 (128).
const TRANSFERS: std::ops::RangeInclusive<f64> = 1.0..=1024.0;

/// Reads the function. `device` is the RDMA device's folder.
pub(super) fn read(tree: &HostFileTree, device: &str) -> PciFunction {
    let at = format!("{device}/device");
    PciFunction {
        address: tree.link_target(&at).unwrap_or_default(),
        link: read_link(tree, &at, "current"),
        link_max: read_link(tree, &at, "max"),
        iommu: read_iommu(tree, &at),
        near_cpus: read_cpus(tree, &format!("{at}/local_cpulist")).unwrap_or_default(),
        interrupt_cpus: read_interrupts(tree, &at),
    }
}

/// Reads `current_link_speed` and `current_link_width`, or those of `max`: `16.0 GT/s PCIe`, 16.
fn read_link(tree: &HostFileTree, at: &str, which: &str) -> Option<PcieLink> {
    let lanes = tree.read_number(&format!("{at}/{which}_link_width"))?;
    let speed = tree.read_text(&format!("{at}/{which}_link_speed"))?;
    let (transfers, unit) = speed.split_once(' ')?;
    let transfers: f64 = transfers.parse().ok()?;
    let known = (1..=LANES_MAX).contains(&lanes) && TRANSFERS.contains(&transfers);
    let known = known && unit.starts_with("GT/s");
    known.then_some(PcieLink { lanes, transfers })
}

fn read_iommu(tree: &HostFileTree, at: &str) -> IommuMode {
    if !tree.path_exists(at) {
        return IommuMode::Unknown;
    }
    // The link is there even where a container hides what it leads to.
    if tree.link_target(&format!("{at}/iommu_group")).is_none() {
        return IommuMode::Absent;
    }
    match tree.read_text(&format!("{at}/iommu_group/type")).as_deref() {
        Some("identity") => IommuMode::Identity,
        Some(kind @ ("DMA" | "DMA-FQ")) => IommuMode::Translating(kind.to_owned()),
        _ => IommuMode::Unknown,
    }
}

/// Reads where each interrupt is taken, or else where it may be: kernels without the first file
/// have the second.
fn read_interrupts(tree: &HostFileTree, at: &str) -> Vec<CpuSet> {
    let numbers = tree.list_names(&format!("{at}/msi_irqs")).into_iter();
    let cpus = |number: u32| {
        let files = ["effective_affinity_list", "smp_affinity_list"];
        files.iter().find_map(|file| read_cpus(tree, &format!("proc/irq/{number}/{file}")))
    };
    numbers.filter_map(|number| cpus(number.parse().ok()?)).collect()
}

fn read_cpus(tree: &HostFileTree, path: &str) -> Option<CpuSet> {
    Some(CpuSet::parse(&tree.read_text(path)?)).filter(|cpus| !cpus.is_empty())
}

/// Returns true if irqbalance runs: its folder is there, or its process.
pub(super) fn find_irqbalance(tree: &HostFileTree) -> bool {
    let is_it = |name: &String| {
        name.starts_with(|first: char| first.is_ascii_digit())
            && tree.read_text(&format!("proc/{name}/comm")).as_deref() == Some("irqbalance")
    };
    tree.path_exists("run/irqbalance") || tree.list_names("proc").iter().any(is_it)
}

impl PciFunction {
    /// Returns the address of the card: the functions of one card share its slot and its link.
    pub fn card_address(&self) -> &str {
        self.address.split_once('.').map_or(self.address.as_str(), |(card, _)| card)
    }
}

impl PcieLink {
    /// Returns Gb/s of the link: 8b/10b up to 5 GT/s, 128b/130b from 8 GT/s on. PCIe's own packets
    /// take some of it.
    pub fn gbits(self) -> f64 {
        let coding = if self.transfers > 5.0 { 128.0 / 130.0 } else { 0.8 };
        self.transfers * coding * f64::from(self.lanes)
    }
}

impl std::fmt::Display for PcieLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} GT/s × {} ({:.0} Gb/s)", self.transfers, self.lanes, self.gbits())
    }
}
