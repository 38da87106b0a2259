//! Owns the low-water mark of a TCP socket (SO_RCVLOWAT): how many bytes it must hold before it is
//! readable. No safe crate here sets it.

use std::io;
use std::os::fd::AsRawFd;

use tokio::net::TcpStream;

pub(super) fn set_low_water(stream: &TcpStream, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open as long as the stream is borrowed, and the kernel only reads
    // the integer.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const bytes).cast(),
            length,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the current value.
#[cfg(test)]
pub(super) fn get(stream: &TcpStream) -> usize {
    let (mut bytes, mut length) = (0 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the descriptor is open as long as the stream is borrowed; the kernel writes one
    // integer and its length.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw mut bytes).cast(),
            &raw mut length,
        )
    };
    assert_eq!(result, 0);
    usize::try_from(bytes).unwrap_or(0)
}
