//! Owns what the gateway says over the socket once reads have begun: single bytes, which wake, and
//! two messages about memory whose pages may be read where they lie.
//!
//! A message that passes memory is there before any answer that needs it is.

use crate::{BELL_PASSED, BELL_RETIRED};

/// Bit of a message that says which descriptors come along, after the memory.
const WITH_LIFELINE: u8 = 1;
const WITH_SESSION_LIFELINE: u8 = 2;
const PASSED_BYTES: usize = 6;
const RETIRED_BYTES: usize = 5;

/// Most descriptors of one message.
pub const PAGE_DESCRIPTORS_MAX: usize = 3;

/// Memory that is passed. Its descriptors come with the message, in the order of these fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassedSource {
    /// What segments call it.
    pub source: u32,
    /// Its worker's lifeline comes along: it is kept open while a page of it is read.
    pub has_lifeline: bool,
    /// The session's lifeline comes along: it is kept open while any page is read.
    pub has_session_lifeline: bool,
}

impl PassedSource {
    /// Writes the message.
    pub fn encode_message(&self) -> [u8; PASSED_BYTES] {
        let mut message = [0; PASSED_BYTES];
        message[0] = BELL_PASSED;
        message[1] = (if self.has_lifeline { WITH_LIFELINE } else { 0 })
            | (if self.has_session_lifeline { WITH_SESSION_LIFELINE } else { 0 });
        message[2..].copy_from_slice(&self.source.to_le_bytes());
        message
    }

    /// Returns how many descriptors come with the message.
    pub fn descriptor_count(&self) -> usize {
        1 + usize::from(self.has_lifeline) + usize::from(self.has_session_lifeline)
    }
}

/// What the gateway has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatewayMessage {
    /// Look at the rings, or at the socket's end.
    Bell,
    Passed(PassedSource),
    /// The memory is not used by further answers. Earlier ones keep it.
    Retired(u32),
}

impl GatewayMessage {
    /// Writes the message that retires memory.
    pub fn encode_retired(source: u32) -> [u8; RETIRED_BYTES] {
        let mut message = [0; RETIRED_BYTES];
        message[0] = BELL_RETIRED;
        message[1..].copy_from_slice(&source.to_le_bytes());
        message
    }
}

/// Cuts what comes over the socket into messages.
#[derive(Debug, Default)]
pub struct GatewayMessages {
    begun: Vec<u8>,
}

impl GatewayMessages {
    /// Takes bytes that have come.
    pub fn take_bytes(&mut self, bytes: &[u8]) {
        self.begun.extend(bytes);
    }

    /// Returns the next message. `None`: it is not all there.
    pub fn next_message(&mut self) -> Option<GatewayMessage> {
        let number = |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes).unwrap_or_default();
        let (message, length) = match *self.begun.first()? {
            BELL_PASSED => {
                let message = self.begun.get(..PASSED_BYTES)?;
                let passed = PassedSource {
                    source: number(&message[2..]),
                    has_lifeline: message[1] & WITH_LIFELINE != 0,
                    has_session_lifeline: message[1] & WITH_SESSION_LIFELINE != 0,
                };
                (GatewayMessage::Passed(passed), PASSED_BYTES)
            }
            BELL_RETIRED => {
                let message = self.begun.get(..RETIRED_BYTES)?;
                (GatewayMessage::Retired(number(&message[1..])), RETIRED_BYTES)
            }
            _ => (GatewayMessage::Bell, 1),
        };
        self.begun.drain(..length);
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BELL_LOOK;

    #[test]
    fn messages_come_out_as_they_went_in_however_they_are_cut() {
        let passed = PassedSource { source: 9, has_lifeline: true, has_session_lifeline: false };
        let first = PassedSource { has_session_lifeline: true, ..passed };
        assert_eq!((passed.descriptor_count(), first.descriptor_count()), (2, 3));
        let mut bytes = vec![BELL_LOOK];
        bytes.extend(first.encode_message());
        bytes.extend(GatewayMessage::encode_retired(u32::MAX));
        bytes.extend(passed.encode_message());
        bytes.push(BELL_LOOK);
        let expected = [
            GatewayMessage::Bell,
            GatewayMessage::Passed(first),
            GatewayMessage::Retired(u32::MAX),
            GatewayMessage::Passed(passed),
            GatewayMessage::Bell,
        ];
        for step in 1..bytes.len() {
            let mut messages = GatewayMessages::default();
            let mut found = Vec::new();
            for piece in bytes.chunks(step) {
                messages.take_bytes(piece);
                found.extend(std::iter::from_fn(|| messages.next_message()));
            }
            assert_eq!(found, expected, "in pieces of {step}");
        }
    }
}
