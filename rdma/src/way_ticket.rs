//! Owns the tickets that carry who a requester is from a TLS session to ways that have none.
//!
//! A worker tells a requester a ticket among its ways, inside a TLS session over tcp. Over verbs and
//! shared memory, the requester sends the ticket's open part, and both sides prove a key made of the
//! ticket's closed part and the cluster's secret. So only somebody whose certificate was taken can
//! come that way, and the worker knows its role.
//!
//! The worker keeps one key for all tickets, and no list: nothing grows with their number.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use verbs3_certificates::NodeRole;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::keyed_mac::{HandshakeKey, compute_mac};

/// Bytes of the open part.
pub(crate) const STUB_BYTES: usize = size_of::<TicketStub>();

/// The open part of a ticket: whom it was given to, and until when it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct TicketStub {
    nonce: [u8; 16],
    /// Seconds since 1970.
    ends: U64,
    role: U32,
    unused: U32,
}

/// What makes a ticket worth something. It is never printed, and lives as long as the ways of its
/// peer.
type TicketKey = [u8; 32];

/// A ticket, as its requester keeps it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct WayTicket {
    stub: TicketStub,
    key: TicketKey,
}

impl fmt::Debug for WayTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WayTicket(…)")
    }
}

/// Error: a text is no ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a ticket is {} hexadecimal digits", 2 * (STUB_BYTES + size_of::<TicketKey>()))]
pub struct TicketTextError;

impl WayTicket {
    pub(crate) fn stub(&self) -> &TicketStub {
        &self.stub
    }

    /// Returns the key that both sides prove, from this ticket and the cluster's secret.
    pub(crate) fn bind_secret(&self, secret: &[u8]) -> HandshakeKey {
        Arc::new(compute_mac(secret, &[b"verbs3 ticketed\0", &self.key]))
    }

    /// Returns the line by which a worker tells the ticket among its ways.
    pub(crate) fn to_line(&self) -> String {
        format!("ticket {}{}\n", hex::encode(self.stub.as_bytes()), hex::encode(self.key))
    }
}

impl FromStr for WayTicket {
    type Err = TicketTextError;

    fn from_str(text: &str) -> Result<Self, TicketTextError> {
        let mut bytes = [0; STUB_BYTES + size_of::<TicketKey>()];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| TicketTextError)?;
        let (stub, key) = TicketStub::read_from_prefix(&bytes).map_err(|_| TicketTextError)?;
        Ok(Self { stub, key: key.try_into().map_err(|_| TicketTextError)? })
    }
}

/// Gives tickets, and knows its own again. One for all ways to a worker. Tickets end with it.
pub struct TicketOffice {
    key: TicketKey,
}

impl fmt::Debug for TicketOffice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketOffice(…)")
    }
}

/// Which tickets a worker gives, and whether it demands them where there is no TLS.
#[derive(Debug, Clone)]
pub struct TicketRules {
    pub office: Arc<TicketOffice>,
    /// Whether a requester without a ticket is refused.
    pub required: bool,
}

impl TicketRules {
    /// Makes rules with an office of their own.
    pub fn new(required: bool) -> Self {
        let mut key = [0; 32];
        rand::fill(&mut key);
        Self { office: Arc::new(TicketOffice { key }), required }
    }
}

impl TicketOffice {
    /// Gives a ticket to a node whose certificate was verified. It holds as long as the
    /// certificate: until `ends`, in seconds since 1970.
    pub(crate) fn issue_ticket(&self, role: NodeRole, ends: i64) -> WayTicket {
        let mut nonce = [0; 16];
        rand::fill(&mut nonce);
        let role = NodeRole::ALL.iter().position(|known| *known == role).unwrap_or_default();
        let stub = TicketStub {
            nonce,
            ends: u64::try_from(ends).unwrap_or_default().into(),
            role: (role as u32).into(),
            unused: 0.into(),
        };
        WayTicket { stub, key: self.closed_part(&stub) }
    }

    /// Returns the ticket of this open part and its role. `None`: it has ended, or can't be one.
    /// Whether this office gave it shows when its key is proved.
    pub(crate) fn find_ticket(&self, stub: &TicketStub) -> Option<KnownTicket> {
        let role = NodeRole::ALL.get(stub.role.get() as usize).copied()?;
        let ends = UNIX_EPOCH.checked_add(Duration::from_secs(stub.ends.get()))?;
        let ticket = WayTicket { stub: *stub, key: self.closed_part(stub) };
        (SystemTime::now() < ends).then_some(KnownTicket { ticket, role })
    }

    fn closed_part(&self, stub: &TicketStub) -> TicketKey {
        compute_mac(&self.key, &[b"verbs3 ticket\0", stub.as_bytes()])
    }
}

/// A ticket that a requester has shown.
pub(crate) struct KnownTicket {
    pub(crate) ticket: WayTicket,
    /// Role of the node that it was given to.
    pub(crate) role: NodeRole,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn far() -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        i64::try_from(now).unwrap() + 1_000
    }

    fn text_of(ticket: &WayTicket) -> String {
        ticket.to_line().trim_start_matches("ticket ").trim_end().to_owned()
    }

    #[test]
    fn a_ticket_is_known_again_by_its_office_alone() {
        let office = TicketRules::new(true).office;
        let ticket = office.issue_ticket(NodeRole::Worker, far());
        let told: WayTicket = text_of(&ticket).parse().unwrap();
        assert_eq!(told, ticket);
        let known = office.find_ticket(told.stub()).unwrap();
        assert_eq!((known.role, &known.ticket), (NodeRole::Worker, &ticket));
        let other = TicketRules::new(true).office.find_ticket(told.stub()).unwrap();
        assert_ne!(other.ticket.bind_secret(b"s"), ticket.bind_secret(b"s"));
    }

    #[test]
    fn a_ticket_with_another_role_or_end_has_another_key() {
        let office = TicketRules::new(true).office;
        let ticket = office.issue_ticket(NodeRole::Worker, far());
        for changed in [
            TicketStub { role: 0.into(), ..ticket.stub },
            TicketStub { ends: u64::from(u32::MAX).into(), ..ticket.stub },
            TicketStub { unused: 1.into(), ..ticket.stub },
        ] {
            let known = office.find_ticket(&changed).unwrap();
            assert_ne!(known.ticket.bind_secret(b"s"), ticket.bind_secret(b"s"));
        }
        assert!(office.find_ticket(&TicketStub { role: 4.into(), ..ticket.stub }).is_none());
    }

    #[test]
    fn a_ticket_ends_with_its_certificate() {
        let office = TicketRules::new(true).office;
        for ends in [far() - 2_000, 0, -1] {
            let ticket = office.issue_ticket(NodeRole::Gateway, ends);
            assert!(office.find_ticket(ticket.stub()).is_none(), "{ends}");
        }
        let endless = TicketStub {
            ends: u64::MAX.into(),
            ..*office.issue_ticket(NodeRole::Gateway, far()).stub()
        };
        assert!(office.find_ticket(&endless).is_none());
    }

    #[test]
    fn other_texts_are_no_tickets() {
        let ticket = TicketRules::new(true).office.issue_ticket(NodeRole::Worker, far());
        let text = text_of(&ticket);
        for text in ["", "00", &text[2..], &format!("{text}00"), &text.replace('0', "x")] {
            assert_eq!(text.parse::<WayTicket>(), Err(TicketTextError), "{text}");
        }
    }
}
