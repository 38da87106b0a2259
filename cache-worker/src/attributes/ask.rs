//! Sends the checks: one GET where the wanted bytes begin in block 0, so that attributes and first
//! pages come in one round trip; else a HEAD. The GET is of a range, unless the object is known to
//! fit: only an answer to a GET of all says by itself that the object has no checksums.
//!
//! Tasks belong to the worker: a reader that goes away takes no answer from those who wait for the
//! same check.

use std::ops::RangeInclusive;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use verbs3_protocol::{Attributes, Generation, RefusalKind};
use verbs3_ufs::{ObjectHead, ObjectStream, RawAnswer, ReadObject, UfsError};

use super::cache::{Cache, Found, Known, Needs};
use super::checks::{Asking, Checks, Joined, Plan, Sent, Waiting};
use super::coherence::Coherence;
use super::grants::{Concerned, Grants};
use super::{Outcome, Subject, identity};
use crate::clock::Clock;
use crate::digest::Digests;
use crate::fill::{Failure, Filler, Interest, Target, answer};
use crate::metrics::Metrics;
use crate::tasks::Tasks;
use crate::trace::ask_ufs;

/// Asks a UFS about objects.
pub(crate) struct Asker {
    pub(crate) coherence: Arc<Coherence>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) checks: Checks,
    pub(crate) grants: Arc<Grants>,
    pub(crate) filler: Arc<Filler>,
    pub(crate) digests: Digests,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tasks: Tasks,
    pub(crate) stop: CancellationToken,
    pub(crate) metrics: Metrics,
}

/// What the UFS said, before it is known whether it may be kept.
enum Answered {
    Present(Attributes, Option<Interest>),
    Absent(RawAnswer),
    /// Two answers of the UFS contradict each other: the object changes under the check.
    Changing,
    Refused(RefusalKind, String),
}

impl Asker {
    /// A check whose answer the asker may have: someone else's, or one that is sent now. `None`:
    /// too many are under way.
    pub(crate) fn check(
        self: &Arc<Self>,
        subject: &Subject,
        plan: Plan,
        asking: &Asking,
    ) -> Option<Waiting> {
        match self.checks.join(subject.key, plan, asking, self.clock.now()) {
            Joined::Waits(waiting) => {
                self.metrics.attributes_joined.inc();
                Some(waiting)
            }
            Joined::Sends(waiting, sent) => {
                self.metrics.attributes_checked.inc();
                self.tasks.spawn(self.clone().send_all(subject.clone(), sent));
                Some(waiting)
            }
            Joined::Full => {
                self.metrics.busy_checks.inc();
                None
            }
        }
    }

    /// Sends a check, and the next ones as long as anyone waits for one. May be cancelled: who
    /// waits is told by the channel's end.
    async fn send_all(self: Arc<Self>, subject: Subject, sent: Sent) {
        self.metrics.checks_in_flight.inc();
        let mut sending = Sending { asker: &self, subject: &subject, finished: false };
        let mut sent = Some(sent);
        while let Some(now) = sent.take() {
            let outcome = self.outcome(&subject, &now).await;
            now.answer.send_replace(Some(Arc::new(outcome)));
            sent = self
                .checks
                .next(subject.key, self.clock.now(), || self.coherence.generation(subject.hash));
        }
        sending.finished = true;
    }

    async fn outcome(&self, subject: &Subject, sent: &Sent) -> Outcome {
        let times = self.clock.times();
        match self.coherence.admit(subject.hash, times.now) {
            Ok(generation) if generation == sent.generation => {}
            Ok(_) => return Outcome::Moved,
            Err(_) => return Outcome::Uncertain,
        }
        let answered = tokio::select! {
            biased;
            () = self.stop.cancelled() => Answered::Refused(RefusalKind::Busy,
                "the worker shuts down".into()),
            answered = self.ask(subject, &sent.plan) => answered,
        };
        if !self.coherence.holds(subject.hash, sent.generation, self.clock.now()) {
            self.metrics.checks_moved.inc();
            return Outcome::Moved;
        }
        let (found, is_worth_it, coming) = match answered {
            Answered::Present(attributes, coming) => {
                (Found::Present(Arc::new(attributes)), true, coming)
            }
            Answered::Absent(raw) => {
                let is_worth_it = identity::names_an_absence(&raw);
                (Found::Absent(Arc::new(answer(&raw))), is_worth_it, None)
            }
            Answered::Changing => return Outcome::Moved,
            Answered::Refused(kind, reason) => return Outcome::Refused(kind, reason),
        };
        // False: it is older than what somebody has seen meanwhile.
        let keep = |generation: Generation| {
            self.checks.settle(subject.key, &found, || {
                if is_worth_it {
                    let found = found.clone();
                    let (asked, missed) = (sent.began, times.missed());
                    let known = Known { generation, asked, missed, found };
                    self.cache.insert(subject.key, known);
                }
            })
        };
        let recalled = self.recall_older(subject, sent.generation, &found).await;
        let Some(generation) = recalled.filter(|&generation| keep(generation)) else {
            self.metrics.checks_moved.inc();
            return Outcome::Moved;
        };
        match found {
            Found::Present(attributes) => Outcome::Present { attributes, generation, coming },
            Found::Absent(answer) => Outcome::Absent { answer, generation },
        }
    }

    /// Before an answer is given to anyone: no gateway reads on from older attributes by a lease.
    /// They are void under the generation that the answer may be kept under. `None`: something else
    /// made void what was asked.
    async fn recall_older(
        &self,
        subject: &Subject,
        generation: Generation,
        found: &Found,
    ) -> Option<Generation> {
        // Leases are on what is current, never on a version that a client named.
        if subject.version_id.is_some() {
            return Some(generation);
        }
        let now = self.clock.now();
        // What is not known here any more may be leased yet. Who recalled a lease waits for it.
        let is_leased_unseen = || self.grants.is_unrecalled(subject.hash, now);
        let replaced = self.cache.is_replaced(subject.key, generation, found);
        if !replaced.unwrap_or_else(is_leased_unseen) {
            return Some(generation);
        }
        self.metrics.generations_raised.inc();
        let raised = self.coherence.raise(&[subject.hash], now);
        let concerned = Concerned::Keys(vec![subject.hash]);
        tokio::select! {
            biased;
            () = self.stop.cancelled() => return None,
            () = self.grants.settled(&concerned, &*self.clock) => {}
        }
        let is_alone = raised.0 == generation.0 + 1;
        (is_alone && self.coherence.holds(subject.hash, raised, self.clock.now())).then_some(raised)
    }

    async fn ask(&self, subject: &Subject, plan: &Plan) -> Answered {
        match &plan.get {
            // Not for pages that a former owner has: a question without bytes, and they come from
            // there.
            Some(range) if !self.filler.former_holds(subject, *range.start()).await => {
                match plan.whole {
                    Some(bytes) => self.ask_whole(subject, range.clone(), bytes, plan.needs).await,
                    None => self.ask_get(subject, range.clone(), plan.needs).await,
                }
            }
            _ => self.ask_head(subject, plan.needs).await,
        }
    }

    /// Asks for all of an object that is likely to have so many `bytes`.
    async fn ask_whole(
        &self,
        subject: &Subject,
        range: RangeInclusive<u64>,
        bytes: u64,
        needs: Needs,
    ) -> Answered {
        let turn = match self.filler.turn(bytes).await {
            Ok(turn) => turn,
            Err(failure) => return refused_by(&failure),
        };
        self.metrics.ufs_gets.inc();
        let ufs = &subject.source.ufs;
        let stream =
            match ask_ufs(ufs, "GetObject", ufs.read(question(subject, needs.checksums))).await {
                Ok(stream) => stream,
                Err(error) => return refused_by_ufs(error),
            };
        if stream.head.bytes > bytes {
            // It has grown. What is left of this answer's body is not read.
            drop((stream, turn));
            return self.ask_get(subject, range, needs).await;
        }
        let version = match identity::version(&stream.head, subject.version_id.as_deref()) {
            Ok(version) => version,
            Err(error) => return Answered::Refused(RefusalKind::Uncacheable, error.to_string()),
        };
        let attributes = identity::attributes(&stream.head, version, needs.checksums);
        let coming = self.start(subject, &attributes, stream, turn);
        Answered::Present(attributes, coming)
    }

    async fn ask_get(
        &self,
        subject: &Subject,
        range: RangeInclusive<u64>,
        needs: Needs,
    ) -> Answered {
        let turn = match self.filler.turn(range.end() - range.start() + 1).await {
            Ok(turn) => turn,
            Err(failure) => return refused_by(&failure),
        };
        self.metrics.ufs_gets.inc();
        let read = ReadObject { range: Some(range), ..question(subject, needs.checksums) };
        let ufs = &subject.source.ufs;
        let stream = match ask_ufs(ufs, "GetObject", ufs.read(read)).await {
            Ok(stream) => stream,
            // Empty, or shorter than the first wanted byte: only its attributes can be asked.
            Err(UfsError::Answer { answer, .. }) if answer.status.as_u16() == 416 => {
                drop(turn);
                return self.ask_head(subject, needs).await;
            }
            Err(error) => return refused_by_ufs(error),
        };
        if let Some(refused) = beyond_ranges(subject, &stream.head) {
            return refused;
        }
        let version = match identity::version(&stream.head, subject.version_id.as_deref()) {
            Ok(version) => version,
            Err(error) => return Answered::Refused(RefusalKind::Uncacheable, error.to_string()),
        };
        let covers_all = stream.range == (0..stream.head.bytes);
        let own_checksums = identity::has_own_checksums(&stream.head, covers_all);
        let attributes = identity::attributes(&stream.head, version, own_checksums);
        let coming = self.start(subject, &attributes, stream, turn);
        if !needs.checksums || own_checksums {
            return Answered::Present(attributes, coming);
        }
        self.with_checksums(subject, attributes, coming).await
    }

    fn start(
        &self,
        subject: &Subject,
        attributes: &Attributes,
        stream: ObjectStream,
        turn: crate::fill::Turn,
    ) -> Option<Interest> {
        let target = Target {
            source: subject.source.clone(),
            object: subject.object.clone(),
            digest: self.digests.version(&subject.object, &attributes.version),
            version: attributes.version.clone(),
        };
        self.filler.start_answered(Arc::new(target), stream, turn)
    }

    /// The checksums that a ranged answer does not have. Where the UFS won't say, the object is
    /// answered without.
    async fn with_checksums(
        &self,
        subject: &Subject,
        got: Attributes,
        coming: Option<Interest>,
    ) -> Answered {
        self.metrics.ufs_heads.inc();
        let read =
            ReadObject { if_match: Some(got.version.etag.clone()), ..question(subject, true) };
        let ufs = &subject.source.ufs;
        match ask_ufs(ufs, "HeadObject", ufs.head(read)).await {
            Ok(head) => match identity::version(&head, subject.version_id.as_deref()) {
                // Its headers may be fewer than the GET's, which clients of a GET are owed.
                Ok(version) if version == got.version => match identity::with_checksums(got, &head)
                {
                    Some(attributes) => Answered::Present(attributes, coming),
                    None => Answered::Changing,
                },
                _ => Answered::Changing,
            },
            Err(error) if error.version_changed() => Answered::Changing,
            Err(UfsError::Answer { answer, .. }) if answer.status.as_u16() == 404 => {
                Answered::Changing
            }
            Err(error) => {
                tracing::debug!(object = %subject.object, %error, "no checksums for this object");
                Answered::Present(got, coming)
            }
        }
    }

    async fn ask_head(&self, subject: &Subject, needs: Needs) -> Answered {
        self.metrics.ufs_heads.inc();
        let ufs = &subject.source.ufs;
        let head = ufs.head(question(subject, needs.checksums));
        let error = match ask_ufs(ufs, "HeadObject", head).await {
            Ok(head) => return present(subject, &head, needs.checksums),
            Err(error) => error,
        };
        let Some(raw) = error.answer() else { return refused_by_ufs(error) };
        // An error to a HEAD has no body. The client of a GET is owed one; and only its code tells
        // the absence of a key, which may be kept, from that of a bucket.
        let absent = raw.status.as_u16() == 404 && !identity::is_delete_marker(raw);
        if !needs.error_body && (!absent || identity::names_an_absence(raw)) {
            return refused_by_ufs(error);
        }
        self.metrics.ufs_gets.inc();
        let read = ReadObject { range: Some(0..=0), ..question(subject, false) };
        match ask_ufs(ufs, "GetObject", ufs.read(read)).await {
            Ok(_) => Answered::Changing,
            Err(UfsError::Answer { answer, .. }) if answer.status.as_u16() == 416 => {
                Answered::Changing
            }
            Err(UfsError::Answer { answer, .. }) if answer.status.as_u16() == 404 => {
                Answered::Absent(*answer)
            }
            // The HEAD's own answer is all that its client needs; it is not kept.
            Err(_) if !needs.error_body => refused_by_ufs(error),
            Err(error) => refused_by_ufs(error),
        }
    }
}

/// Refuses an object whose later blocks can't be asked for: its UFS ignores `Range`, and would send
/// them behind all that comes before.
fn beyond_ranges(subject: &Subject, head: &ObjectHead) -> Option<Answered> {
    let start_max =
        subject.source.ufs.range_start_max().filter(|&start_max| head.bytes > start_max)?;
    let reason = format!(
        "the ufs ignores Range, and the object has more than {start_max} bytes (skip_bytes_max)"
    );
    Some(Answered::Refused(RefusalKind::Uncacheable, reason))
}

fn present(subject: &Subject, head: &ObjectHead, checksums: bool) -> Answered {
    if let Some(refused) = beyond_ranges(subject, head) {
        return refused;
    }
    match identity::version(head, subject.version_id.as_deref()) {
        Ok(version) => Answered::Present(identity::attributes(head, version, checksums), None),
        Err(error) => Answered::Refused(RefusalKind::Uncacheable, error.to_string()),
    }
}

fn question(subject: &Subject, checksums: bool) -> ReadObject {
    ReadObject {
        bucket: subject.source.bucket.clone(),
        key: subject.object.key.clone(),
        version_id: subject.version_id.clone(),
        if_match: None,
        range: None,
        checksums,
    }
}

fn refused_by(failure: &Failure) -> Answered {
    let (kind, reason) = failure.refusal();
    Answered::Refused(kind, reason)
}

fn refused_by_ufs(error: UfsError) -> Answered {
    let reason = error.to_string();
    match error {
        UfsError::Answer { answer: raw, .. } if raw.status.as_u16() == 404 => {
            Answered::Absent(*raw)
        }
        UfsError::Answer { answer: raw, .. } => {
            Answered::Refused(RefusalKind::Ufs(answer(&raw)), reason)
        }
        // The gateway passes on what the store says, whatever that is; the cache can't build on it.
        UfsError::Untrusted { .. } | UfsError::Changed { .. } => {
            Answered::Refused(RefusalKind::Uncacheable, reason)
        }
        UfsError::Throttled { .. } => Answered::Refused(RefusalKind::Busy, reason),
        UfsError::Unreachable { .. } | UfsError::Truncated { .. } => {
            Answered::Refused(RefusalKind::UfsUnreachable, reason)
        }
    }
}

/// A task that sends an object's checks. When it ends, by whatever, the object has none under way.
struct Sending<'a> {
    asker: &'a Asker,
    subject: &'a Subject,
    finished: bool,
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.asker.metrics.checks_in_flight.dec();
        if !self.finished {
            self.asker.checks.abandon(self.subject.key);
        }
    }
}
