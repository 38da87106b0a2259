//! Owns the facts of kernel modules and user libraries, and which of them belong to which NIC.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::device::DeviceDescription;
use super::file_tree::HostFileTree;
use super::network::NetworkDevice;

/// The user libraries that verbs need. A path is `None` where the loader's folders don't have it.
#[derive(Debug, Clone, Default)]
pub struct VerbsLibraries {
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

/// Drivers, module and library of one family of NICs.
pub(crate) struct NicDriverFamily {
    /// Driver of the hardware, as sysfs names it.
    pub hardware: &'static str,
    /// Module that adds RDMA.
    pub module: &'static str,
    /// Library `lib<provider>-rdmav*.so` of libibverbs.
    pub provider: &'static str,
    /// Every NIC of this driver can do RDMA; false where only some models can.
    pub always: bool,
}

const fn driver_family(
    hardware: &'static str,
    module: &'static str,
    provider: &'static str,
    always: bool,
) -> NicDriverFamily {
    NicDriverFamily { hardware, module, provider, always }
}

/// All families, from rdma-core's `providers/` and the kernel's `drivers/infiniband/hw/`. Check
/// again when either gains one.
pub(crate) const DRIVERS: [NicDriverFamily; 15] = [
    driver_family("mlx5_core", "mlx5_ib", "mlx5", true),
    driver_family("mlx4_core", "mlx4_ib", "mlx4", true),
    driver_family("bnxt_en", "bnxt_re", "bnxt_re", false),
    driver_family("ice", "irdma", "irdma", true),
    driver_family("i40e", "irdma", "irdma", false),
    driver_family("cxgb4", "iw_cxgb4", "cxgb4", true),
    driver_family("hns3", "hns_roce_hw_v2", "hns", false),
    driver_family("qede", "qedr", "qedr", false),
    driver_family("mana", "mana_ib", "mana", false),
    driver_family("efa", "efa", "efa", true),
    driver_family("erdma", "erdma", "erdma", true),
    driver_family("hfi1", "hfi1", "hfi1verbs", true),
    driver_family("vmw_pvrdma", "vmw_pvrdma", "vmw_pvrdma", true),
    driver_family("rdma_rxe", "rdma_rxe", "rxe", true),
    driver_family("siw", "siw", "siw", true),
];

/// Folders that loaders search besides `/etc/ld.so.conf*`.
const LIBRARY_FOLDERS: [&str; 7] = [
    "lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "usr/lib64",
    "usr/lib",
];

/// Reads the loaded modules, and built-in ones as far as they show.
pub(super) fn read_modules(tree: &HostFileTree) -> BTreeSet<String> {
    let loaded = tree.read_text("proc/modules").unwrap_or_default();
    let mut modules: BTreeSet<_> =
        loaded.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    modules.extend(tree.list_names("sys/module"));
    // A built-in module without parameters has no folder, but its class has one.
    for (path, module) in [
        ("sys/class/infiniband", "ib_core"),
        ("sys/class/infiniband_verbs", "ib_uverbs"),
        ("sys/class/misc/rdma_cm", "rdma_ucm"),
    ] {
        if tree.path_exists(path) {
            modules.insert(module.to_owned());
        }
    }
    modules
}

pub(super) fn find_libraries(tree: &HostFileTree) -> VerbsLibraries {
    let folders = library_folders(tree);
    let library = |name: &str| {
        let mut paths = folders.iter().map(|folder| format!("{folder}/{name}"));
        paths.find(|path| tree.path_exists(path)).map(|path| PathBuf::from(format!("/{path}")))
    };
    let configured: BTreeSet<String> = tree
        .list_names("etc/libibverbs.d")
        .iter()
        .filter_map(|file| tree.read_text(&format!("etc/libibverbs.d/{file}")))
        .flat_map(|text| {
            text.lines()
                .filter_map(|line| Some(line.strip_prefix("driver")?.trim().to_owned()))
                .collect::<Vec<_>>()
        })
        .collect();
    let installed: BTreeSet<String> = folders
        .iter()
        .flat_map(|folder| tree.list_names(&format!("{folder}/libibverbs")))
        .filter_map(|file| Some(file.strip_prefix("lib")?.split_once("-rdmav")?.0.to_owned()))
        .collect();
    VerbsLibraries {
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

fn library_folders(tree: &HostFileTree) -> Vec<String> {
    let mut folders: Vec<String> =
        LIBRARY_FOLDERS.iter().map(|&folder| folder.to_owned()).collect();
    let files = tree
        .list_names("etc/ld.so.conf.d")
        .into_iter()
        .map(|name| format!("etc/ld.so.conf.d/{name}"));
    for file in files.chain(["etc/ld.so.conf".to_owned()]) {
        let text = tree.read_text(&file).unwrap_or_default();
        let paths = text.lines().map(str::trim).filter(|line| line.starts_with('/'));
        folders.extend(paths.map(|path| path.trim_matches('/').to_owned()));
    }
    folders
}

/// Finds network devices whose driver has an RDMA side but no RDMA device. Also finds InfiniBand
/// controllers without one.
pub(super) fn find_unused_nics(
    tree: &HostFileTree,
    devices: &[DeviceDescription],
    netdevs: &[NetworkDevice],
) -> Vec<UnusedNic> {
    let used: Vec<PathBuf> = devices
        .iter()
        .filter_map(|device| {
            tree.canonical_path(&format!("sys/class/infiniband/{}/device", device.name))
        })
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
    for name in tree.list_names("sys/bus/pci/devices") {
        let at = format!("sys/bus/pci/devices/{name}");
        let infiniband =
            tree.read_text(&format!("{at}/class")).is_some_and(|class| class.starts_with("0x0207"));
        if infiniband && tree.canonical_path(&at).is_none_or(|real| !used.contains(&real)) {
            let driver = tree.link_target(&format!("{at}/driver"));
            let module = DRIVERS
                .iter()
                .find(|known| Some(known.hardware) == driver.as_deref())
                .map(|known| known.module);
            unused.push(UnusedNic { name, driver, module, only_rdma: true });
        }
    }
    unused
}
