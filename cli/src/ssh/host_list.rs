//! Reads the hosts that a command line names: a list, or a file. Owns their bound and their order.

use std::path::{Path, PathBuf};

use super::SshHost;

/// Most hosts of one list: a list beyond is a wrong file.
const HOSTS_MAX: usize = 20_000;
/// Longest file of hosts in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// What is wrong with a list of hosts.
#[derive(Debug, thiserror::Error)]
pub enum HostListError {
    #[error("can't read the hosts of {path}")]
    Unreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path} has more than {FILE_BYTES_MAX} bytes: it is no list of hosts")]
    TooLong { path: PathBuf },
    #[error("{0}")]
    NoHost(String),
    #[error("{0} is there twice")]
    Twice(String),
    #[error("no host; give gpu-01,gpu-02 or a file with a name on each line")]
    Empty,
    #[error("more than {HOSTS_MAX} hosts")]
    TooMany,
}

/// Reads `text`: a file, if there is one of this name, or else names with commas between them. A
/// file has a name on each line; empty lines and what follows `#` are left out.
pub fn read_host_list(text: &str) -> Result<Vec<SshHost>, HostListError> {
    let path = Path::new(text);
    if !path.is_file() {
        return collect_hosts(text.split(','));
    }
    let unreadable = |source| HostListError::Unreadable { path: path.to_owned(), source };
    if path.metadata().map_err(unreadable)?.len() > FILE_BYTES_MAX {
        return Err(HostListError::TooLong { path: path.to_owned() });
    }
    let content = std::fs::read_to_string(path).map_err(unreadable)?;
    let lines = content.lines().map(|line| line.split('#').next().unwrap_or(""));
    collect_hosts(lines.map(str::trim).filter(|line| !line.is_empty()))
}

fn collect_hosts<'a>(names: impl Iterator<Item = &'a str>) -> Result<Vec<SshHost>, HostListError> {
    let mut hosts = Vec::new();
    let mut known = std::collections::BTreeSet::new();
    for name in names.map(str::trim).filter(|name| !name.is_empty()) {
        let host = SshHost::parse(name).map_err(HostListError::NoHost)?;
        if !known.insert(host.clone()) {
            return Err(HostListError::Twice(name.to_owned()));
        }
        hosts.push(host);
        if hosts.len() > HOSTS_MAX {
            return Err(HostListError::TooMany);
        }
    }
    if hosts.is_empty() { Err(HostListError::Empty) } else { Ok(hosts) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let hosts = read_host_list(text).unwrap();
        hosts.iter().map(|host| host.as_str().to_owned()).collect()
    }

    #[test]
    fn hosts_come_from_a_list_or_a_file_in_their_order() {
        assert_eq!(names("gpu-02, gpu-01,"), ["gpu-02", "gpu-01"]);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# rack 1\ngpu-02\n\n  gpu-01 # slow\n").unwrap();
        assert_eq!(names(file.path().to_str().unwrap()), ["gpu-02", "gpu-01"]);
    }

    #[test]
    fn a_list_with_an_option_a_double_or_nothing_is_refused() {
        for (wrong, said) in
            [("gpu-01,-oX", "begin with"), ("a,b,a", "twice"), (",", "no host"), ("", "no host")]
        {
            let complaint = read_host_list(wrong).unwrap_err().to_string();
            assert!(complaint.contains(said), "{wrong:?}: {complaint}");
        }
    }
}
