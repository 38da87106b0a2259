//! Opens many objects at once for their attributes: by leases, and by one message to each home.
//!
//! Answers what homes know from memory. All else is the caller's to open one by one, with all that
//! an open has: another home, the store beside a silent one.

use std::sync::Arc;

use futures::future::join_all;
use tokio::time::Instant;
use verbs3_protocol::{
    HeadListMessage, HeadListReply, LISTED_HEADS_MAX, ObjectKey, ObjectVolume, OpenAnswer,
    TenantTag, is_strong_etag,
};
use verbs3_rdma::transport::TransportKind;

use crate::asking::home_batches::OfKey;
use crate::asking::single_answer::{
    AnswerFlaw, AnswerPatience, EncodedQuestion, QuestionError, SentQuestion,
};
use crate::asking::worker::TierWorker;
use crate::asking::worker_map::TierWorkerMap;
use crate::metrics::CallOutcome;
use crate::reading::open::ObjectOpener;
use crate::reading::open_request::OpenRequest;
use crate::reading::opened_object::{LeaseAnswer, OpenOutcome, OpenedObject};

/// Objects of one volume, and how fresh their attributes have to be.
#[derive(Debug, Clone)]
pub struct HeadListRequest {
    pub volume: ObjectVolume,
    pub keys: Vec<String>,
    /// 0 asks the UFS every time, `u64::MAX` never again.
    pub attributes_age_ms_max: u64,
    pub absence_age_ms_max: u64,
    /// The tenant that the client belongs to.
    pub tenant: Option<TenantTag>,
}

/// A key, and its position in the request.
struct NumberedKey(usize, String);

impl OfKey for NumberedKey {
    fn entry_key(&self) -> &str {
        &self.1
    }

    fn wire_bytes(&self) -> usize {
        self.1.wire_bytes()
    }
}

impl ObjectOpener {
    /// Opens objects for their attributes. Returns the outcomes in the order of the keys. `None`:
    /// nothing is known without the UFS; open the object.
    pub(crate) async fn open_heads(&self, request: &HeadListRequest) -> Vec<Option<OpenOutcome>> {
        let mut outcomes: Vec<Option<OpenOutcome>> = request.keys.iter().map(|_| None).collect();
        let map = self.asker.placement.current_map();
        let mut asked = Vec::with_capacity(request.keys.len());
        for (at, key) in request.keys.iter().enumerate() {
            match self.open_leased_head(request, key).await {
                Some(known) => outcomes[at] = Some(known),
                None => asked.push(NumberedKey(at, key.clone())),
            }
        }
        let mut calls = Vec::new();
        for (home, group) in map.by_home(&request.volume, asked) {
            // A list is no trial of a home that rests: the opens that follow are.
            if !home.health.is_up() {
                continue;
            }
            let mut group = group.into_iter().peekable();
            while group.peek().is_some() {
                let (places, keys): (Vec<usize>, Vec<String>) = group
                    .by_ref()
                    .take(LISTED_HEADS_MAX)
                    .map(|NumberedKey(at, key)| (at, key))
                    .unzip();
                calls.push(self.open_heads_at(home.clone(), &map, request, places, keys));
            }
        }
        for (places, heads) in join_all(calls).await {
            for (at, head) in places.into_iter().zip(heads) {
                outcomes[at] = head;
            }
        }
        outcomes
    }

    async fn open_leased_head(&self, request: &HeadListRequest, key: &str) -> Option<OpenOutcome> {
        if !self.leases.are_wanted() {
            return None;
        }
        let open = OpenRequest {
            object: Arc::new(ObjectKey { volume: request.volume.clone(), key: key.to_owned() }),
            version_id: None,
            attributes_age_ms_max: request.attributes_age_ms_max,
            absence_age_ms_max: request.absence_age_ms_max,
            checksums: false,
            want: None,
            silence: None,
            trace: None,
            tenant: request.tenant,
            place: None,
        };
        match self.open_leased(&open).await {
            LeaseAnswer::Known(outcome) => Some(outcome),
            LeaseAnswer::AskHome | LeaseAnswer::AskWhole(_) => None,
        }
    }

    /// Asks one home. A home that has not answered soon is left to the opens that follow, which
    /// judge it.
    async fn open_heads_at(
        &self,
        home: Arc<TierWorker>,
        map: &TierWorkerMap,
        request: &HeadListRequest,
        places: Vec<usize>,
        keys: Vec<String>,
    ) -> (Vec<usize>, Vec<Option<OpenOutcome>>) {
        let asked = keys.len();
        let question = EncodedQuestion::for_tenant(
            HeadListMessage {
                volume: request.volume.clone(),
                epoch: map.placement.map_epoch(),
                geometry: self.asker.options.geometry,
                attributes_age_ms_max: request.attributes_age_ms_max,
                absence_age_ms_max: request.absence_age_ms_max,
                keys,
            },
            request.tenant,
        );
        let patience =
            AnswerPatience::Until(Instant::now() + self.asker.options.settings.hedge_after.0);
        let mut sent = SentQuestion::new(&home, &question);
        let answer = sent.wait_for_answer(patience, || {}).await;
        let answer = answer.and_then(|answer| check_answer(answer, asked));
        let outcome = answer.as_ref().map_or_else(QuestionError::call_outcome, |_| CallOutcome::Ok);
        self.asker.metrics.count_call(question.kind, outcome);
        let heads = match (answer, sent.transport_kind()) {
            (Ok(HeadListReply { heads }), Some(transport)) => {
                home.health.note_success();
                heads
                    .into_iter()
                    .map(|head| head.map(|head| opened_head(head, transport)))
                    .collect()
            }
            (Ok(_), None) => Vec::new(),
            (Err(error), _) => {
                if matches!(error, QuestionError::Refused(_)) {
                    home.health.note_success();
                }
                tracing::debug!(worker = %home.id, %error, "a home did not answer a list of heads");
                Vec::new()
            }
        };
        (places, heads)
    }
}

fn check_answer(answer: HeadListReply, asked: usize) -> Result<HeadListReply, QuestionError> {
    let found = answer.heads.len();
    if found != asked {
        return Err(AnswerFlaw::OtherCount { found, asked }.into());
    }
    let is_strong = |head: &OpenAnswer| match head {
        OpenAnswer::Opened(opened) => is_strong_etag(&opened.attributes.version.etag),
        OpenAnswer::Absent(_) => true,
    };
    match answer.heads.iter().flatten().all(is_strong) {
        true => Ok(answer),
        false => Err(AnswerFlaw::WeakVersion.into()),
    }
}

fn opened_head(head: OpenAnswer, transport: TransportKind) -> OpenOutcome {
    match head {
        OpenAnswer::Opened(reply) => OpenOutcome::Found(Box::new(OpenedObject {
            reply: *reply,
            data: Vec::new(),
            transport: Some(transport),
            rest: None,
            covered: 0..0,
        })),
        OpenAnswer::Absent(absent) => OpenOutcome::Absent(absent),
    }
}
