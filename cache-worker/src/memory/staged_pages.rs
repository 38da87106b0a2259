//! Pages that gateways have pushed and no version has yet (populate on write).
//!
//! Owns their bounds in bytes, number and time, and who may settle them. They are in nobody's sight:
//! the index does not know them. Does not install them, and does not talk to gateways.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use verbs3_protocol::{BlockIndex, ObjectKey, PopulateToken};

use super::CachedPage;
use crate::clock::WorkerInstant;
use crate::metrics::{StagedEnd, WorkerMetrics};
use crate::settings::WorkerPopulateSettings;
use crate::tenants::{TenantAccount, TenantAccounts, TenantTier};

/// For whom pages are staged. Nobody else can add to them or settle them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StageOwner {
    pub(crate) object: ObjectKey,
    /// Name of the gateway.
    pub(crate) peer: Box<str>,
}

/// A page that was pushed.
pub(crate) struct StagedPage {
    pub(crate) block: BlockIndex,
    pub(crate) page: u16,
    pub(crate) kept: CachedPage,
    /// Bytes of its cell.
    pub(crate) width: u64,
}

/// Pages that are about to come, all under one token.
pub(crate) struct ComingPages {
    pub(crate) token: PopulateToken,
    pub(crate) owner: StageOwner,
    pub(crate) account: TenantAccount,
    /// Bytes of their cells, and of what they are pushed into.
    pub(crate) bytes: u64,
    pub(crate) now: WorkerInstant,
}

/// The pages of one token.
pub(crate) struct StagedWrite {
    owner: StageOwner,
    pub(crate) account: TenantAccount,
    pub(crate) pages: HashMap<(BlockIndex, u16), StagedPage>,
    /// No other write has it, also none of the same token.
    serial: u64,
    /// Reservations whose pages have not come.
    coming: usize,
    /// Bytes of the cells of all pages.
    width: u64,
    /// When its last page was announced or came.
    touched: WorkerInstant,
}

/// Why pages can't be staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StageError {
    #[error("this worker takes no pages of writes; set worker.populate.staged_max")]
    Off,
    #[error("as many bytes are staged as may be; raise worker.populate.staged_max")]
    Bytes,
    #[error("as many writes are staged as may be; raise worker.populate.writes_max")]
    Writes,
    #[error("the token belongs to another object, gateway or tenant")]
    OtherOwner,
    #[error("the write was settled while its pages were on their way")]
    Settled,
}

#[derive(Default)]
struct StagedTableState {
    writes: HashMap<PopulateToken, StagedWrite>,
    /// Of the next write.
    next_serial: u64,
    /// Bytes of staged pages and of reservations.
    bytes: u64,
}

pub(crate) struct StagedPageTable {
    state: Mutex<StagedTableState>,
    bytes_max: u64,
    writes_max: usize,
    kept_for: Duration,
    tenants: Arc<TenantAccounts>,
    metrics: WorkerMetrics,
}

/// A place for pages on their way here, and the bytes that are taken for them. Dropping it gives
/// back what no page has used.
pub(crate) struct StageReservation {
    table: Arc<StagedPageTable>,
    token: PopulateToken,
    /// Of its write. One that was settled may have a successor of the same token.
    serial: u64,
    bytes: u64,
    account: TenantAccount,
}

impl StagedTableState {
    fn find_write(&mut self, token: PopulateToken, serial: u64) -> Option<&mut StagedWrite> {
        self.writes.get_mut(&token).filter(|write| write.serial == serial)
    }
}

impl Drop for StageReservation {
    fn drop(&mut self) {
        let mut state = self.table.state.lock();
        if let Some(write) = state.find_write(self.token, self.serial) {
            write.coming -= 1;
            if write.coming == 0 && write.pages.is_empty() {
                state.writes.remove(&self.token);
            }
        }
        self.table.release_bytes(&mut state, self.bytes, self.account);
    }
}

impl StagedPageTable {
    pub(crate) fn new(
        settings: &WorkerPopulateSettings,
        tenants: Arc<TenantAccounts>,
        metrics: WorkerMetrics,
    ) -> Arc<Self> {
        metrics.staged_bytes_max.set(i64::try_from(settings.staged_max.0).unwrap_or(i64::MAX));
        Arc::new(Self {
            state: Mutex::default(),
            bytes_max: settings.staged_max.0,
            writes_max: settings.writes_max as usize,
            kept_for: settings.staged_for.0,
            tenants,
            metrics,
        })
    }

    /// Returns how long pages are kept that nobody settles.
    pub(crate) fn kept_for(&self) -> Duration {
        self.kept_for
    }

    /// Takes a place for pages that are about to come. From now on the write can be settled: pages
    /// that come later are nobody's.
    pub(crate) fn reserve_place(
        self: &Arc<Self>,
        coming: ComingPages,
    ) -> Result<StageReservation, StageError> {
        let ComingPages { token, owner, account, bytes, now } = coming;
        if self.bytes_max == 0 {
            return Err(StageError::Off);
        }
        let mut state = self.state.lock();
        let state = &mut *state;
        if bytes > self.bytes_max.saturating_sub(state.bytes) {
            return Err(StageError::Bytes);
        }
        match state.writes.get(&token) {
            Some(known) if known.owner != owner || known.account != account => {
                return Err(StageError::OtherOwner);
            }
            None if state.writes.len() >= self.writes_max => return Err(StageError::Writes),
            _ => {}
        }
        let next_serial = &mut state.next_serial;
        let write = state.writes.entry(token).or_insert_with(|| {
            *next_serial += 1;
            StagedWrite {
                owner,
                account,
                pages: HashMap::new(),
                serial: *next_serial,
                coming: 0,
                width: 0,
                touched: now,
            }
        });
        write.coming += 1;
        write.touched = now;
        let serial = write.serial;
        state.bytes += bytes;
        self.tenants.add_held(TenantTier::Memory, account, bytes);
        self.metrics.staged_bytes.set(state.bytes as i64);
        Ok(StageReservation { table: self.clone(), token, serial, bytes, account })
    }

    /// Keeps pages that have come. A page that is there already is replaced: its question was asked
    /// again. What was taken beyond the pages is given back.
    pub(crate) fn add_pages(
        &self,
        pages: Vec<StagedPage>,
        now: WorkerInstant,
        mut taken: StageReservation,
    ) -> Result<(), StageError> {
        // Locals end before parameters: the lock is free again when `taken` takes it.
        let mut state = self.state.lock();
        let write = state.find_write(taken.token, taken.serial).ok_or(StageError::Settled)?;
        write.touched = now;
        let mut replaced = 0;
        for page in pages {
            taken.bytes -= page.width;
            write.width += page.width;
            if let Some(before) = write.pages.insert((page.block, page.page), page) {
                write.width -= before.width;
                replaced += before.width;
            }
        }
        self.release_bytes(&mut state, replaced, taken.account);
        Ok(())
    }

    /// Takes the pages of a token out, if they are staged for this owner. They count as staged no
    /// more.
    pub(crate) fn take_write(
        &self,
        token: PopulateToken,
        owner: &StageOwner,
    ) -> Option<StagedWrite> {
        let mut state = self.state.lock();
        if state.writes.get(&token)?.owner != *owner {
            return None;
        }
        self.remove_write(&mut state, token)
    }

    /// Gives up the write whose last page is the oldest. Returns false if none has pages. Looks at
    /// every write: there are `writes_max` at most, and memory has run out.
    pub(crate) fn give_up_oldest(&self) -> bool {
        let mut state = self.state.lock();
        let with_pages = state.writes.iter().filter(|(_, write)| !write.pages.is_empty());
        let oldest = with_pages.min_by_key(|(_, write)| write.touched);
        let Some((&token, _)) = oldest else { return false };
        let given_up = self.remove_write(&mut state, token);
        drop(state);
        self.count_end(StagedEnd::Room, given_up.as_ref());
        given_up.is_some()
    }

    /// Gives up what nobody has settled in time.
    pub(crate) fn sweep_expired(&self, now: WorkerInstant) {
        let mut state = self.state.lock();
        let is_expired = |write: &StagedWrite| now.duration_since(write.touched) >= self.kept_for;
        let expired: Vec<PopulateToken> = state
            .writes
            .iter()
            .filter(|(_, write)| is_expired(write))
            .map(|(&token, _)| token)
            .collect();
        let given_up: Vec<StagedWrite> =
            expired.into_iter().filter_map(|token| self.remove_write(&mut state, token)).collect();
        // Their cells go back without the lock.
        drop(state);
        for write in given_up {
            self.count_end(StagedEnd::Expired, Some(&write));
        }
    }

    /// Counts what became of staged pages.
    pub(crate) fn count_end(&self, end: StagedEnd, write: Option<&StagedWrite>) {
        let pages = write.map_or(0, |write| write.pages.len());
        self.metrics.staged_pages[end].inc_by(pages as u64);
    }

    fn remove_write(
        &self,
        state: &mut StagedTableState,
        token: PopulateToken,
    ) -> Option<StagedWrite> {
        let write = state.writes.remove(&token)?;
        self.release_bytes(state, write.width, write.account);
        Some(write)
    }

    fn release_bytes(&self, state: &mut StagedTableState, bytes: u64, account: TenantAccount) {
        state.bytes -= bytes;
        self.tenants.take_held(TenantTier::Memory, account, bytes);
        self.metrics.staged_bytes.set(state.bytes as i64);
    }

    #[cfg(test)]
    pub(crate) fn staged_bytes(&self) -> u64 {
        self.state.lock().bytes
    }
}
