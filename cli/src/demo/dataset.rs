//! The sample dataset: what a training job reads, small. Its bytes follow from key and offset, so
//! that any piece can be checked without keeping it.

/// An object of the dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemoSample {
    pub key: String,
    pub bytes: u64,
}

/// Shards, one checkpoint, many small files.
pub fn demo_samples() -> Vec<DemoSample> {
    let shard = |index| DemoSample { key: format!("shards/{index:03}.tar"), bytes: 1 << 20 };
    let small = |index: u64| DemoSample {
        key: format!("images/{index:03}.jpg"),
        bytes: 2_000 + index * 37 % 30_000,
    };
    let mut samples: Vec<DemoSample> = (0..64).map(shard).collect();
    samples.push(DemoSample { key: "checkpoint.bin".to_owned(), bytes: 64 << 20 });
    samples.extend((0..500).map(small));
    samples
}

/// Bytes of one object, in order.
pub struct SampleContent {
    seed: u64,
    at: u64,
}

impl SampleContent {
    /// Starts at offset 0 of the object of this key.
    pub fn for_key(key: &str) -> Self {
        // FNV-1a: any hash that spreads keys will do.
        let seed = key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self { seed, at: 0 }
    }

    /// Writes the next bytes.
    pub fn fill_next(&mut self, buffer: &mut [u8]) {
        for byte in buffer {
            *byte = splitmix_word(self.seed, self.at / 8).to_le_bytes()[(self.at % 8) as usize];
            self.at += 1;
        }
    }

    /// Whether the next bytes are `bytes`. Where not, says at which offset of the object.
    pub fn verify_next(&mut self, bytes: &[u8]) -> Result<(), u64> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = (self.at % 8) as usize;
            let expected = splitmix_word(self.seed, self.at / 8).to_le_bytes();
            let length = rest.len().min(8 - within);
            if rest[..length] != expected[within..within + length] {
                return Err(self.at);
            }
            self.at += length as u64;
            rest = &rest[length..];
        }
        Ok(())
    }
}

/// SplitMix64 at a position.
fn splitmix_word(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn pieces_of_any_cut_are_checked_and_a_wrong_byte_is_found() {
        let mut bytes = vec![0; 100_001];
        SampleContent::for_key("a").fill_next(&mut bytes);
        for cut in [1, 7, 8, 4096, 100_001] {
            let mut content = SampleContent::for_key("a");
            assert!(bytes.chunks(cut).all(|piece| content.verify_next(piece).is_ok()), "cut {cut}");
        }
        assert!(SampleContent::for_key("b").verify_next(&bytes).is_err());
        bytes[77_777] ^= 1;
        let mut content = SampleContent::for_key("a");
        let wrong = bytes.chunks(1000).find_map(|piece| content.verify_next(piece).err()).unwrap();
        assert_eq!(wrong / 8, 77_777 / 8);
    }

    #[test]
    fn the_dataset_is_the_same_in_every_process() {
        let samples = demo_samples();
        assert_eq!(samples.len(), 565);
        let mut first = [0; 4];
        SampleContent::for_key(&samples[0].key).fill_next(&mut first);
        let mut again = [0; 4];
        SampleContent::for_key("shards/000.tar").fill_next(&mut again);
        assert_eq!(first, again);
    }
}
