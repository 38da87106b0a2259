//! Hosts of test trees: files below a temporary folder, unpacked from `fixtures/*.tree` and then
//! changed.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::addresses::Addresses;
use super::check::{Needs, examine};
use super::finding::{Check, Finding, Severity};
use super::host::Host;

pub(super) struct Fake {
    pub(super) folder: tempfile::TempDir,
    pub(super) addresses: Addresses,
    pub(super) needs: Needs,
    /// What libibverbs lists.
    pub(super) listed: Option<Result<Vec<&'static str>, &'static str>>,
    /// What the devices report as their active MTU.
    pub(super) active_mtu: Option<u32>,
}

impl Fake {
    /// Two healthy ports: InfiniBand `mlx5_0/1` with `ib0`, RoCE `mlx5_1/1` with `eth2`.
    pub(super) fn mlx5() -> Self {
        let fake = Self::new(include_str!("fixtures/mlx5.tree"));
        let ip = |text: &str| vec![text.parse::<IpAddr>().unwrap()];
        let addresses =
            [("ib0", ip("10.1.0.7")), ("eth2", ip("10.2.0.7")), ("lo", ip("127.0.0.1"))];
        Self {
            addresses: addresses.into_iter().map(|(name, all)| (name.to_owned(), all)).collect(),
            ..fake
        }
    }

    pub(super) fn rxe() -> Self {
        Self::new(include_str!("fixtures/rxe.tree"))
    }

    pub(super) fn bare() -> Self {
        Self::new(include_str!("fixtures/bare.tree"))
    }

    fn new(tree: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (needs, addresses) = (Needs::default(), Addresses::new());
        let fake = Self { folder, addresses, needs, listed: None, active_mtu: None };
        for line in tree.lines().filter(|line| !line.starts_with('#')) {
            if let Some((path, target)) = line.split_once(" -> ") {
                fake.link(path, target);
            } else if let Some((path, text)) = line.split_once(" =") {
                fake.set(path, &text.trim_start().replace("\\n", "\n").replace("\\t", "\t"));
            }
        }
        fake
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn set(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    pub(super) fn link(&self, path: &str, target: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    pub(super) fn remove(&self, path: &str) {
        let path = self.path().join(path);
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(path).unwrap()
        } else {
            fs::remove_file(path).unwrap()
        }
    }

    pub(super) fn host(&self) -> Host {
        let mut host = Host::read(self.path(), &self.addresses);
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

    pub(super) fn findings(&self) -> Vec<Finding> {
        examine(&self.host(), &self.needs)
    }

    /// The finding about something, the worst if there are several.
    pub(super) fn about(&self, check: Check, subject: &str) -> Option<Finding> {
        let about = |finding: &Finding| finding.check == check && finding.subject == subject;
        self.findings().into_iter().filter(about).max_by_key(|finding| finding.severity)
    }
}

/// A change must make a finding of `severity` that says `said`; without the change, there must be
/// none.
pub(super) struct Control<'a> {
    pub(super) healthy: fn() -> Fake,
    pub(super) check: Check,
    pub(super) subject: &'a str,
    pub(super) severity: Severity,
    pub(super) said: &'a str,
}

impl Control<'_> {
    pub(super) fn holds_after(&self, change: impl FnOnce(&mut Fake)) {
        let mut fake = (self.healthy)();
        let (check, subject) = (self.check, self.subject);
        if let Some(before) = fake.about(check, subject) {
            assert_eq!(
                before.severity,
                Severity::Ok,
                "must not fire on a healthy host: {before:?}"
            );
        }
        change(&mut fake);
        let after = fake.about(check, subject).unwrap_or_else(|| {
            panic!("nothing about {check} of {subject}: {:#?}", fake.findings())
        });
        assert_eq!(after.severity, self.severity, "{after:?}");
        assert!(after.seen.contains(self.said), "{:?} is not in {after:?}", self.said);
        assert!(
            after.severity == Severity::Ok || (!after.why.is_empty() && after.remedy.is_some()),
            "{after:?}"
        );
    }
}
