//! Owns TLS over a TCP socket, for frames: what is encrypted and waits for the socket, and what has
//! come and waits to be decrypted. The handshake is done before.
//!
//! Both sides of a connection share one session, and so one lock. It is held while records are made
//! or opened, and never while anybody waits.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;

use parking_lot::Mutex;
use rustls::Connection;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::StreamSocket;
use crate::transport::TransportKind;

/// Bytes that one read takes from the socket: some sixteen records of 16 KiB. rustls alone would
/// ask for 4 KiB at a time.
const INTAKE_BYTES: usize = 256 << 10;
/// Bytes that are encrypted ahead of the socket.
const OUTBOX_BYTES_MAX: usize = 256 << 10;

/// A TLS session over a connected socket.
pub(crate) struct TlsSocket {
    stream: TcpStream,
    session: Mutex<TlsSession>,
}

struct TlsSession {
    connection: Connection,
    /// What came from the socket and is not decrypted yet.
    intake: Box<[u8]>,
    start: usize,
    end: usize,
    /// Nothing more comes from the socket.
    ended: bool,
}

impl TlsSocket {
    /// Takes over a socket whose handshake is done.
    pub(crate) fn new(stream: TcpStream, mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(OUTBOX_BYTES_MAX));
        let intake = vec![0; INTAKE_BYTES].into_boxed_slice();
        let session = TlsSession { connection, intake, start: 0, end: 0, ended: false };
        Self { stream, session: Mutex::new(session) }
    }

    /// Sends what is encrypted already. `WouldBlock`: the socket did not take all of it.
    fn send_records(&self, session: &mut TlsSession) -> io::Result<()> {
        while session.connection.wants_write() {
            self.stream.try_io(Interest::WRITABLE, || {
                session.connection.write_tls(&mut SocketHalf(&self.stream))
            })?;
        }
        Ok(())
    }
}

impl TlsSession {
    /// Hands out what is decrypted already. 0: nothing is.
    fn take_plaintext(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut taken = 0;
        for slice in slices {
            let mut filled = 0;
            while filled < slice.len() {
                match self.connection.reader().read(&mut slice[filled..]) {
                    // The peer has said that nothing follows.
                    Ok(0) => {
                        self.ended = true;
                        return Ok(taken + filled);
                    }
                    Ok(bytes) => filled += bytes,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        if !self.open_records()? {
                            return Ok(taken + filled);
                        }
                    }
                    // A socket that ended without that word: the frames say whether one is missing.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        self.ended = true;
                        return Ok(taken + filled);
                    }
                    Err(error) => return Err(error),
                }
            }
            taken += filled;
        }
        Ok(taken)
    }

    /// Decrypts of what has come. Returns `false` if nothing is left of it.
    fn open_records(&mut self) -> io::Result<bool> {
        if self.start == self.end {
            return Ok(false);
        }
        let mut rest = &self.intake[self.start..self.end];
        let bytes = self.connection.read_tls(&mut rest)?;
        self.start += bytes;
        self.connection
            .process_new_packets()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(bytes > 0)
    }
}

impl StreamSocket for TlsSocket {
    const KIND: TransportKind = TransportKind::Tcp;

    fn try_read(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut session = self.session.lock();
        loop {
            let taken = session.take_plaintext(slices)?;
            if taken > 0 || session.ended {
                return Ok(taken);
            }
            // All that had come is decrypted, so the buffer is empty.
            let session = &mut *session;
            let read = self.stream.try_io(Interest::READABLE, || {
                SocketHalf(&self.stream).read(&mut session.intake)
            })?;
            (session.start, session.end) = (0, read);
            session.ended = read == 0;
        }
    }

    /// Bytes of records are not bytes of frames, so the kernel is not told.
    fn wake_at(&self, _bytes: usize) -> io::Result<()> {
        Ok(())
    }

    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut session = self.session.lock();
        self.send_records(&mut session)?;
        let taken = session.connection.writer().write_vectored(slices)?;
        match self.send_records(&mut session) {
            // They are this side's to send from here on.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(taken),
            sent => sent.map(|()| taken),
        }
    }

    fn try_flush(&self) -> io::Result<()> {
        self.send_records(&mut self.session.lock())
    }

    fn wait_readable(&self) -> impl Future<Output = io::Result<()>> + Send {
        self.stream.readable()
    }

    fn wait_writable(&self) -> impl Future<Output = io::Result<()>> + Send {
        self.stream.writable()
    }

    fn shut_write(&self) -> io::Result<()> {
        let mut session = self.session.lock();
        session.connection.send_close_notify();
        // A peer that does not read any more does without.
        let _ = self.send_records(&mut session);
        SockRef::from(&self.stream).shutdown(Shutdown::Write)
    }
}

/// Reads and writes of the socket that never wait, as rustls wants them.
struct SocketHalf<'a>(&'a TcpStream);

impl Read for SocketHalf<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self.0, to)?)
    }
}

impl Write for SocketHalf<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self.0, from)?)
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::writev(self.0, from)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
