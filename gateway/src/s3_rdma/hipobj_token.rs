//! Reads and writes the token of `hipobj-rc-v2`: 44 bytes as hexadecimal digits, numbers in the
//! order of x86 (little-endian). Knows no header and no session.

use verbs3_rdma::client_memory::{OwnEnd, PortGid};

/// Digits of a token.
const TOKEN_DIGITS: usize = 88;
const TOKEN_BYTES: usize = TOKEN_DIGITS / 2;
/// A reliable connection. 0 is NVIDIA's own kind, which needs no connection.
const RELIABLE: u8 = 1;

// Where the fields are.
const TRANSPORT: usize = 0;
const PAIR: usize = 1;
const GID: usize = 5;
const PORT: usize = 41;

/// What a client's token says of it. Key, address and length are in it, too; this version of the
/// dialect names them later, elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HipobjToken {
    pub(crate) is_reliable: bool,
    pub(crate) gid: PortGid,
}

/// Reads a client's token, with or without `:ADDRESS:SIZE` behind it. `None`: it is none.
pub(crate) fn read_token(text: &str) -> Option<HipobjToken> {
    let mut fields = text.split(':');
    let digits = fields.next()?;
    let rest: Vec<&str> = fields.collect();
    let is_number = |field: &&str| {
        (1..=16).contains(&field.len()) && field.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    if !matches!(rest.len(), 0 | 2) || !rest.iter().all(is_number) {
        return None;
    }
    let mut bytes = [0; TOKEN_BYTES];
    hex::decode_to_slice(digits, &mut bytes).ok()?;
    let gid = PortGid(bytes[GID..GID + 16].try_into().ok()?);
    Some(HipobjToken { is_reliable: bytes[TRANSPORT] == RELIABLE, gid })
}

/// Writes the token of this side.
pub(crate) fn write_token(end: &OwnEnd) -> String {
    let mut bytes = [0; TOKEN_BYTES];
    bytes[TRANSPORT] = RELIABLE;
    bytes[PAIR..PAIR + 4].copy_from_slice(&end.pair_number.to_le_bytes());
    bytes[GID..GID + 16].copy_from_slice(&end.gid.0);
    bytes[PORT] = end.port;
    hex::encode(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What `encodeRdmaToken` of hipObject makes of queue pair 0x11, 10.77.0.2, key 0x1234, address
    /// 0x7f0000001000, length 4096, port 1.
    const KNOWN: &str = "011100000000000000000000000000ffff0a4d0002\
        3412000000100000007f00000010000000000000010000";

    #[test]
    fn token_is_read_as_its_library_writes_it() {
        assert_eq!(KNOWN.len(), TOKEN_DIGITS);
        let address: std::net::IpAddr = "10.77.0.2".parse().expect("an address");
        let token = HipobjToken { is_reliable: true, gid: address.into() };
        for text in [KNOWN.to_owned(), format!("{KNOWN}:7f00:1000"), KNOWN.to_uppercase()] {
            assert_eq!(read_token(&text), Some(token), "{text}");
        }
        for wrong in ["", "01", ":", &KNOWN[1..], &format!("{KNOWN}:1"), &format!("{KNOWN}:1:2:3")]
        {
            assert_eq!(read_token(wrong), None, "{wrong}");
        }
        assert_eq!(read_token(&format!("{KNOWN}:x:2")), None);
        assert_eq!(read_token(&KNOWN.replacen('0', "g", 1)), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_harm(text in "\\PC{0,200}") {
            let _ = read_token(&text);
        }

        #[test]
        fn own_token_is_read_back(pair_number: u32, gid: [u8; 16], port: u8) {
            let gid = PortGid(gid);
            let text = write_token(&OwnEnd { pair_number, gid, first_packet: 1, port });
            prop_assert_eq!(text.len(), TOKEN_DIGITS);
            prop_assert_eq!(read_token(&text), Some(HipobjToken { is_reliable: true, gid }));
            let pair = hex::encode(pair_number.to_le_bytes());
            prop_assert_eq!(&text[2..10], pair.as_str());
        }
    }
}
