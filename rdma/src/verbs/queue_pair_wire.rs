//! Owns one queue pair as a stream of frames with data beside it, and its completions.
//!
//! The connection's own task drives both (`driving`). `calls` knows what a frame means.

mod closing;
mod driving;
mod heartbeat;
mod sealing;

pub(super) use closing::DRAIN_MAX;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::VerbsOptions;
use super::chunk::{CHUNK_HEADER_BYTES, ChunkCredits, ChunkError, ChunkHeader};
use super::chunk_sender::{ChunkSender, CompletedSends, LocalKeyLookup, SendSizes};
use super::chunk_slots::ChunkSlots;
use super::poll_budget::PollBudget;
use super::queue_terms::QueueTerms;
use super::rail::{OpenRail, RailDevice};
use super::rail_metrics::RailMetrics;
use super::readable_source::{ReadableSource, next_event, watch_readable_on};
use super::receive_buffers::{RECEIVE, ReceiveBuffers};
use super::session_seals::ChunkSeal;
use super::sys::{
    CmEvent, CmId, CmQueuePair, CompletionQueue, EventChannel, EventKind, PairWatch,
    QueuePairParts, QueueSizes, RegisteredBuffer, WorkCompletion, WorkRequest,
};
use super::window_pool::BoundWindows;
use crate::calls::QueuedBytesBudget;
use crate::metrics::{ConnectionSide, SealedMatter};
use closing::QueuePairEnd;

/// Completions taken by one poll.
const POLL_MAX: usize = 16;

/// Looks for what came before a peer hung up: more than a completion queue holds by default.
const LAST_LOOKS: usize = 256;

pub(super) struct QueuePairWire {
    pub(super) state: Mutex<QueuePairWireState>,
    pub(super) rooms: QueuedBytesBudget,
    pub(super) controls_max: usize,
    pub(super) rail: Arc<OpenRail>,
    pub(super) metrics: RailMetrics,
    completions: AsyncFd<ReadableSource<CompletionQueue>>,
    events: AsyncFd<ReadableSource<EventChannel>>,
    /// Held while the queue pair is destroyed: whoever closes then waits for that.
    ending: Mutex<()>,
    /// Hears of errors that no completion tells.
    watch: PairWatch,
    pub(super) slots: RegisteredBuffer,
    receives: ReceiveBuffers,
    /// `None` where polling is off.
    polls: Option<Mutex<PollBudget>>,
    heartbeat: Duration,
    /// Data that the peer writes into this side's memory must be tagged.
    pub(super) tags_wanted: bool,
    /// True while `FrameOutlet::run` drives the queue pair. The inlet then only waits for what
    /// arrives.
    pub(super) driven: AtomicBool,
    pub(super) arrived: Notify,
    /// Tells the driver to look at the state.
    pub(super) work: Notify,
    /// Wakes tasks that wait for fewer control frames: some were sent, or none will be sent any
    /// more.
    pub(super) written: Notify,
}

pub(super) struct QueuePairWireState {
    /// `None` while it is being stopped, and once it is destroyed.
    pair: Option<CmQueuePair>,
    pub(super) sender: ChunkSender,
    pub(super) credits: ChunkCredits,
    /// Windows of lent landings, by a number of their own.
    bound: HashMap<u64, BoundWindows>,
    lent: u64,
    /// Chunks that arrived and were not read yet, by buffer.
    pub(super) received: VecDeque<(u16, ChunkHeader)>,
    /// The peer sent its end, or hung up.
    pub(super) ended: bool,
    /// The peer sent its end.
    said_end: bool,
    /// Both sides know what the other can take.
    agreed: bool,
    /// The peer marks its messages.
    peer_marks: bool,
    /// The driver is told of messages alone.
    awaits_messages: bool,
    /// Messages that came.
    messages: u64,
    /// The peer has proved the cluster's secret. What it says from now on is sealed.
    pub(super) proven: bool,
    /// Checks the peer's seals, from the moment at which it may use them.
    pub(super) received_seal: Option<ChunkSeal>,
    /// A sealed chunk has arrived, so only such may follow.
    sealed_only: bool,
    pub(super) finishing: bool,
    pub(super) closed: bool,
    end: QueuePairEnd,
    failure: Option<String>,
}

impl LocalKeyLookup for OpenRail {
    fn lkey_of(&self, piece: &Bytes) -> Option<u32> {
        let region = self.device.regions.region_of(piece.as_ptr() as usize, piece.len())?;
        Some(region.lkey)
    }
}

impl QueuePairWire {
    /// Makes the queue pair of `id`, whose route leads over `rail`, and its receive buffers. Blocks.
    /// `driver` will drive it, and hears of its completions.
    pub(super) fn new(
        id: CmId,
        events: AsyncFd<ReadableSource<EventChannel>>,
        rail: Arc<OpenRail>,
        options: &VerbsOptions,
        driver: &Handle,
    ) -> io::Result<Arc<Self>> {
        let RailDevice { domain, health, vectors, shared, .. } = &*rail.device;
        let receives = ReceiveBuffers::new(domain, shared.as_ref(), options)?;
        // One more for the beacon.
        let entries = options.settings.send_queue + 1 + receives.completions_max();
        let queue = Arc::new(CompletionQueue::new(domain.clone(), entries, vectors.next_vector())?);
        let (send, inline_bytes) =
            (options.settings.send_queue, options.settings.inline_max.as_u32());
        let sizes = QueueSizes { send, receive: receives.own_depth(), inline_bytes };
        let parts = QueuePairParts { domain, completions: &queue, shared: receives.shared_queue() };
        // Declared after the buffers: whatever fails below, the queue pair goes before them.
        let pair = CmQueuePair::new(id, parts, sizes)?;
        let (inline_bytes, watch) = (pair.inline_bytes(), pair.watch_health(health, &queue));
        receives.post_all(&pair)?;
        let slots = options.settings.receive_count;
        let slots_buffer = RegisteredBuffer::new(
            domain.clone(),
            ChunkSlots::buffer_bytes(slots, options.settings.receive_buffer.as_u32()),
        )?;
        let send = SendSizes {
            queue: options.settings.send_queue,
            chunk_bytes: options.settings.receive_buffer.as_u32(),
            slots,
            inline_bytes,
            binds_after_acks: rail.device.is_soft_roce,
        };
        let metrics =
            RailMetrics::for_queue_pair(&rail.rail.metric_label(), options.settings.send_queue);
        let completions = watch_readable_on(driver, queue)?;
        Ok(Arc::new(Self {
            state: Mutex::new(QueuePairWireState {
                pair: Some(pair),
                sender: ChunkSender::new(send),
                // No credits until the peer has said how much it can take.
                credits: ChunkCredits::new(0, 0, 0),
                bound: HashMap::new(),
                lent: 0,
                received: VecDeque::new(),
                ended: false,
                said_end: false,
                agreed: false,
                peer_marks: false,
                awaits_messages: false,
                messages: 0,
                proven: false,
                received_seal: None,
                sealed_only: false,
                finishing: false,
                closed: false,
                end: QueuePairEnd::default(),
                failure: None,
            }),
            rooms: QueuedBytesBudget::new(options.calls.settings.write_queue_max.as_usize()),
            controls_max: crate::calls::controls_max(options.calls.settings.calls_in_flight_max),
            rail,
            metrics,
            completions,
            ending: Mutex::new(()),
            events,
            watch,
            slots: slots_buffer,
            receives,
            polls: poll_budget(options.settings.busy_poll.0),
            heartbeat: options.settings.heartbeat.0,
            tags_wanted: options.settings.data_tags,
            driven: AtomicBool::new(false),
            arrived: Notify::new(),
            work: Notify::new(),
            written: Notify::new(),
        }))
    }

    /// Returns what this side says in the connection request, or in its answer.
    pub(super) fn queue_terms(&self, options: &VerbsOptions) -> QueueTerms {
        QueueTerms {
            receive_first: self.receives.first_credits(),
            ..QueueTerms::from_options(options)
        }
    }

    /// Runs `act` on the connection's queue pair. Fails once there is none.
    pub(super) fn with_pair<T>(
        &self,
        act: impl FnOnce(&CmQueuePair) -> io::Result<T>,
    ) -> io::Result<T> {
        self.state.lock().pair.as_ref().map_or_else(|| Err(closed_error()), act)
    }

    /// Waits for the next event of the connection manager.
    pub(super) async fn next_cm_event(&self) -> io::Result<CmEvent> {
        next_event(&self.events).await
    }

    /// Sets what only a connected queue pair takes.
    pub(super) fn tune_connected(&self) {
        // A device that refuses it waits longer for a slow reader, and works.
        if let Err(error) = self.with_pair(CmQueuePair::set_rnr_timer) {
            tracing::debug!(%error, "the RNR timer stays at the device's default");
        }
    }

    /// Shows the connection's path MTU in the metric.
    pub(super) fn tell_path_mtu(&self, side: ConnectionSide) {
        if let Ok(bytes) = self.with_pair(CmQueuePair::path_mtu) {
            self.metrics.rail.path_mtu[side].set(i64::from(bytes));
        }
    }

    /// Sets what the peer can take.
    pub(super) fn set_peer_terms(&self, mine: QueueTerms, theirs: QueueTerms) {
        let mut state = self.state.lock();
        state.credits =
            ChunkCredits::new(mine.receive_first, theirs.receive_first, theirs.receive_count);
        (state.agreed, state.peer_marks) = (true, theirs.marks_messages);
        state.sender.set_payload_bytes_max(theirs.receive_bytes);
    }

    /// Sends what can be sent now.
    pub(super) fn pump_sends(&self) {
        let mut state = self.state.lock();
        self.pump_locked(&mut state);
        let copied = state.sender.take_copied();
        drop(state);
        drop(copied);
    }

    fn pump_locked(&self, state: &mut QueuePairWireState) {
        let QueuePairWireState { pair: Some(pair), sender, credits, failure, .. } = state else {
            return;
        };
        if failure.is_some() {
            return;
        }
        let was_full = sender.control_frames() >= self.controls_max;
        let works = sender.fill_requests(credits, &self.slots, &*self.rail);
        let posted = self.post_work(pair, works);
        if was_full && sender.control_frames() < self.controls_max {
            self.written.notify_waiters();
        }
        self.metrics.show_outstanding(sender.outstanding_requests(), credits.send_credits());
        if let Err(error) = posted {
            *failure = Some(error.to_string());
            self.work.notify_one();
        }
        self.metrics.rail.copied_bytes.inc_by(sender.take_copied_bytes());
        self.reconsider_sleep(state);
    }

    fn post_work(&self, pair: &CmQueuePair, works: &[WorkRequest]) -> io::Result<()> {
        if works.is_empty() {
            return Ok(());
        }
        self.metrics.count_posted(works);
        // SAFETY: two places alone hand slots out again and drop frames with their data:
        // `ChunkSender::record_completion`, told by the NIC, and `close`, after the end of the
        // queue pair. Windows are kept as long in `bound`, or with what is closing. The
        // region is the rail's.
        unsafe { pair.post_send(works) }
    }

    /// Sends bytes that are no frame.
    pub(super) async fn send_raw(&self, bytes: &[u8]) -> io::Result<()> {
        let most = self.state.lock().sender.payload_bytes_max();
        for piece in bytes.chunks(most) {
            let mut sent = false;
            let mut attempt = |state: &mut QueuePairWireState| {
                let QueuePairWireState { pair: Some(pair), sender, credits, .. } = state else {
                    return true;
                };
                if let Some(works) = sender.make_raw_chunk(piece, credits, &self.slots) {
                    // A queue pair that takes nothing shows the error at the next poll.
                    let _ = self.post_work(pair, works);
                    sent = true;
                }
                sent
            };
            self.drive_until(&mut attempt).await?;
        }
        Ok(())
    }

    /// Ends the connection, of which the device says that it is broken.
    fn record_device_error(&self) {
        // A completion knows more of the cause.
        let polled = self.poll_completions();
        let mut state = self.state.lock();
        state.failure.get_or_insert_with(|| match polled {
            Err(error) => error.to_string(),
            Ok(_) => "the device reports an error of the connection or of its port".to_owned(),
        });
    }

    fn handle_cm_event(&self, event: &CmEvent) {
        if matches!(event.kind, EventKind::Disconnected | EventKind::DeviceRemoved) {
            // Chunks that came before are completed already. They are still read.
            for _ in 0..LAST_LOOKS {
                if !matches!(self.poll_completions(), Ok(true)) {
                    break;
                }
            }
            let mut state = self.state.lock();
            state.ended = true;
            if event.kind == EventKind::DeviceRemoved {
                state.failure.get_or_insert_with(|| {
                    format!("the device of rail {} was removed", self.rail.rail.metric_label())
                });
            }
            drop(state);
            self.arrived.notify_one();
            self.written.notify_waiters();
        }
    }

    /// Takes completions. Returns `true` when there were some.
    fn poll_completions(&self) -> io::Result<bool> {
        let mut polled = [WorkCompletion::NONE; POLL_MAX];
        let count = self.completions.get_ref().0.poll(&mut polled)?;
        let (mut done, mut copied) = (CompletedSends::default(), Vec::new());
        let mut state = self.state.lock();
        let mut result = match &state.failure {
            Some(failure) => Err(io::Error::other(failure.clone())),
            None => Ok(()),
        };
        for completion in &polled[..count] {
            // Handle all of them, even after an error: they return buffers, and chunks that came
            // before the end are still read.
            if let Err(error) =
                self.handle_completion(&mut state, completion, &mut done, result.is_ok())
            {
                state.failure.get_or_insert_with(|| error.to_string());
                result = Err(error);
            }
        }
        result?;
        if count > 0 {
            self.metrics.rail.completions.inc_by(count as u64);
            self.pump_locked(&mut state);
            copied = state.sender.take_copied();
            let arrived = !state.received.is_empty() || state.ended;
            drop(state);
            if arrived {
                self.arrived.notify_one();
            }
            self.written.notify_waiters();
        }
        // Free what the NIC is done with, and wake tasks that wait for room, outside the lock.
        self.recycle_windows(std::mem::take(&mut done.closed));
        drop((done, copied));
        Ok(count > 0)
    }

    /// Handles one completion. `well` says that nothing failed before it.
    fn handle_completion(
        &self,
        state: &mut QueuePairWireState,
        completion: &WorkCompletion,
        done: &mut CompletedSends,
        well: bool,
    ) -> io::Result<()> {
        let buffer = (completion.id & RECEIVE != 0).then_some((completion.id & !RECEIVE) as u16);
        if let Some(buffer) = buffer {
            self.receives.record_completion(buffer);
            if completion.status.is_err() || state.closed {
                self.receives.give_back(buffer);
            }
        }
        match (completion.status, buffer) {
            (Err(status), _) if !well || (state.ended && WorkCompletion::is_flush(status)) => {
                Ok(())
            }
            (Err(status), _) => {
                self.metrics.rail.errors[WorkCompletion::work_failure(status)].inc();
                Err(io::Error::other(WorkCompletion::describe_status(status)))
            }
            (Ok(()), _) if state.closed => Ok(()),
            // A WRITE with immediate data takes a receive buffer and leaves an earlier chunk in it.
            (Ok(()), Some(buffer)) if !completion.is_message => {
                self.receives.give_back(buffer);
                Err(io::Error::other("the peer took a receive buffer without sending a message"))
            }
            (Ok(()), None) => {
                state.sender.record_completion(completion.id, done);
                Ok(())
            }
            (Ok(()), Some(buffer)) => self.handle_chunk(state, buffer, completion.bytes as usize),
        }
    }

    fn handle_chunk(
        &self,
        state: &mut QueuePairWireState,
        buffer: u16,
        bytes: usize,
    ) -> io::Result<()> {
        state.messages += 1;
        let mut header = [0; CHUNK_HEADER_BYTES];
        self.receives.read(buffer, 0, &mut header);
        let accepted = ChunkHeader::decode(header, bytes).and_then(|header| {
            self.check_seal(state, buffer, &header)?;
            state.credits.accept_chunk(&header).map(|()| header)
        });
        let header = match accepted {
            Ok(header) => header,
            Err(error) => {
                if matches!(error, ChunkError::Unsealed | ChunkError::Seal) {
                    self.metrics.rail.seals_refused[SealedMatter::Message].inc();
                }
                self.receives.give_back(buffer);
                return Err(io::Error::other(error));
            }
        };
        state.ended |= header.end;
        state.said_end |= header.end;
        if header.payload_bytes > 0 {
            state.received.push_back((buffer, header));
            return Ok(());
        }
        self.repost_buffer(state, buffer, &header)
    }

    /// Gives a read buffer back to the NIC.
    pub(super) fn repost_buffer(
        &self,
        state: &mut QueuePairWireState,
        buffer: u16,
        header: &ChunkHeader,
    ) -> io::Result<()> {
        let turn = self.receives.repost_buffer(state.pair.as_ref(), buffer, !header.only_grants)?;
        if state.pair.is_none() || header.only_grants {
            return Ok(());
        }
        state.credits.record_repost(turn);
        if state.credits.must_grant() {
            self.pump_locked(state);
        }
        Ok(())
    }

    /// Gives back a buffer that stays unread, because this side reads no more.
    pub(super) fn give_back(&self, buffer: u16) {
        self.receives.give_back(buffer);
    }

    /// Copies from a chunk that arrived.
    pub(super) fn read(&self, buffer: u16, at: usize, to: &mut [u8]) {
        self.receives.read(buffer, CHUNK_HEADER_BYTES + at, to);
    }
}

fn poll_budget(longest: Duration) -> Option<Mutex<PollBudget>> {
    (!longest.is_zero()).then(|| Mutex::new(PollBudget::new(longest)))
}

fn closed_error() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the connection is closed")
}
