//! What a folder's files can do. Implemented over a file system (`files`), and by one that breaks
//! in tests (`simulated`).

use std::io;

/// Numbered files of fixed size. Calls block; they come from any thread.
pub(super) trait SegmentMedium: Send + Sync {
    /// Number and size of each file there is.
    fn list_segments(&self) -> io::Result<Vec<(u32, u64)>>;

    /// Makes a file with all its bytes allocated, so that a full disk shows here and not at a
    /// write.
    fn create_segment(&self, segment: u32, bytes: u64) -> io::Result<()>;

    fn remove_segment(&self, segment: u32) -> io::Result<()>;

    fn read(&self, segment: u32, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Durable some time later, in any order, perhaps torn: whoever reads has to notice.
    fn write(&self, segment: u32, at: u64, bytes: &[u8]) -> io::Result<()>;
}

/// What an error means for a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MediumErrorKind {
    /// No space, or a quota of the file system: the tier stays as large as it is.
    Full,
    ReadOnly,
    /// The device, or the file system, is failing.
    Failing,
    /// A file is missing or shorter than it was.
    Missing,
    /// Neither done nor failed within its time.
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

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::ReadOnly => "read_only",
            Self::Failing => "io",
            Self::Missing => "missing",
            Self::Stalled => "stalled",
            Self::Other => "other",
        }
    }
}
