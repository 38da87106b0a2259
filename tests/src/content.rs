//! Object bodies that say what they are: every 8-byte word depends on the key, the version and the
//! word's place, so that a byte from another object, another version or another offset can't go
//! unnoticed.

use bytes::Bytes;

/// The body of version `version` of `key`, `length` bytes long.
pub fn body(key: &str, version: u64, length: usize) -> Bytes {
    let start = seed(key, version);
    let mut bytes = Vec::with_capacity(length + 8);
    for place in 0..length.div_ceil(8) as u64 {
        bytes.extend_from_slice(&word(start, place).to_le_bytes());
    }
    bytes.truncate(length);
    Bytes::from(bytes)
}

/// Fails, naming the first wrong byte, unless `got` is bytes `offset..` of that version.
pub fn check(key: &str, version: u64, offset: usize, got: &[u8]) -> Result<(), String> {
    let start = seed(key, version);
    for (index, &byte) in got.iter().enumerate() {
        let at = offset + index;
        let want = word(start, (at / 8) as u64).to_le_bytes()[at % 8];
        if byte != want {
            return Err(format!(
                "{key} version {version}: byte {at} is {byte:#04x}, should be {want:#04x}"
            ));
        }
    }
    Ok(())
}

fn seed(key: &str, version: u64) -> u64 {
    // FNV-1a; the tests need spread, not strength.
    key.bytes().chain(version.to_le_bytes()).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// SplitMix64's output function.
fn word(start: u64, place: u64) -> u64 {
    let mut z = start.wrapping_add(place.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_checks_against_itself_alone() {
        let bytes = body("k", 3, 1001);
        assert_eq!(bytes.len(), 1001);
        assert!(check("k", 3, 0, &bytes).is_ok());
        assert!(check("k", 3, 500, &bytes[500..]).is_ok());
        assert!(check("k", 4, 0, &bytes).is_err());
        assert!(check("j", 3, 0, &bytes).is_err());
        assert!(check("k", 3, 8, &bytes).is_err());
    }
}
