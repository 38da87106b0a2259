//! Kernel modules and user libraries, and which of them belong to which NIC.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::device::Device;
use super::network::Netdev;
use super::tree::Tree;

#[derive(Debug, Clone, Default)]
pub struct Libraries {
    /// libibverbs.so.1
    pub ibverbs: Option<PathBuf>,
    /// librdmacm.so.1
    pub rdmacm: Option<PathBuf>,
    /// Providers that are both installed and listed in `/etc/libibverbs.d`: `mlx5`, `rxe`.
    pub providers: BTreeSet<String>,
}

/// Hardware without an RDMA device on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusedNic {
    /// Network device, or PCI address.
    pub name: String,
    pub driver: Option<String>,
    /// Module that would make it an RDMA device, if known.
    pub module: Option<&'static str>,
    /// A controller that does nothing but RDMA (PCI class 0207).
    pub only_rdma: bool,
}

/// What belongs together for one family of NICs.
pub(in crate::doctor) struct Driver {
    /// Driver of the hardware, as sysfs names it.
    pub hardware: &'static str,
    /// Module that adds RDMA.
    pub module: &'static str,
    /// Library `lib<provider>-rdmav*.so` of libibverbs.
    pub provider: &'static str,
    /// Every NIC of this driver can do RDMA; false where only some models can.
    pub always: bool,
}

const fn driver(
    hardware: &'static str,
    module: &'static str,
    provider: &'static str,
    always: bool,
) -> Driver {
    Driver { hardware, module, provider, always }
}

/// From rdma-core's `providers/` and the kernel's `drivers/infiniband/hw/`; look again when either
/// gains one.
pub(in crate::doctor) const DRIVERS: [Driver; 15] = [
    driver("mlx5_core", "mlx5_ib", "mlx5", true),
    driver("mlx4_core", "mlx4_ib", "mlx4", true),
    driver("bnxt_en", "bnxt_re", "bnxt_re", false),
    driver("ice", "irdma", "irdma", true),
    driver("i40e", "irdma", "irdma", false),
    driver("cxgb4", "iw_cxgb4", "cxgb4", true),
    driver("hns3", "hns_roce_hw_v2", "hns", false),
    driver("qede", "qedr", "qedr", false),
    driver("mana", "mana_ib", "mana", false),
    driver("efa", "efa", "efa", true),
    driver("erdma", "erdma", "erdma", true),
    driver("hfi1", "hfi1", "hfi1verbs", true),
    driver("vmw_pvrdma", "vmw_pvrdma", "vmw_pvrdma", true),
    driver("rdma_rxe", "rdma_rxe", "rxe", true),
    driver("siw", "siw", "siw", true),
];

/// Where loaders look besides `/etc/ld.so.conf*`.
const LIBRARY_FOLDERS: [&str; 7] = [
    "lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "usr/lib64",
    "usr/lib",
];

/// Loaded ones, and built-in ones as far as they show.
pub(super) fn modules(tree: &Tree) -> BTreeSet<String> {
    let loaded = tree.text("proc/modules").unwrap_or_default();
    let mut modules: BTreeSet<_> =
        loaded.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    modules.extend(tree.names("sys/module"));
    // A built-in module without parameters has no folder; what it made has.
    for (path, module) in [
        ("sys/class/infiniband", "ib_core"),
        ("sys/class/infiniband_verbs", "ib_uverbs"),
        ("sys/class/misc/rdma_cm", "rdma_ucm"),
    ] {
        if tree.exists(path) {
            modules.insert(module.to_owned());
        }
    }
    modules
}

pub(super) fn libraries(tree: &Tree) -> Libraries {
    let folders = library_folders(tree);
    let library = |name: &str| {
        let mut paths = folders.iter().map(|folder| format!("{folder}/{name}"));
        paths.find(|path| tree.exists(path)).map(|path| PathBuf::from(format!("/{path}")))
    };
    let configured: BTreeSet<String> = tree
        .names("etc/libibverbs.d")
        .iter()
        .filter_map(|file| tree.text(&format!("etc/libibverbs.d/{file}")))
        .flat_map(|text| {
            text.lines()
                .filter_map(|line| Some(line.strip_prefix("driver")?.trim().to_owned()))
                .collect::<Vec<_>>()
        })
        .collect();
    let installed: BTreeSet<String> = folders
        .iter()
        .flat_map(|folder| tree.names(&format!("{folder}/libibverbs")))
        .filter_map(|file| Some(file.strip_prefix("lib")?.split_once("-rdmav")?.0.to_owned()))
        .collect();
    Libraries {
        ibverbs: library("libibverbs.so.1"),
        rdmacm: library("librdmacm.so.1"),
        // A configured path ("driver /opt/x/libfoo") names its library itself.
        providers: configured
            .iter()
            .map(|name| {
                name.rsplit('/').next().unwrap_or(name).trim_start_matches("lib").to_owned()
            })
            .filter(|name| {
                installed.contains(name)
                    || configured.iter().any(|path| path.contains('/') && path.ends_with(name))
            })
            .collect(),
    }
}

fn library_folders(tree: &Tree) -> Vec<String> {
    let mut folders: Vec<String> =
        LIBRARY_FOLDERS.iter().map(|&folder| folder.to_owned()).collect();
    let files =
        tree.names("etc/ld.so.conf.d").into_iter().map(|name| format!("etc/ld.so.conf.d/{name}"));
    for file in files.chain(["etc/ld.so.conf".to_owned()]) {
        let text = tree.text(&file).unwrap_or_default();
        let paths = text.lines().map(str::trim).filter(|line| line.starts_with('/'));
        folders.extend(paths.map(|path| path.trim_matches('/').to_owned()));
    }
    folders
}

/// Network devices whose driver has an RDMA side that shows no device, and InfiniBand controllers
/// without one.
pub(super) fn unused(tree: &Tree, devices: &[Device], netdevs: &[Netdev]) -> Vec<UnusedNic> {
    let used: Vec<PathBuf> = devices
        .iter()
        .filter_map(|device| tree.real(&format!("sys/class/infiniband/{}/device", device.name)))
        .collect();
    let mut unused = Vec::new();
    for netdev in netdevs
        .iter()
        .filter(|netdev| netdev.hardware.as_ref().is_some_and(|at| !used.contains(at)))
    {
        let known = DRIVERS
            .iter()
            .find(|known| known.always && Some(known.hardware) == netdev.driver.as_deref());
        if let Some(known) = known {
            let (name, driver) = (netdev.name.clone(), netdev.driver.clone());
            unused.push(UnusedNic { name, driver, module: Some(known.module), only_rdma: false });
        }
    }
    for name in tree.names("sys/bus/pci/devices") {
        let at = format!("sys/bus/pci/devices/{name}");
        let infiniband =
            tree.text(&format!("{at}/class")).is_some_and(|class| class.starts_with("0x0207"));
        if infiniband && tree.real(&at).is_none_or(|real| !used.contains(&real)) {
            let driver = tree.link(&format!("{at}/driver"));
            let module = DRIVERS
                .iter()
                .find(|known| Some(known.hardware) == driver.as_deref())
                .map(|known| known.module);
            unused.push(UnusedNic { name, driver, module, only_rdma: true });
        }
    }
    unused
}
