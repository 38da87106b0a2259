//! Answers `HeadListMessage`: says of many objects what an open would say of each from memory.

use verbs3_protocol::{
    AbsentReply, AttributeLease, HeadAttributes, HeadListMessage, HeadListReply, LISTED_HEADS_MAX,
    ObjectKey, OpenAnswer, OpenMessage, OpenObjectReply, UfsAnswer,
};

use super::MESSAGE_BYTES_MAX;
use crate::attributes::ObjectPresence;
use crate::metrics::CountedRequest;
use crate::serve_refusal::ServeRefusal;
use crate::tenants::TenantAccount;
use crate::worker::CacheWorker;

/// Bytes of a head besides its texts: lengths, numbers, and what else a message holds. An upper
/// bound.
const HEAD_BYTES: usize = 128;
/// Bytes of a message beside its heads: kind, count, and a mark for each.
const LIST_BYTES: usize = 16 + LISTED_HEADS_MAX;
/// Bytes of a header besides its name and value: two lengths.
const HEADER_BYTES: usize = 6;

impl CacheWorker {
    pub(super) fn answer_head_list(
        &self,
        list: HeadListMessage,
        account: TenantAccount,
    ) -> Result<HeadListReply, ServeRefusal> {
        self.metrics.requests[CountedRequest::HeadList].inc();
        self.home
            .standing
            .is_at(list.epoch)
            .map_err(|denied| ServeRefusal::for_denial(denied, list.epoch))?;
        if list.keys.len() > LISTED_HEADS_MAX {
            return Err(ServeRefusal::ObjectCount(list.keys.len()));
        }
        let HeadListMessage { volume, epoch, geometry, .. } = list;
        let mut room = MESSAGE_BYTES_MAX - LIST_BYTES;
        let mut heads = Vec::with_capacity(list.keys.len());
        for key in list.keys {
            let open = OpenMessage {
                object: ObjectKey { volume: volume.clone(), key },
                version_id: None,
                epoch,
                geometry,
                attributes_age_ms_max: list.attributes_age_ms_max,
                absence_age_ms_max: list.absence_age_ms_max,
                checksums: false,
                want: None,
                piece_bytes_max: 0,
                holder: None,
            };
            let head = self.recall_head(open, account).filter(|head| {
                let left = room.checked_sub(head_bytes(head));
                room = left.unwrap_or(room);
                left.is_some()
            });
            heads.push(head);
        }
        Ok(HeadListReply { heads })
    }

    /// Returns what an open would answer from memory. `None`: it would have to ask the UFS, or
    /// would refuse.
    fn recall_head(&self, open: OpenMessage, account: TenantAccount) -> Option<OpenAnswer> {
        let opening = self.home.begin_open(open, account, 0).ok()?;
        let known = self.home.find_known(&opening)?;
        let generation = known.generation;
        Some(match &known.found {
            ObjectPresence::Present(attributes) => OpenAnswer::Opened(Box::new(OpenObjectReply {
                attributes: HeadAttributes::clone(attributes),
                generation,
                lease: AttributeLease::default(),
                attributes_cached: true,
                piece: None,
            })),
            ObjectPresence::Absent(answer) => {
                self.metrics.absences.inc();
                let (answer, lease) = (UfsAnswer::clone(answer), AttributeLease::default());
                OpenAnswer::Absent(AbsentReply { answer, generation, lease, cached: true })
            }
        })
    }
}

/// Returns an upper bound of a head's bytes in the message.
fn head_bytes(head: &OpenAnswer) -> usize {
    let (headers, texts) = match head {
        OpenAnswer::Opened(opened) => {
            let version = &opened.attributes.version;
            let id = version.version_id.as_ref().map_or(0, String::len);
            (&opened.attributes.headers, version.etag.len() + id)
        }
        OpenAnswer::Absent(absent) => (&absent.answer.headers, absent.answer.body.len()),
    };
    let pairs = headers.fields().map(|(name, value)| name.len() + value.len() + HEADER_BYTES);
    HEAD_BYTES + texts + pairs.sum::<usize>()
}
