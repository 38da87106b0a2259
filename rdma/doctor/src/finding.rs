//! Owns findings: one examined thing each, and how bad it is.

use std::fmt;

/// The severity of a finding. The exit status of `verbs3 doctor` is that of the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingSeverity {
    /// Nothing to do; there may be advice.
    Ok,
    /// It works, and could work better.
    Warn,
    /// RDMA is here and can't be used, or a process with this configuration will be killed.
    Fail,
}

/// The kind of check. The names are part of the JSON schema: they don't change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostCheckKind {
    Transport,
    Modules,
    Libraries,
    Access,
    Port,
    Rate,
    Gid,
    Address,
    Mtu,
    Pkey,
    Ipoib,
    Memlock,
    HugePages,
    Numa,
    Container,
    MemoryLimit,
    RdmaLimit,
    Bonding,
    Counters,
    Pcie,
    Iommu,
    Interrupts,
    Peer,
}

/// A finding: what was seen, why it matters and how to mend it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFinding {
    pub check: HostCheckKind,
    /// The device, port (`mlx5_0/1`), netdev or file that it is about.
    pub subject: String,
    pub severity: FindingSeverity,
    pub seen: String,
    /// Empty where there is nothing to say.
    pub why: String,
    /// A command, or a file and what to write there. Every warning and failure has one.
    pub remedy: Option<String>,
}

impl FindingSeverity {
    /// Returns the name in JSON and in print.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }

    /// Returns the exit status: 0 all well, 1 warnings, 2 failures.
    pub fn exit_status(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Warn => 1,
            Self::Fail => 2,
        }
    }
}

impl fmt::Display for FindingSeverity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl HostCheckKind {
    /// Returns the name in JSON and in print.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transport => "transport",
            Self::Modules => "modules",
            Self::Libraries => "libraries",
            Self::Access => "access",
            Self::Port => "port",
            Self::Rate => "rate",
            Self::Gid => "gid",
            Self::Address => "address",
            Self::Mtu => "mtu",
            Self::Pkey => "pkey",
            Self::Ipoib => "ipoib",
            Self::Memlock => "memlock",
            Self::HugePages => "huge_pages",
            Self::Numa => "numa",
            Self::Container => "container",
            Self::MemoryLimit => "memory_limit",
            Self::RdmaLimit => "rdma_limit",
            Self::Bonding => "bonding",
            Self::Counters => "counters",
            Self::Pcie => "pcie",
            Self::Iommu => "iommu",
            Self::Interrupts => "interrupts",
            Self::Peer => "peer",
        }
    }
}

impl fmt::Display for HostCheckKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl HostFinding {
    pub(super) fn new_ok(
        check: HostCheckKind,
        subject: impl Into<String>,
        seen: impl Into<String>,
    ) -> Self {
        let (subject, seen) = (subject.into(), seen.into());
        Self {
            check,
            subject,
            severity: FindingSeverity::Ok,
            seen,
            why: String::new(),
            remedy: None,
        }
    }

    pub(super) fn new_warning(
        check: HostCheckKind,
        subject: impl Into<String>,
        seen: impl Into<String>,
    ) -> IncompleteFinding {
        IncompleteFinding(Self {
            severity: FindingSeverity::Warn,
            ..Self::new_ok(check, subject, seen)
        })
    }

    pub(super) fn new_failure(
        check: HostCheckKind,
        subject: impl Into<String>,
        seen: impl Into<String>,
    ) -> IncompleteFinding {
        IncompleteFinding(Self {
            severity: FindingSeverity::Fail,
            ..Self::new_ok(check, subject, seen)
        })
    }

    /// Adds advice to something that is fine.
    pub(super) fn with_advice(self, why: impl Into<String>) -> Self {
        Self { why: why.into(), ..self }
    }

    /// Adds an optional remedy.
    pub(super) fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }
}

/// A warning or failure that becomes a finding once it has a reason and a remedy.
#[must_use]
pub(super) struct IncompleteFinding(HostFinding);

impl IncompleteFinding {
    pub(super) fn with_explanation(
        self,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> HostFinding {
        self.0.with_advice(why).with_remedy(remedy)
    }
}

/// Returns the worst severity of all findings.
pub fn worst_severity(findings: &[HostFinding]) -> FindingSeverity {
    findings.iter().map(|finding| finding.severity).max().unwrap_or(FindingSeverity::Ok)
}
