//! Owns what tcp and shm share: frames over a byte stream of the kernel, encrypted or not. It has the queue of frames
//! that wait to be written, and the reads that scatter a frame.
//!
//! Knows nothing of addresses, and not what frames mean.

mod frame_intake;
mod frame_outbox;
mod low_water;
mod tls_socket;

use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

pub(crate) use frame_intake::FrameIntake;
pub(crate) use frame_outbox::FrameOutbox;
pub(crate) use tls_socket::TlsSocket;

use crate::transport::TransportKind;

/// A connected stream socket. Reads and writes never wait; `WouldBlock` means that nothing can be
/// done now.
pub(crate) trait StreamSocket: Send + Sync + 'static {
    const KIND: TransportKind;

    fn try_read(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize>;
    /// Lets `wait_readable` skip wake-ups for fewer than `bytes`, unless no more can come. Where
    /// the kernel can't be told, every arrival wakes it.
    fn wake_at(&self, bytes: usize) -> io::Result<()>;
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;
    /// Sends what an earlier write has taken and the kernel has not. `WouldBlock`: something is left.
    fn try_flush(&self) -> io::Result<()> {
        Ok(())
    }
    fn wait_readable(&self) -> impl Future<Output = io::Result<()>> + Send;
    fn wait_writable(&self) -> impl Future<Output = io::Result<()>> + Send;
    /// Fails only on a socket that is closed already.
    fn shut_write(&self) -> io::Result<()>;
}

macro_rules! socket {
    ($stream:ident, $kind:ident, $wake_at:expr) => {
        impl StreamSocket for $stream {
            const KIND: TransportKind = TransportKind::$kind;

            fn try_read(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                let offered: usize = slices.iter().map(|slice| slice.len()).sum();
                let mut drained = 0;
                let read =
                    self.try_io(Interest::READABLE, || match rustix::io::readv(self, slices)? {
                        // The socket is drained, so the next read waits for an event instead of
                        // reading in vain. Bytes that come after this read give an event, and
                        // earlier bytes were read.
                        bytes if 0 < bytes && bytes < offered => {
                            drained = bytes;
                            Err(io::ErrorKind::WouldBlock.into())
                        }
                        bytes => Ok(bytes),
                    });
                if drained > 0 { Ok(drained) } else { read }
            }

            fn wake_at(&self, bytes: usize) -> io::Result<()> {
                $wake_at(self, bytes)
            }

            fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
                self.try_write_vectored(slices)
            }

            fn wait_readable(&self) -> impl Future<Output = io::Result<()>> + Send {
                $stream::readable(self)
            }

            fn wait_writable(&self) -> impl Future<Output = io::Result<()>> + Send {
                $stream::writable(self)
            }

            fn shut_write(&self) -> io::Result<()> {
                SockRef::from(self).shutdown(Shutdown::Write)
            }
        }
    };
}

socket!(TcpStream, Tcp, low_water::set_low_water);
socket!(UnixStream, Shm, |_: &UnixStream, _| Ok(()));
