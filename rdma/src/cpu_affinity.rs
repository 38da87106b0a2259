//! Owns sets of CPUs, and on which CPUs a thread may run.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

/// Ranges of CPU numbers, ends included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuSet(Vec<(u32, u32)>);

/// The CPUs of the process, as they were before any thread was pinned.
static ALL_CPUS: OnceLock<libc::cpu_set_t> = OnceLock::new();

impl CpuSet {
    /// Parses a list like `0-3,8`. What is no range of CPUs is left out.
    pub fn parse(text: &str) -> Self {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
        };
        let ranges = text.split(',').filter_map(range);
        Self(ranges.filter(|(first, last)| first <= last).collect())
    }

    /// Reads the CPUs near the device that the kernel describes in `folder`; none where it does not
    /// tell.
    pub(crate) fn near_device(folder: &Path) -> Self {
        let told = std::fs::read_to_string(folder.join("device/local_cpulist"));
        Self::parse(told.unwrap_or_default().trim())
    }

    /// Returns true if no CPU is named, as when the list could not be read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the CPU of a set that has one alone.
    pub fn single_cpu(&self) -> Option<u32> {
        let (first, _) = *self.0.first()?;
        self.0.iter().all(|range| *range == (first, first)).then_some(first)
    }

    /// Returns the CPUs that are in both sets, in order.
    pub fn common_cpus(&self, other: &Self) -> Vec<usize> {
        let both = |(first, last): &(u32, u32)| {
            let (first, last) = (*first, *last);
            let ranges = other.0.iter().map(move |(from, to)| first.max(*from)..=last.min(*to));
            ranges.flatten().map(|cpu| cpu as usize)
        };
        let cpus: BTreeSet<usize> = self.0.iter().flat_map(both).collect();
        cpus.into_iter().collect()
    }

    /// Returns true if at least one CPU is in both sets.
    pub fn shares_cpu_with(&self, other: &Self) -> bool {
        self.0
            .iter()
            .any(|(first, last)| other.0.iter().any(|(from, to)| first <= to && from <= last))
    }
}

impl FromIterator<usize> for CpuSet {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        Self(cpus.into_iter().map(|cpu| (cpu as u32, cpu as u32)).collect())
    }
}

impl std::fmt::Display for CpuSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            if first == last {
                write!(f, "{comma}{first}")?
            } else {
                write!(f, "{comma}{first}-{last}")?
            }
        }
        Ok(())
    }
}

/// Remembers the CPUs of the process, for threads that a pinned one will start.
pub(crate) fn remember_all_cpus() {
    ALL_CPUS.get_or_init(thread_cpus);
}

/// Lets this thread run on every CPU of the process. It may have been made by a pinned one, whose
/// CPU it inherits.
pub(crate) fn unpin_thread() {
    if let Some(set) = ALL_CPUS.get() {
        // SAFETY: the set lives through the call; 0 is this thread.
        let _ = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) };
    }
}

/// Has this thread run on these CPUs alone. Fails where there is none of them for this process.
pub(crate) fn pin_thread(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: a set of CPUs is plain data, for which zeroes are valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus.iter().filter(|&&cpu| cpu < libc::CPU_SETSIZE as usize) {
        // SAFETY: `cpu` is below CPU_SETSIZE.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: the set lives through the call; 0 is this thread.
    match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the CPUs of the process.
pub(crate) fn process_cpus() -> CpuSet {
    let set = ALL_CPUS.get().copied().unwrap_or_else(thread_cpus);
    // SAFETY: `cpu` is below CPU_SETSIZE.
    let is_set = |&cpu: &usize| unsafe { libc::CPU_ISSET(cpu, &set) };
    (0..libc::CPU_SETSIZE as usize).filter(is_set).collect()
}

/// Returns the CPUs on which this thread may run.
pub(crate) fn thread_cpus() -> libc::cpu_set_t {
    // SAFETY: a set of CPUs is plain data, for which zeroes are valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set lives through the call; 0 is this thread.
    let _ = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_cpus_are_in_both_lists() {
        let common = |one: &str, other| CpuSet::parse(one).common_cpus(&CpuSet::parse(other));
        assert_eq!(common("0-3,8", "2-9"), [2, 3, 8]);
        assert_eq!(common("0-1", "4-7"), [0; 0]);
        assert_eq!(common("5,1-2,1", "0-63"), [1, 2, 5]);
    }

    #[test]
    fn a_device_has_the_cpus_that_the_kernel_tells() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        assert!(CpuSet::near_device(folder.path()).is_empty());
        std::fs::create_dir(folder.path().join("device"))?;
        std::fs::write(folder.path().join("device/local_cpulist"), "0-3,8\n")?;
        assert_eq!(CpuSet::near_device(folder.path()), CpuSet::parse("0-3,8"));
        Ok(())
    }

    #[test]
    fn a_process_knows_on_which_cpus_it_may_run() {
        // SAFETY: takes nothing.
        let here = usize::try_from(unsafe { libc::sched_getcpu() });
        let here: CpuSet = here.into_iter().collect();
        assert!(!here.is_empty() && process_cpus().shares_cpu_with(&here));
    }

    #[test]
    fn a_single_cpu_is_that_of_a_set_of_one() {
        let single = |text| CpuSet::parse(text).single_cpu();
        assert_eq!([single("7"), single("7-7,7")], [Some(7), Some(7)]);
        assert_eq!([single("7-8"), single("7,9"), single("9-7"), single("none")], [None; 4]);
    }
}
