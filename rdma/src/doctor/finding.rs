//! One thing that was looked at, and how bad it is.

use std::fmt;

/// How bad a finding is. The exit status of `verbs3 doctor` is that of the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing to do; there may be advice.
    Ok,
    /// It works, and could work better.
    Warn,
    /// RDMA is here and can't be used, or a process with this configuration won't live.
    Fail,
}

/// What was looked at. The names are part of the JSON schema: they don't change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
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
    Bonding,
    Counters,
    Peer,
}

/// What was seen, why it matters and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub check: Check,
    /// The device, port (`mlx5_0/1`), netdev or file that it is about.
    pub subject: String,
    pub severity: Severity,
    pub seen: String,
    /// Empty where there is nothing to say.
    pub why: String,
    /// A command, or a file and what to write there. Every warning and failure has one.
    pub remedy: Option<String>,
}

impl Severity {
    /// As in JSON and in print.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }

    /// 0 all well, 1 warnings, 2 failures.
    pub fn exit_status(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Warn => 1,
            Self::Fail => 2,
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Check {
    /// As in JSON and in print.
    pub fn name(self) -> &'static str {
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
            Self::Bonding => "bonding",
            Self::Counters => "counters",
            Self::Peer => "peer",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Finding {
    pub(super) fn ok(check: Check, subject: impl Into<String>, seen: impl Into<String>) -> Self {
        let (subject, seen) = (subject.into(), seen.into());
        Self { check, subject, severity: Severity::Ok, seen, why: String::new(), remedy: None }
    }

    pub(super) fn warn(check: Check, subject: impl Into<String>, seen: impl Into<String>) -> Bad {
        Bad(Self { severity: Severity::Warn, ..Self::ok(check, subject, seen) })
    }

    pub(super) fn fail(check: Check, subject: impl Into<String>, seen: impl Into<String>) -> Bad {
        Bad(Self { severity: Severity::Fail, ..Self::ok(check, subject, seen) })
    }

    /// Advice beside something that is fine.
    pub(super) fn advice(self, why: impl Into<String>) -> Self {
        Self { why: why.into(), ..self }
    }

    /// What could be done, though nothing must be.
    pub(super) fn option(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }
}

/// A warning or failure that is no finding until it has a reason and a remedy.
#[must_use]
pub(super) struct Bad(Finding);

impl Bad {
    pub(super) fn remedy(self, why: impl Into<String>, remedy: impl Into<String>) -> Finding {
        self.0.advice(why).option(remedy)
    }
}

/// The worst of all.
pub fn verdict(findings: &[Finding]) -> Severity {
    findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
}
