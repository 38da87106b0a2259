//! Remembers the parts of multipart uploads that went through this gateway, until they are
//! completed. Owns the bounds on uploads and parts, and the guess where a part lies.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;
use prometheus::IntGauge;
use s3s::dto::ETag;
use verbs3_protocol::ObjectKey;

use super::staged_body::StagedBody;

/// An upload of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct UploadName {
    pub(super) object: ObjectKey,
    pub(super) upload: String,
}

/// A part that the store has.
pub(super) struct UploadedPart {
    pub(super) etag: ETag,
    pub(super) bytes: u64,
    /// Where it was taken to lie in the object.
    pub(super) offset: u64,
    /// `None`: its bytes were not copied.
    pub(super) body: Option<StagedBody>,
}

/// An upload of which parts went through here.
#[derive(Default)]
pub(super) struct RememberedUpload {
    parts: BTreeMap<i32, UploadedPart>,
    /// Length of part 1, once it has begun.
    first_bytes: Option<u64>,
    /// The longest part so far, of which it is guessed as long as part 1 has not begun.
    longest: u64,
    /// When it was used last, by the memory's own count.
    used: u64,
}

/// A completed object's parts, as far as they are known.
#[derive(Default)]
pub(super) struct PlacedParts {
    /// Copies that lie where they were taken to lie.
    pub(super) bodies: Vec<StagedBody>,
    pub(super) misplaced: Vec<StagedBody>,
    /// Copies of parts that the object does not have.
    pub(super) left_out: Vec<StagedBody>,
    /// Length of the object. `None`: some part's is not known.
    pub(super) bytes: Option<u64>,
}

#[derive(Default)]
struct UploadTable {
    uploads: HashMap<UploadName, RememberedUpload>,
    parts: usize,
    uses: u64,
}

pub(super) struct UploadMemory {
    table: Mutex<UploadTable>,
    uploads_max: usize,
    parts_max: usize,
    uploads_gauge: IntGauge,
    parts_gauge: IntGauge,
}

impl UploadMemory {
    pub(super) fn new(
        uploads_max: usize,
        parts_max: usize,
        [uploads_gauge, parts_gauge]: [IntGauge; 2],
    ) -> Self {
        Self { table: Mutex::default(), uploads_max, parts_max, uploads_gauge, parts_gauge }
    }

    /// Guesses where a part that begins lies in its object: behind parts of equal length. Also
    /// returns the copies of an upload that is forgotten for this one. `None`: it can't be.
    pub(super) fn guess_offset(
        &self,
        name: &UploadName,
        number: i32,
        bytes: u64,
    ) -> Option<(u64, Vec<StagedBody>)> {
        let before = u64::try_from(number.checked_sub(1)?).ok()?;
        let mut table = self.table.lock();
        let forgotten = match table.uploads.contains_key(name) {
            true => Vec::new(),
            false => table.make_room(self.uploads_max - 1, usize::MAX, name),
        };
        let used = table.next_use();
        let upload = table.uploads.entry(name.clone()).or_default();
        upload.used = used;
        upload.longest = upload.longest.max(bytes);
        if number == 1 {
            upload.first_bytes = Some(bytes);
        }
        let offset = upload.first_bytes.unwrap_or(upload.longest).checked_mul(before);
        self.set_gauges(&table);
        Some((offset?, forgotten))
    }

    /// Remembers a part that the store has. Returns the copies that are given up for it: that of an
    /// earlier part of its number, or of uploads that are forgotten.
    pub(super) fn remember_part(
        &self,
        name: &UploadName,
        number: i32,
        part: UploadedPart,
    ) -> Vec<StagedBody> {
        let mut table = self.table.lock();
        let mut given_up = table.make_room(usize::MAX, self.parts_max - 1, name);
        let (used, has_room) = (table.next_use(), table.parts < self.parts_max);
        match table.uploads.get_mut(name) {
            Some(upload) => {
                upload.used = used;
                let earlier = upload.parts.remove(&number);
                let adds = usize::from(earlier.is_none());
                given_up.extend(earlier.and_then(|earlier| earlier.body));
                if adds == 0 || has_room {
                    upload.parts.insert(number, part);
                    table.parts += adds;
                } else {
                    given_up.extend(part.body);
                }
            }
            // It was forgotten, completed or aborted meanwhile.
            None => given_up.extend(part.body),
        }
        self.set_gauges(&table);
        given_up
    }

    /// Takes an upload out, because it is over.
    pub(super) fn take_upload(&self, name: &UploadName) -> Option<RememberedUpload> {
        let mut table = self.table.lock();
        let taken = table.remove_upload(name);
        self.set_gauges(&table);
        taken
    }

    fn set_gauges(&self, table: &UploadTable) {
        self.uploads_gauge.set(table.uploads.len() as i64);
        self.parts_gauge.set(table.parts as i64);
    }
}

impl UploadTable {
    fn next_use(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    /// Forgets the uploads that were used least lately, until there are few enough of them and of
    /// their parts, but not `keep`. Returns their copies. Looks at each upload for each that is
    /// forgotten; usually that is one.
    fn make_room(
        &mut self,
        uploads_max: usize,
        parts_max: usize,
        keep: &UploadName,
    ) -> Vec<StagedBody> {
        let mut forgotten = Vec::new();
        while self.uploads.len() > uploads_max || self.parts > parts_max {
            let others = self.uploads.iter().filter(|(name, _)| *name != keep);
            let oldest = others.min_by_key(|(_, upload)| upload.used);
            let Some(name) = oldest.map(|(name, _)| name.clone()) else { break };
            forgotten.extend(
                self.remove_upload(&name).map(RememberedUpload::into_bodies).unwrap_or_default(),
            );
        }
        forgotten
    }

    fn remove_upload(&mut self, name: &UploadName) -> Option<RememberedUpload> {
        let removed = self.uploads.remove(name)?;
        self.parts -= removed.parts.len();
        Some(removed)
    }
}

impl RememberedUpload {
    /// Holds the parts of the completed object against those that went through here. A part with
    /// another ETag went elsewhere: its length is not known.
    pub(super) fn place_parts(mut self, listed: &[(i32, ETag)]) -> PlacedParts {
        // A store that sorts a list in another order, in place of a refusal, joins the parts otherwise.
        let ascends = listed.is_sorted_by(|(one, _), (next, _)| one < next);
        let mut placed = PlacedParts { bytes: ascends.then_some(0), ..PlacedParts::default() };
        for (number, etag) in listed {
            let known = self.parts.remove(number);
            let (same, other): (Vec<_>, Vec<_>) =
                known.into_iter().partition(|part| part.etag.value() == etag.value());
            placed.left_out.extend(other.into_iter().filter_map(|part| part.body));
            let Some(part) = same.into_iter().next() else {
                placed.bytes = None;
                continue;
            };
            let is_placed = placed.bytes == Some(part.offset);
            let bodies = if is_placed { &mut placed.bodies } else { &mut placed.misplaced };
            bodies.extend(part.body);
            placed.bytes = placed.bytes.and_then(|bytes| bytes.checked_add(part.bytes));
        }
        placed.left_out.extend(self.into_bodies());
        placed
    }

    /// Returns the copies of all parts.
    pub(super) fn into_bodies(self) -> Vec<StagedBody> {
        self.parts.into_values().filter_map(|part| part.body).collect()
    }
}
