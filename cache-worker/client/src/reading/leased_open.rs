//! Opens objects by leases on their attributes or absence, without a question to their homes.
//!
//! Judges no lease and holds no bytes itself: `lease_table` does. What it can't answer is the
//! home's to answer (`open`).

use std::ops::Range;

use bytes::Bytes;
use verbs3_protocol::{
    AbsentReply, AttributeLease, BlockIndex, ByteRange, OpenObjectReply, SPREAD_BYTES_MIN,
};

use crate::metrics::LeasedOpenKind;
use crate::reading::held_lease::{HeldLease, LeasedPresence};
use crate::reading::open::ObjectOpener;
use crate::reading::open_request::OpenRequest;
use crate::reading::opened_object::{LeaseAnswer, OpenOutcome, OpenedObject};
use crate::reading::piece_slices::slice_pieces;

impl ObjectOpener {
    /// Opens an object by a lease, judged now. The bytes of a small object may be held beside it.
    /// Otherwise spans bring the bytes, as in later blocks, unless they are few: then they fit into
    /// the round trip to the home.
    pub(super) async fn open_leased(&self, request: &OpenRequest) -> LeaseAnswer {
        if !self.leases.are_wanted() {
            return LeaseAnswer::AskHome;
        }
        let map = self.asker.placement.current_map();
        let Some(held) = self.leases.find_valid(&map, request).await else {
            return LeaseAnswer::AskHome;
        };
        let object = match &held.found {
            LeasedPresence::Present(object) => object,
            LeasedPresence::Absent(answer) => {
                let (answer, generation, lease) =
                    (answer.clone(), held.generation, AttributeLease::default());
                self.count_leased(&held, LeasedOpenKind::Absence);
                let absent = AbsentReply { answer, generation, lease, cached: true };
                return LeaseAnswer::Known(OpenOutcome::Absent(absent));
            }
        };
        let object_bytes = object.attributes.version.bytes;
        let wanted = self.of_first_block(request, object_bytes);
        let bytes = if wanted.is_empty() { None } else { object.read_bytes() };
        let may_hold = self.leases.may_hold_object(object_bytes);
        let wanted_bytes = wanted.end.saturating_sub(wanted.start);
        let is_spread = wanted_bytes >= u64::from(SPREAD_BYTES_MIN) && !may_hold;
        if bytes.is_none() && !wanted.is_empty() && !is_spread {
            let is_part = wanted != (0..object_bytes);
            let widens = is_part && may_hold && object.should_widen();
            return if widens { LeaseAnswer::AskWhole(object_bytes) } else { LeaseAnswer::AskHome };
        }
        let kind = if request.want.is_some() { LeasedOpenKind::Read } else { LeasedOpenKind::Head };
        self.count_leased(&held, kind);
        let (attributes, generation, lease) =
            (object.attributes.clone(), held.generation, AttributeLease::default());
        let reply =
            OpenObjectReply { attributes, generation, lease, attributes_cached: true, piece: None };
        if let Some(bytes) = bytes {
            self.asker.metrics.small_object_reads.inc();
            return LeaseAnswer::found(held_object(reply, &bytes, wanted));
        }
        let drawn =
            (!wanted.is_empty()).then(|| map.draw_worker(&request.object, BlockIndex(0))).flatten();
        LeaseAnswer::found(self.found_by_span(request, reply, object.transport, &map, drawn))
    }

    fn count_leased(&self, held: &HeldLease, kind: LeasedOpenKind) {
        held.note_answer();
        self.asker.metrics.leased[kind].inc();
    }

    /// Opens the whole of a small object of which a part is wanted, so that its bytes are held.
    /// `None`: it has changed into something else, or the tier has no room for all of it. The part
    /// itself has to be asked for.
    pub(super) async fn open_whole(
        &self,
        request: &OpenRequest,
        object_bytes: u64,
    ) -> Option<OpenOutcome> {
        // The landing is as long as the range. Bytes that are to be held land here.
        let all = ByteRange::From { first: 0, last: Some(object_bytes.saturating_sub(1)) };
        let whole = OpenRequest { want: Some(all), place: None, ..request.clone() };
        let found = match self.open_at_home(&whole).await {
            OpenOutcome::Found(found) => found,
            OpenOutcome::Bypass(_) => return None,
            other => return Some(other),
        };
        let object_bytes = found.reply.attributes.version.bytes;
        let is_whole = found.covered == (0..object_bytes) && found.rest.is_none();
        let wanted = request.want.and_then(|want| want.resolve_range(object_bytes));
        let wanted = wanted.filter(|_| is_whole)?;
        let data = slice_pieces(&found.data, &wanted);
        Some(OpenOutcome::Found(Box::new(OpenedObject { data, covered: wanted, ..*found })))
    }
}

/// Returns an object of which all is held here.
fn held_object(reply: OpenObjectReply, bytes: &Bytes, wanted: Range<u64>) -> OpenedObject {
    let data = slice_pieces(std::slice::from_ref(bytes), &wanted);
    OpenedObject { reply, data, transport: None, rest: None, covered: wanted }
}
