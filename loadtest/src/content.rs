//! Makes and checks the contents of objects: a function of seed, key and version. So any range of
//! any answer can be checked without keeping a byte. Does not decide what is read or written when.
//!
//! Words are an arithmetic sequence with an odd step, folded: no two words of an object are equal.
//! So bytes of another offset, key or version are detected as well as damaged ones. A core makes
//! some GB/s of them.

use crc_fast::{CrcAlgorithm, Digest};

use crate::random::{GOLDEN, hash};

/// Bytes that are made and compared at once; they stay in the first-level cache.
const CHUNK_BYTES: usize = 8 << 10;

/// Bytes of one version of one object, of any length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BenchContent {
    base: u64,
}

impl BenchContent {
    /// Creates a content. `version` counts the writes of one key: stale bytes are wrong bytes.
    pub fn new(seed: u64, key: &str, version: u64) -> Self {
        // Mixes an FNV-1a hash, because keys differ in few digits.
        let name = key.bytes().fold(0xcbf2_9ce4_8422_2325, |state: u64, byte| {
            (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self { base: hash(&[seed, name, version]) }
    }

    fn word_at(self, at: u64) -> [u8; 8] {
        let word = self.base.wrapping_add(at.wrapping_mul(GOLDEN));
        (word ^ (word >> 32)).to_le_bytes()
    }

    /// Fills `out` with the bytes from `offset` on.
    pub fn fill_bytes(self, offset: u64, out: &mut [u8]) {
        let (mut at, into) = (offset / 8, (offset % 8) as usize);
        let head = out.len().min((8 - into) % 8);
        let (first, rest) = out.split_at_mut(head);
        if head > 0 {
            first.copy_from_slice(&self.word_at(at)[into..into + head]);
            at += 1;
        }
        let mut words = rest.chunks_exact_mut(8);
        let mut state = self.base.wrapping_add(at.wrapping_mul(GOLDEN));
        for word in &mut words {
            word.copy_from_slice(&(state ^ (state >> 32)).to_le_bytes());
            state = state.wrapping_add(GOLDEN);
            at += 1;
        }
        let last = words.into_remainder();
        let bytes = self.word_at(at);
        last.copy_from_slice(&bytes[..last.len()]);
    }

    /// Returns the offset in the object where `got`, read from `offset`, first differs.
    pub fn find_mismatch(self, offset: u64, got: &[u8]) -> Option<u64> {
        let mut chunk = [0; CHUNK_BYTES];
        let mut at = offset;
        for piece in got.chunks(CHUNK_BYTES) {
            let wanted = &mut chunk[..piece.len()];
            self.fill_bytes(at, wanted);
            if wanted != piece {
                let index = wanted.iter().zip(piece).position(|(wanted, got)| wanted != got)?;
                return Some(at + index as u64);
            }
            at += piece.len() as u64;
        }
        None
    }

    /// Computes the CRC64NVME of a range by generating its bytes.
    pub fn range_crc(self, first: u64, bytes: u64) -> u64 {
        let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
        let mut chunk = [0; CHUNK_BYTES];
        let (mut at, end) = (first, first + bytes);
        while at < end {
            let piece = &mut chunk[..(end - at).min(CHUNK_BYTES as u64) as usize];
            self.fill_bytes(at, piece);
            digest.update(piece);
            at += piece.len() as u64;
        }
        digest.finalize()
    }
}

/// Check of an answer's body.
pub enum BenchBodyCheck {
    /// Compares byte by byte and finds the place.
    Compare { content: BenchContent, at: u64, wrong: Option<u64> },
    /// Compares the CRC64NVME, if that is known: a quarter of the CPU time.
    Checksum { wanted: u64, digest: Box<Digest> },
    /// Checks only the length.
    Skip,
}

impl BenchBodyCheck {
    /// Creates a check that compares every byte with `content`; the body begins at offset `first`
    /// of the object.
    pub fn new_compare(content: BenchContent, first: u64) -> Self {
        Self::Compare { content, at: first, wrong: None }
    }

    /// Creates a check of the whole body's CRC64NVME against `wanted`.
    pub fn new_checksum(wanted: u64) -> Self {
        Self::Checksum { wanted, digest: Box::new(Digest::new(CrcAlgorithm::Crc64Nvme)) }
    }

    /// Checks the next bytes of the body.
    pub fn check_part(&mut self, part: &[u8]) {
        match self {
            Self::Compare { content, at, wrong } => {
                if wrong.is_none() {
                    *wrong = content.find_mismatch(*at, part);
                }
                *at += part.len() as u64;
            }
            Self::Checksum { digest, .. } => digest.update(part),
            Self::Skip => {}
        }
    }

    /// Describes what is wrong with the whole body.
    pub fn describe_fault(&self) -> Option<String> {
        match self {
            Self::Compare { wrong, .. } => wrong.map(|at| format!("wrong byte at offset {at}")),
            Self::Checksum { wanted, digest } => {
                let got = digest.finalize();
                (got != *wanted).then(|| format!("CRC64NVME is {got:016x}, must be {wanted:016x}"))
            }
            Self::Skip => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(content: BenchContent, first: u64, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        content.fill_bytes(first, &mut out);
        out
    }

    #[test]
    fn any_range_is_the_same_bytes_as_in_the_whole() {
        let content = BenchContent::new(1, "a/b", 0);
        let whole = made(content, 0, 20_000);
        for first in [0, 1, 7, 8, 9, 4095, 8191, 8192, 19_999] {
            for bytes in [0, 1, 2, 7, 8, 9, 15, 100, 9000] {
                let end = (first + bytes).min(whole.len());
                assert_eq!(
                    made(content, first as u64, end - first),
                    whole[first..end],
                    "{first} {bytes}"
                );
                assert_eq!(content.find_mismatch(first as u64, &whole[first..end]), None);
            }
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_is_found_by_both_ways_of_checking() {
        let content = BenchContent::new(1, "k", 0);
        let good = made(content, 100, 20_000);
        for (at, bit) in [(0, 1), (1, 128), (8191, 16), (8192, 2), (19_999, 64)] {
            let mut bad = good.clone();
            bad[at] ^= bit;
            assert_eq!(content.find_mismatch(100, &bad), Some(100 + at as u64));
            for mut check in [
                BenchBodyCheck::new_compare(content, 100),
                BenchBodyCheck::new_checksum(content.range_crc(100, 20_000)),
            ] {
                // In pieces that do not end where words do.
                bad.chunks(777).for_each(|part| check.check_part(part));
                assert!(check.describe_fault().is_some(), "byte {at}");
            }
        }
        for mut check in [
            BenchBodyCheck::new_compare(content, 100),
            BenchBodyCheck::new_checksum(content.range_crc(100, 20_000)),
        ] {
            good.chunks(777).for_each(|part| check.check_part(part));
            assert_eq!(check.describe_fault(), None);
        }
    }

    #[test]
    fn bytes_of_another_place_key_seed_or_version_are_wrong() {
        let content = BenchContent::new(1, "k", 0);
        let good = made(content, 4096, 64);
        assert!(
            content.find_mismatch(4097, &good).is_some()
                && content.find_mismatch(4104, &good).is_some()
        );
        assert!(content.find_mismatch(4096 + (4 << 20), &good).is_some(), "another block");
        for other in [
            BenchContent::new(2, "k", 0),
            BenchContent::new(1, "l", 0),
            BenchContent::new(1, "k", 1),
        ] {
            assert!(other.find_mismatch(4096, &good).is_some());
        }
    }
}
