//! Learns the attributes of an object: from the cache, or from the UFS.

use std::sync::Arc;

use verbs3_protocol::{ByteRange, Epoch, KeyGeneration, LeaseHolder, OpenMessage};

use super::{AttributeHome, open_plan};
use crate::attributes::{
    AnswerAgeLimits, AnswerRequirements, AttributeCheckOutcome, AttributeCheckPlan,
    AttributeMaxAge, AttributeQuery, FirstBytesPlan, ObjectPresence, PendingAttributeRead,
};
use crate::clock::WorkerInstant;
use crate::fill::{PageFillError, RunInterest};
use crate::metrics::AttributesFound;
use crate::serve_refusal::ServeRefusal;
use crate::tenants::TenantAccount;

/// An open that is being answered.
pub(crate) struct OpenOperation {
    pub(crate) want: Option<ByteRange>,
    pub(crate) subject: AttributeQuery,
    pub(crate) epoch: Epoch,
    /// The gateway that would get a lease with the answer.
    pub(crate) holder: Option<LeaseHolder>,
    /// The age limits of the request, before this worker's own limits.
    pub(crate) attributes_age: AttributeMaxAge,
    pub(crate) absence_age: AttributeMaxAge,
    needs: AnswerRequirements,
    ages: AnswerAgeLimits,
    pub(crate) arrived: WorkerInstant,
    /// Most bytes to answer with.
    pub(crate) bytes_max: u64,
    /// The length of the object in a listing.
    pub(crate) listed: Option<u64>,
}

/// The answer about an object, and its source.
pub(crate) struct LearnedAttributes {
    pub(crate) found: ObjectPresence,
    pub(crate) generation: KeyGeneration,
    pub(crate) cached: bool,
    /// When the UFS was asked, if it was not asked for this open.
    pub(crate) asked: Option<WorkerInstant>,
    /// The same moment by the worker's own clock, which counts no pause. It names the cached answer.
    pub(crate) asked_own: Option<WorkerInstant>,
    /// Keeps the pages coming that were asked together with the attributes.
    outcome: Option<Arc<AttributeCheckOutcome>>,
}

impl LearnedAttributes {
    pub(crate) fn page_interest(&self) -> Option<&RunInterest> {
        match self.outcome.as_deref() {
            Some(AttributeCheckOutcome::Present { coming, .. }) => coming.as_ref(),
            _ => None,
        }
    }
}

/// What the cache says of an object, and by which generation and age limits.
struct KnownAttributes {
    generation: KeyGeneration,
    ages: AnswerAgeLimits,
    known: Option<LearnedAttributes>,
}

/// The reason why an attempt gave no answer.
pub(crate) enum OpenAttemptError {
    /// Another attempt may succeed.
    Again(ServeRefusal),
    Refused(ServeRefusal),
}

impl From<ServeRefusal> for OpenAttemptError {
    fn from(refused: ServeRefusal) -> Self {
        Self::Refused(refused)
    }
}

impl AttributeHome {
    pub(crate) fn begin_open(
        &self,
        open: OpenMessage,
        account: TenantAccount,
        landing_bytes: u64,
    ) -> Result<OpenOperation, ServeRefusal> {
        let times = self.clock.read_times();
        let arrived = times.now;
        let right = self.standing.to_answer(open.epoch, open.object.home_slot(), times);
        let right = right.map_err(|denied| ServeRefusal::for_denial(denied, open.epoch))?;
        // Ending a doubt adds an invalidation first, so read doubts before invalidations.
        let hash = open.object.hash();
        let doubted = self.coherence.doubted_age(&open.object, hash);
        let right = right.limit_to_age(self.voids.latest_age(&open.object, arrived));
        self.checks.check_geometry(open.geometry)?;
        let source = self.checks.volume_source(&open.object.volume)?;
        if open.version_id.as_deref() == Some("null") {
            return Err(ServeRefusal::NullVersion);
        }
        let subject = AttributeQuery {
            hash,
            key: self.digests.attributes_key(&open.object, open.version_id.as_deref()),
            version_id: open.version_id,
            object: open.object,
            source,
            account,
        };
        let bytes_max = u64::from(open.piece_bytes_max).min(landing_bytes);
        let needs =
            AnswerRequirements { checksums: open.checksums, error_body: open.want.is_some() };
        let [attributes_age, absence_age] =
            [open.attributes_age_ms_max, open.absence_age_ms_max].map(AttributeMaxAge::from_ms);
        let ages = AnswerAgeLimits {
            attributes: attributes_age.limit_to_right(right),
            absence: absence_age.limit_to_right(right),
            accepts_doubted: false,
        };
        let ages = ages.limit_to_doubt(doubted);
        let (epoch, want, holder, listed) = (open.epoch, open.want, open.holder, None);
        Ok(OpenOperation {
            want,
            subject,
            epoch,
            holder,
            attributes_age,
            absence_age,
            needs,
            ages,
            arrived,
            bytes_max,
            listed,
        })
    }

    /// Returns the answer about the object, from the cache or from the UFS.
    pub(crate) async fn learn_attributes(
        &self,
        opening: &OpenOperation,
    ) -> Result<LearnedAttributes, OpenAttemptError> {
        let subject = &opening.subject;
        let KnownAttributes { generation, ages, known } = self.look_up_attributes(opening)?;
        if let Some(known) = known {
            return Ok(known);
        }
        // An absence may need a fresher answer than attributes do. A read that joins a check must
        // accept the age of either.
        let age = if accepts_less(ages) { ages.absence } else { ages.attributes };
        let (arrived, account) = (opening.arrived, subject.account);
        let asking = PendingAttributeRead { arrived, age, generation, account };
        let plan = self.plan_check(opening, generation);
        let Some(mut waiting) = self.fetcher.request_check(subject, plan, &asking) else {
            return Err(ServeRefusal::TooManyChecks.into());
        };
        // An error means that the checking task was dropped, which only a shutdown does.
        let outcome = match waiting.wait_for(Option::is_some).await {
            Ok(answered) => answered.clone(),
            Err(_) => None,
        };
        let Some(outcome) = outcome else {
            return Err(ServeRefusal::from(PageFillError::Stopping).into());
        };
        let (found, generation) = match &*outcome {
            AttributeCheckOutcome::Present { attributes, generation, .. } => {
                (ObjectPresence::Present(attributes.clone()), *generation)
            }
            AttributeCheckOutcome::Absent { answer, generation } => {
                (ObjectPresence::Absent(answer.clone()), *generation)
            }
            AttributeCheckOutcome::Moved => {
                return Err(OpenAttemptError::Again(ServeRefusal::WriteUnderWay));
            }
            AttributeCheckOutcome::Uncertain => return Err(ServeRefusal::WriteUnderWay.into()),
            AttributeCheckOutcome::Refused(refusal) => {
                return Err(ServeRefusal::Check(refusal.clone()).into());
            }
            AttributeCheckOutcome::NoTurn { refusal, asked } => {
                let refused = ServeRefusal::Check(refusal.clone());
                // It joined when all before it had been refused: it may get a turn itself.
                return Err(match asked.contains(account) {
                    true => OpenAttemptError::Refused(refused),
                    false => OpenAttemptError::Again(refused),
                });
            }
        };
        Ok(LearnedAttributes {
            found,
            generation,
            cached: false,
            asked: None,
            asked_own: None,
            outcome: Some(outcome),
        })
    }

    /// Returns the answer that the cache has about the object, if it may be given now.
    pub(crate) fn find_known(&self, opening: &OpenOperation) -> Option<LearnedAttributes> {
        self.look_up_attributes(opening).ok()?.known
    }

    /// Looks the object up in the cache. Errs while a write of it is under way.
    fn look_up_attributes(&self, opening: &OpenOperation) -> Result<KnownAttributes, ServeRefusal> {
        let subject = &opening.subject;
        let times = self.clock.read_times();
        let Ok(generation) = self.coherence.admit_key(subject.hash, times.now) else {
            return Err(ServeRefusal::WriteUnderWay);
        };
        let doubted = self.coherence.doubted_age(&subject.object, subject.hash);
        let ages = opening.ages.limit_to_doubt(doubted);
        let known = self.attributes.get(subject.key, generation, times, ages, opening.needs);
        let known = known.map(|known| {
            self.metrics.attributes[AttributesFound::Cached].inc();
            LearnedAttributes {
                asked: known.asked_by(times),
                asked_own: Some(known.asked),
                found: known.found,
                generation,
                cached: true,
                outcome: None,
            }
        });
        Ok(KnownAttributes { generation, ages, known })
    }

    /// Plans a check with the pages, unless they seem to be here already. Then only the attributes
    /// have to be renewed.
    fn plan_check(&self, opening: &OpenOperation, generation: KeyGeneration) -> AttributeCheckPlan {
        let filler = &self.fetcher.filler;
        let get = open_plan::plan_first_bytes(opening.want, filler.extent, filler.parts)
            .filter(|_| opening.bytes_max > 0)
            .filter(|FirstBytesPlan { range, .. }| {
                let page = (range.start() / u64::from(self.checks.geometry.page_bytes)) as u16;
                let Some(known) = self.attributes.peek_attributes(opening.subject.key, generation)
                else {
                    // Pages survive a restart, attributes don't. A HEAD tells whether the pages are
                    // still of use.
                    return !filler.may_hold(&opening.subject.object, page);
                };
                let digest = self.digests.digest_version(&opening.subject.object, &known.version);
                known.version.bytes > *range.start()
                    && !filler.holds_first_byte(digest, *range.start())
            });
        let fits = |bytes: &u64| {
            let range = get.as_ref().map(|get| &get.range);
            range.is_some_and(|range| *range.start() == 0 && *bytes <= range.end() + 1)
        };
        AttributeCheckPlan { whole: opening.listed.filter(fits), get, needs: opening.needs }
    }
}

/// Returns whether the age limit of an absence is stricter than that of attributes.
fn accepts_less(AnswerAgeLimits { attributes, absence, .. }: AnswerAgeLimits) -> bool {
    match (absence, attributes) {
        (AttributeMaxAge::AlwaysAsk, _) | (AttributeMaxAge::UpTo(_), AttributeMaxAge::Any) => true,
        (AttributeMaxAge::UpTo(absence), AttributeMaxAge::UpTo(attributes)) => absence < attributes,
        (AttributeMaxAge::UpTo(_), AttributeMaxAge::AlwaysAsk) | (AttributeMaxAge::Any, _) => false,
    }
}
