//! Owns hosts of test trees: files below a temporary folder, unpacked from `fixtures/*.tree` and
//! then changed.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::addresses::DeviceAddresses;
use super::check::{HostRequirements, examine_host};
use super::finding::{FindingSeverity, HostCheckKind, HostFinding};
use super::host::HostDescription;

pub(super) struct FakeHostTree {
    pub(super) folder: tempfile::TempDir,
    pub(super) addresses: DeviceAddresses,
    pub(super) needs: HostRequirements,
    /// Devices that libibverbs lists.
    pub(super) listed: Option<Result<Vec<&'static str>, &'static str>>,
    /// The active MTU that the devices report.
    pub(super) active_mtu: Option<u32>,
}

impl FakeHostTree {
    /// Makes a host with two healthy ports: InfiniBand `mlx5_0/1` with `ib0`, RoCE `mlx5_1/1` with
    /// `eth2`.
    pub(super) fn mlx5_host() -> Self {
        let fake = Self::new(include_str!("../fixtures/mlx5.tree"));
        let ip = |text: &str| vec![text.parse::<IpAddr>().unwrap()];
        let addresses =
            [("ib0", ip("10.1.0.7")), ("eth2", ip("10.2.0.7")), ("lo", ip("127.0.0.1"))];
        Self {
            addresses: addresses.into_iter().map(|(name, all)| (name.to_owned(), all)).collect(),
            ..fake
        }
    }

    pub(super) fn soft_roce_host() -> Self {
        Self::new(include_str!("../fixtures/rxe.tree"))
    }

    /// Makes a host whose one RDMA device, `rdmap0s6`, makes no reliable connections.
    pub(super) fn efa_host() -> Self {
        let fake = Self::new(include_str!("../fixtures/efa.tree"));
        let addresses = [("ens5".to_owned(), vec!["10.3.0.7".parse::<IpAddr>().unwrap()])];
        Self { addresses: addresses.into(), ..fake }
    }

    pub(super) fn bare_host() -> Self {
        Self::new(include_str!("../fixtures/bare.tree"))
    }

    fn new(tree: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (needs, addresses) = (HostRequirements::default(), DeviceAddresses::new());
        let fake = Self { folder, addresses, needs, listed: None, active_mtu: None };
        for line in tree.lines().filter(|line| !line.starts_with('#')) {
            if let Some((path, target)) = line.split_once(" -> ") {
                fake.link_file(path, target);
            } else if let Some((path, text)) = line.split_once(" =") {
                fake.write_file(path, &text.trim_start().replace("\\n", "\n").replace("\\t", "\t"));
            }
        }
        fake
    }

    pub(super) fn root_path(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn write_file(&self, path: &str, text: &str) {
        let path = self.root_path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    pub(super) fn link_file(&self, path: &str, target: &str) {
        let path = self.root_path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    pub(super) fn remove_path(&self, path: &str) {
        let path = self.root_path().join(path);
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(path).unwrap()
        } else {
            fs::remove_file(path).unwrap()
        }
    }

    pub(super) fn read_host(&self) -> HostDescription {
        let mut host = HostDescription::read(self.root_path(), &self.addresses);
        let names = |names: &Vec<&str>| names.iter().map(|name| (*name).to_owned()).collect();
        host.listed = self
            .listed
            .as_ref()
            .map(|listed| listed.as_ref().map(names).map_err(|error| (*error).to_owned()));
        for port in host.devices.iter_mut().flat_map(|device| &mut device.ports) {
            port.active_mtu = self.active_mtu;
        }
        host
    }

    pub(super) fn examine_tree(&self) -> Vec<HostFinding> {
        examine_host(&self.read_host(), &self.needs)
    }

    /// Returns the finding about `subject`, the worst if there are several.
    pub(super) fn worst_finding(&self, check: HostCheckKind, subject: &str) -> Option<HostFinding> {
        let about = |finding: &HostFinding| finding.check == check && finding.subject == subject;
        self.examine_tree().into_iter().filter(about).max_by_key(|finding| finding.severity)
    }
}

/// An expected finding. A change must make a finding of `severity` that says `said`; without the
/// change, there must be none.
pub(super) struct FindingExpectation<'a> {
    pub(super) healthy: fn() -> FakeHostTree,
    pub(super) check: HostCheckKind,
    pub(super) subject: &'a str,
    pub(super) severity: FindingSeverity,
    pub(super) said: &'a str,
}

impl FindingExpectation<'_> {
    pub(super) fn holds_after(&self, change: impl FnOnce(&mut FakeHostTree)) {
        let mut fake = (self.healthy)();
        let (check, subject) = (self.check, self.subject);
        if let Some(before) = fake.worst_finding(check, subject) {
            assert_eq!(
                before.severity,
                FindingSeverity::Ok,
                "must not fire on a healthy host: {before:?}"
            );
        }
        change(&mut fake);
        let after = fake.worst_finding(check, subject).unwrap_or_else(|| {
            panic!("nothing about {check} of {subject}: {:#?}", fake.examine_tree())
        });
        assert_eq!(after.severity, self.severity, "{after:?}");
        assert!(after.seen.contains(self.said), "{:?} is not in {after:?}", self.said);
        assert!(
            after.severity == FindingSeverity::Ok
                || (!after.why.is_empty() && after.remedy.is_some()),
            "{after:?}"
        );
    }
}
