//! Answers `Open`: attributes, and with them the wanted bytes of block 0.

use std::ops::Range;
use std::sync::Arc;

use verbs3_protocol::{
    Absent, Attributes, BlockIndex, ByteRange, Epoch, Generation, Holder, Lease, Open, Opened,
    RefusalKind, Reply as Message, UfsAnswer,
};
use verbs3_rdma::transport::Reply;

use super::{Chunk, Reading, Refused, bounded, end, plan, say, while_alive};
use crate::attributes::{Age, Ages, Asking, Found, Needs, Outcome, Plan, Subject};
use crate::clock::Moment;
use crate::fill::{Failure, Interest, Target};
use crate::worker::Worker;

/// Checks and fills tried for one open while writes pass. An object that changes as often within
/// one read is read at the UFS.
pub(super) const ATTEMPTS_MAX: usize = 4;

/// An open on its way to an answer.
pub(super) struct Opening {
    want: Option<ByteRange>,
    pub(super) subject: Subject,
    pub(super) epoch: Epoch,
    /// Who would have a lease with the answer.
    pub(super) holder: Option<Holder>,
    /// As it was asked for, whatever this worker may answer.
    pub(super) attributes_age: Age,
    needs: Needs,
    ages: Ages,
    pub(super) arrived: Moment,
    /// Most bytes to answer with.
    bytes_max: u64,
    /// How long the object is, as a listing shows it.
    pub(super) listed: Option<u64>,
}

/// What an open is answered with.
enum Answer<'a> {
    Present(Present<'a>),
    Absent { answer: Arc<UfsAnswer>, generation: Generation, cached: bool },
}

struct Present<'a> {
    attributes: Arc<Attributes>,
    generation: Generation,
    cached: bool,
    lease: Lease,
    /// The first bytes, and what brings the others.
    bytes: Option<(Chunk, Reading<'a>)>,
}

/// What is known of the object, and whence.
pub(super) struct Learnt {
    pub(super) found: Found,
    pub(super) generation: Generation,
    pub(super) cached: bool,
    /// When the UFS was asked, where that was not done for this open.
    pub(super) asked: Option<Moment>,
    /// Keeps the pages coming that were asked together with the attributes.
    outcome: Option<Arc<Outcome>>,
}

impl Learnt {
    pub(super) fn brought(&self) -> Option<&Interest> {
        match self.outcome.as_deref() {
            Some(Outcome::Present { coming, .. }) => coming.as_ref(),
            _ => None,
        }
    }
}

/// Why an attempt did not end in an answer.
pub(super) enum Missed {
    /// Worth another attempt.
    Again(Refused),
    Refused(Refused),
}

impl From<Refused> for Missed {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl Worker {
    pub(super) async fn serve_open(
        &self,
        open: Open,
        holder: Option<Holder>,
        landing_bytes: u64,
        mut reply: Reply,
    ) {
        self.metrics.opens.inc();
        let opening =
            self.opening(open, landing_bytes).map(|opening| Opening { holder, ..opening });
        let answer = match opening {
            Ok(opening) => match while_alive(&mut reply, self.answer_open(&opening)).await {
                Some(answer) => answer,
                None => return,
            },
            Err(refused) => Err(refused),
        };
        match answer {
            Ok(Answer::Present(present)) => self.send_opened(present, reply).await,
            Ok(Answer::Absent { answer, generation, cached }) => {
                self.metrics.absences.inc();
                let absent = Absent { answer: UfsAnswer::clone(&answer), generation, cached };
                say(reply, &Message::Absent(absent)).await;
            }
            Err(refused) => self.refuse(reply, refused).await,
        }
    }

    pub(super) fn opening(&self, open: Open, landing_bytes: u64) -> Result<Opening, Refused> {
        let times = self.clock.times();
        let arrived = times.now;
        let right = self.standing.to_answer(open.epoch, open.object.home_slot(), times);
        let right = right.map_err(|denied| Self::denied(denied, open.epoch))?;
        let right = right.within(self.voids.since(&open.object, arrived));
        self.check_geometry(open.geometry)?;
        let source = self.source(&open.object.volume)?;
        if open.version_id.as_deref() == Some("null") {
            // The null version is overwritten in place, and its pages can't be asked for by a name
            // of their own.
            return Err(Refused::new(RefusalKind::Uncacheable, "version id null names no version"));
        }
        let subject = Subject {
            hash: open.object.hash(),
            key: self.digests.attributes(&open.object, open.version_id.as_deref()),
            version_id: open.version_id,
            object: open.object,
            source,
        };
        let bytes_max = u64::from(open.piece_bytes_max).min(landing_bytes);
        let needs = Needs { checksums: open.checksums, error_body: open.want.is_some() };
        let (epoch, attributes_age) = (open.epoch, Age::from_ms(open.attributes_age_ms_max));
        let ages = Ages {
            attributes: attributes_age.within(right),
            absence: Age::from_ms(open.absence_age_ms_max).within(right),
        };
        let (want, holder, listed) = (open.want, None, None);
        Ok(Opening {
            want,
            subject,
            epoch,
            holder,
            attributes_age,
            needs,
            ages,
            arrived,
            bytes_max,
            listed,
        })
    }

    async fn answer_open(&self, opening: &Opening) -> Result<Answer<'_>, Refused> {
        let mut last = Refused::new(
            RefusalKind::Uncertain,
            "the object changes faster than it can be asked about",
        );
        for _ in 0..ATTEMPTS_MAX {
            match self.attempt(opening).await {
                Ok(answer) => return Ok(answer),
                Err(Missed::Refused(refused)) => return Err(refused),
                Err(Missed::Again(refused)) => last = refused,
            }
        }
        Err(last)
    }

    async fn attempt(&self, opening: &Opening) -> Result<Answer<'_>, Missed> {
        let learnt = self.learn(opening).await?;
        let attributes = match &learnt.found {
            Found::Present(attributes) => attributes.clone(),
            Found::Absent(answer) => {
                return Ok(Answer::Absent {
                    answer: answer.clone(),
                    generation: learnt.generation,
                    cached: learnt.cached,
                });
            }
        };
        let span =
            plan::span(opening.want, attributes.version.bytes, self.geometry, opening.bytes_max);
        let bytes = match span {
            Some(span) => Some(self.first_bytes(opening, &attributes, span, &learnt).await?),
            None => None,
        };
        let (generation, cached, lease) =
            (learnt.generation, learnt.cached, self.lease_on(opening, &learnt));
        Ok(Answer::Present(Present { attributes, generation, cached, lease, bytes }))
    }

    /// What the cache or the UFS knows of the object.
    pub(super) async fn learn(&self, opening: &Opening) -> Result<Learnt, Missed> {
        let subject = &opening.subject;
        let times = self.clock.times();
        let Ok(generation) = self.coherence.admit(subject.hash, times.now) else {
            return Err(uncertain().into());
        };
        let ages = opening.ages.at_most(self.coherence.doubted_age(subject.hash));
        let (key, needs) = (subject.key, opening.needs);
        if let Some(known) = self.attributes.get(key, generation, times, ages, needs) {
            self.metrics.attributes_hits.inc();
            let asked = known.asked_by(times);
            return Ok(Learnt {
                found: known.found,
                generation,
                cached: true,
                asked,
                outcome: None,
            });
        }
        // An absence may be asked for more often than attributes: who joins must accept the age of
        // either.
        let age = if accepts_less(ages) { ages.absence } else { ages.attributes };
        let asking = Asking { arrived: opening.arrived, age, generation };
        let plan = self.plan(opening, generation);
        let Some(mut waiting) = self.asker.check(subject, plan, &asking) else {
            let reason = "too many objects are being asked about; raise checks_in_flight_max";
            return Err(Refused::new(RefusalKind::Busy, reason).into());
        };
        // An error: the task that asked was dropped, which only a shutdown does.
        let outcome = match waiting.wait_for(Option::is_some).await {
            Ok(answered) => answered.clone(),
            Err(_) => None,
        };
        let Some(outcome) = outcome else { return Err(Refused::from(Failure::Stopping).into()) };
        let (found, generation) = match &*outcome {
            Outcome::Present { attributes, generation, .. } => {
                (Found::Present(attributes.clone()), *generation)
            }
            Outcome::Absent { answer, generation } => (Found::Absent(answer.clone()), *generation),
            Outcome::Moved => return Err(Missed::Again(uncertain())),
            Outcome::Uncertain => return Err(uncertain().into()),
            Outcome::Refused(kind, reason) => {
                return Err(Refused::new(kind.clone(), reason.clone()).into());
            }
        };
        Ok(Learnt { found, generation, cached: false, asked: None, outcome: Some(outcome) })
    }

    /// With the pages, unless they seem to be here already: then only the attributes have to be
    /// renewed.
    fn plan(&self, opening: &Opening, generation: Generation) -> Plan {
        let get = plan::get(opening.want, self.geometry).filter(|_| opening.bytes_max > 0).filter(
            |range| {
                let page = (range.start() / u64::from(self.geometry.page_bytes)) as u16;
                let Some(known) = self.attributes.hint(opening.subject.key, generation) else {
                    // Pages outlive a restart, attributes don't: a question without bytes tells
                    // whether they are of use.
                    return !self.filler.may_hold(&opening.subject.object, page);
                };
                let digest = self.digests.version(&opening.subject.object, &known.version);
                known.version.bytes > *range.start() && !self.filler.holds(digest, page)
            },
        );
        let fits = |bytes: &u64| {
            get.as_ref().is_some_and(|get| *get.start() == 0 && *bytes <= get.end() + 1)
        };
        Plan { whole: opening.listed.filter(fits), get, needs: opening.needs }
    }

    /// Waits for the first bytes of the span: an answer that turns out to be of a version that is
    /// gone was not given yet.
    async fn first_bytes(
        &self,
        opening: &Opening,
        attributes: &Attributes,
        span: Range<u32>,
        learnt: &Learnt,
    ) -> Result<(Chunk, Reading<'_>), Missed> {
        let version = &attributes.version;
        let target = Arc::new(Target {
            source: opening.subject.source.clone(),
            object: opening.subject.object.clone(),
            version: version.clone(),
            digest: self.digests.version(&opening.subject.object, version),
        });
        let got = async {
            let mut reading = Reading::start(self, target, BlockIndex(0), span, 0)?;
            reading.verdict = reading.claim().verdict(learnt.brought());
            // What was asked for this open is current, and what never changes needs no proof.
            if learnt.cached && opening.attributes_age != Age::Any {
                reading.confirm_version().await?;
            }
            let chunk = reading.next().await?;
            Ok((chunk, reading))
        };
        match got.await {
            Ok(got) => Ok(got),
            Err(failure @ Failure::VersionGone(_)) => {
                self.recall_version(&opening.subject.object, version).await;
                Err(Missed::Again(failure.into()))
            }
            Err(failure) => Err(Missed::Refused(failure.into())),
        }
    }

    async fn send_opened(&self, present: Present<'_>, mut reply: Reply) {
        let Present { attributes, generation, cached, lease, bytes } = present;
        let opened = |piece| {
            let attributes = Attributes::clone(&attributes);
            Message::Opened(Box::new(Opened {
                attributes,
                generation,
                lease,
                attributes_cached: cached,
                piece,
            }))
            .encode()
        };
        let Some((chunk, reading)) = bytes else {
            return end(
                reply,
                bounded(opened(None)).unwrap_or_else(|refusal| refusal),
                0,
                Vec::new(),
            )
            .await;
        };
        self.count_served(&chunk);
        let Chunk { piece, offset, data } = chunk;
        let message = match bounded(opened(Some(piece))) {
            Ok(message) => message,
            Err(refusal) => return end(reply, refusal, 0, Vec::new()).await,
        };
        if reading.is_done() {
            return end(reply, message, offset, data).await;
        }
        match reply.part(message, offset, data).await {
            Ok(()) => self.send_rest(reading, reply).await,
            Err(error) => tracing::debug!(%error, "a reader has gone"),
        }
    }
}

/// Whether an absence may be less old than attributes.
fn accepts_less(Ages { attributes, absence }: Ages) -> bool {
    match (absence, attributes) {
        (Age::AlwaysAsk, _) | (Age::UpTo(_), Age::Any) => true,
        (Age::UpTo(absence), Age::UpTo(attributes)) => absence < attributes,
        (Age::UpTo(_), Age::AlwaysAsk) | (Age::Any, _) => false,
    }
}

fn uncertain() -> Refused {
    Refused::new(RefusalKind::Uncertain, "a write of this key is under way, or was lost sight of")
}
