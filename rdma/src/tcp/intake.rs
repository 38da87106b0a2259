//! The read side of a TCP connection: everything comes in the stream.

use bytes::Bytes;
use tokio::net::TcpStream;

use crate::calls::{Body, Header, Inlet, InletError};
use crate::landing::Fill;
use crate::stream::Intake;

impl Inlet for Intake<TcpStream> {
    async fn header(&mut self) -> Result<Option<Header>, InletError> {
        let header = self.next().await?;
        match header {
            Some(header) if header.placed || header.segments > 0 => Err(InletError::Rules(
                format!("{:?} frame over tcp that names memory", header.kind),
            )),
            header => Ok(header),
        }
    }

    async fn body(&mut self, header: &Header, fill: &mut Fill) -> Result<Body, InletError> {
        // Bounded by `message_bytes_max`, which the decoder has checked.
        let message = self.rest(header.message_bytes as usize, fill).await?;
        Ok(Body { message: Bytes::from(message), ..Body::default() })
    }
}
