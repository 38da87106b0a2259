//! Owns the read side of a TCP connection: everything comes in the stream.

use bytes::Bytes;
use tokio::net::TcpStream;

use crate::calls::{FrameBody, FrameHeader, FrameInlet, InletError};
use crate::landing::LandingFill;
use crate::stream::{FrameIntake, StreamSocket, TlsSocket};

/// A socket whose whole frames come in the stream.
pub(super) trait TcpCarried: StreamSocket {}

impl TcpCarried for TcpStream {}
impl TcpCarried for TlsSocket {}

impl<S: TcpCarried> FrameInlet for FrameIntake<S> {
    async fn next_header(&mut self) -> Result<Option<FrameHeader>, InletError> {
        let header = self.next().await?;
        match header {
            Some(header) if header.placed || header.segments > 0 => Err(InletError::Rules(
                format!("{:?} frame over tcp that names memory", header.kind),
            )),
            header => Ok(header),
        }
    }

    async fn receive_body(
        &mut self,
        header: &FrameHeader,
        fill: &mut LandingFill,
    ) -> Result<FrameBody, InletError> {
        // Bounded by `message_bytes_max`, which the decoder has checked.
        let message = self.read_rest(header.message_bytes as usize, fill).await?;
        Ok(FrameBody { message: Bytes::from(message), ..FrameBody::default() })
    }
}
