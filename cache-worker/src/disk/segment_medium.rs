//! The operations on a folder's files. Implemented over a file system (`folder_files`), and by a
//! faulty medium in tests (`simulated_medium`).

use std::io;

use verbs3_metrics::MetricLabel;

/// Numbered files of fixed size. Calls block, and may come from any thread.
pub(super) trait SegmentMedium: Send + Sync {
    /// Lists number and size of each file.
    fn list_segments(&self) -> io::Result<Vec<(u32, u64)>>;

    /// Creates a file with all its bytes allocated, so that a full disk shows here and not at a
    /// write.
    fn create_segment(&self, segment: u32, bytes: u64) -> io::Result<()>;

    fn remove_segment(&self, segment: u32) -> io::Result<()>;

    fn read(&self, segment: u32, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes bytes that become durable some time later, in any order, perhaps torn. The reader has
    /// to detect that.
    fn write(&self, segment: u32, at: u64, bytes: &[u8]) -> io::Result<()>;
}

/// The meaning of an error for a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, MetricLabel)]
pub(super) enum MediumErrorKind {
    /// No space, or a quota of the file system: the tier keeps its present size.
    Full,
    ReadOnly,
    /// The device, or the file system, is failing.
    #[label("io")]
    Failing,
    /// A file is missing or shorter than it was.
    Missing,
    /// The call neither succeeded nor failed within its time.
    Stalled,
    Other,
}

impl MediumErrorKind {
    pub(super) fn from_io_error(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => Self::Full,
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => Self::ReadOnly,
            io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof => Self::Missing,
            _ if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                Self::Failing
            }
            _ => Self::Other,
        }
    }
}
