//! A simulated medium with the faults of real ones: a power cut tears, loses and reorders writes,
//! bits flip, and calls fail.
//!
//! Reads see written bytes at once, as through a page cache. A killed process loses none of them. A
//! power cut keeps a random part of what was written since the last flush, in random order: each
//! write whole, torn by sectors, or not at all.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::segment_medium::SegmentMedium;

/// Bytes that a drive writes atomically.
const SECTOR: usize = 512;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MediumFaults {
    /// How many of 1000 calls fail with EIO.
    pub(super) io_per_mille: u32,
    /// Bytes that fit in all files together.
    pub(super) space: Option<u64>,
    pub(super) read_only: bool,
}

struct SimulatedMediumState {
    durable: BTreeMap<u32, Vec<u8>>,
    cached: BTreeMap<u32, Vec<u8>>,
    pending: Vec<(u32, u64, Vec<u8>)>,
    faults: MediumFaults,
    rng: StdRng,
    calls: u64,
}

#[derive(Clone)]
pub(super) struct SimulatedMedium {
    state: Arc<Mutex<SimulatedMediumState>>,
}

impl SimulatedMedium {
    pub(super) fn new(seed: u64) -> Self {
        let state = SimulatedMediumState {
            durable: BTreeMap::new(),
            cached: BTreeMap::new(),
            pending: Vec::new(),
            faults: MediumFaults::default(),
            rng: StdRng::seed_from_u64(seed),
            calls: 0,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    pub(super) fn set_faults(&self, faults: MediumFaults) {
        self.state.lock().faults = faults;
    }

    pub(super) fn call_count(&self) -> u64 {
        self.state.lock().calls
    }

    /// Simulates a flush of the whole page cache.
    pub(super) fn flush_pending(&self) {
        let state = &mut *self.state.lock();
        state.durable.clone_from(&state.cached);
        state.pending.clear();
    }

    /// Simulates a power cut and a restart.
    pub(super) fn cut_power(&self) {
        let state = &mut *self.state.lock();
        let mut pending = std::mem::take(&mut state.pending);
        pending.shuffle(&mut state.rng);
        for (segment, at, bytes) in pending {
            let Some(file) = state.durable.get_mut(&segment) else { continue };
            let fate = state.rng.random_range(0..3);
            for (number, sector) in bytes.chunks(SECTOR).enumerate() {
                let start = at as usize + number * SECTOR;
                if fate == 0 || (fate == 1 && state.rng.random_bool(0.5)) {
                    file[start..start + sector.len()].copy_from_slice(sector);
                }
            }
        }
        state.cached.clone_from(&state.durable);
    }

    /// Flips bits, in headers about as often as in pages.
    pub(super) fn flip_bits(&self, count: usize) {
        let state = &mut *self.state.lock();
        for _ in 0..count {
            for file in state.cached.values_mut() {
                let within =
                    if state.rng.random_bool(0.5) { file.len().min(16 << 10) } else { file.len() };
                let at = state.rng.random_range(0..within);
                file[at] ^= 1 << state.rng.random_range(0..8);
            }
        }
        state.durable.clone_from(&state.cached);
        state.pending.clear();
    }

    /// Copies a piece of one file to another place, like a drive that writes to the wrong one.
    pub(super) fn misdirect_write(&self) {
        let state = &mut *self.state.lock();
        let numbers: Vec<u32> = state.cached.keys().copied().collect();
        if numbers.is_empty() {
            return;
        }
        let pick = |rng: &mut StdRng| numbers[rng.random_range(0..numbers.len())];
        let (from, to) = (pick(&mut state.rng), pick(&mut state.rng));
        let length = [128, 4096][state.rng.random_range(0..2)];
        let place =
            |rng: &mut StdRng, bytes: usize| rng.random_range(0..(bytes - length) / 128) * 128;
        let start = place(&mut state.rng, state.cached[&from].len());
        let piece = state.cached[&from][start..start + length].to_vec();
        let at = place(&mut state.rng, state.cached[&to].len());
        if let Some(file) = state.cached.get_mut(&to) {
            file[at..at + length].copy_from_slice(&piece);
        }
    }

    fn begin_call(state: &mut SimulatedMediumState) -> io::Result<()> {
        state.calls += 1;
        if state.rng.random_range(0..1000) < state.faults.io_per_mille {
            return Err(rustix::io::Errno::IO.into());
        }
        Ok(())
    }
}

impl SegmentMedium for SimulatedMedium {
    fn list_segments(&self) -> io::Result<Vec<(u32, u64)>> {
        let state = &mut *self.state.lock();
        Ok(state.cached.iter().map(|(number, file)| (*number, file.len() as u64)).collect())
    }

    fn create_segment(&self, segment: u32, bytes: u64) -> io::Result<()> {
        let state = &mut *self.state.lock();
        Self::begin_call(state)?;
        if state.faults.read_only {
            return Err(rustix::io::Errno::ROFS.into());
        }
        let used: u64 = state.cached.values().map(|file| file.len() as u64).sum();
        if state.faults.space.is_some_and(|space| used + bytes > space) {
            return Err(rustix::io::Errno::NOSPC.into());
        }
        state.cached.insert(segment, vec![0; bytes as usize]);
        state.durable.insert(segment, vec![0; bytes as usize]);
        Ok(())
    }

    fn remove_segment(&self, segment: u32) -> io::Result<()> {
        let state = &mut *self.state.lock();
        state.cached.remove(&segment);
        state.durable.remove(&segment);
        state.pending.retain(|(other, ..)| *other != segment);
        Ok(())
    }

    fn read(&self, segment: u32, at: u64, into: &mut [u8]) -> io::Result<()> {
        let state = &mut *self.state.lock();
        Self::begin_call(state)?;
        let file = state.cached.get(&segment).ok_or(io::ErrorKind::NotFound)?;
        let piece =
            file.get(at as usize..at as usize + into.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(piece);
        Ok(())
    }

    fn write(&self, segment: u32, at: u64, bytes: &[u8]) -> io::Result<()> {
        let state = &mut *self.state.lock();
        let failed = Self::begin_call(state);
        if state.faults.read_only {
            return Err(rustix::io::Errno::ROFS.into());
        }
        // A failed write may have written a part.
        let done =
            if failed.is_err() { state.rng.random_range(0..=bytes.len()) } else { bytes.len() };
        let file = state.cached.get_mut(&segment).ok_or(io::ErrorKind::NotFound)?;
        let end = at as usize + bytes.len();
        let piece = file.get_mut(at as usize..end).ok_or(io::ErrorKind::UnexpectedEof)?;
        piece[..done].copy_from_slice(&bytes[..done]);
        state.pending.push((segment, at, bytes[..done].to_vec()));
        failed
    }
}
