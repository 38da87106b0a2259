//! Owns the bytes a second to and from each store, which tenants share ([`FairRates`]), and bodies
//! that keep to them. A body that is over its tenant's part waits; it is never refused.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::Stream;
use s3s::StdError;
use s3s::dto::StreamingBlob;
use s3s::stream::{ByteStream, RemainingLength};
use tokio_util::task::AbortOnDropHandle;
use verbs3_doors::{FairRate, FairRates};
use verbs3_ufs::Ufs;

use crate::auth::Tenant;
use crate::settings::GatewaySettings;
use crate::tenant_metrics::SharedResource;
use crate::tenant_places::party_of;

/// The rates of all stores. Clones share them.
#[derive(Clone)]
pub(crate) struct StoreRates {
    rates: Arc<FairRates>,
}

impl StoreRates {
    /// Makes the rates by the settings.
    pub fn new(settings: &GatewaySettings) -> Self {
        Self { rates: Arc::new(FairRates::new(settings.limits.store_rate_max.0)) }
    }

    /// Waits until a tenant may read or write so many bytes at a store.
    pub async fn take_bytes(&self, ufs: &Ufs, tenant: &Arc<Tenant>, bytes: u64) {
        if let Some(rate) = self.rates.find_rate(ufs.ufs_name()) {
            let _ = start_turn(rate, tenant.clone(), bytes).await;
        }
    }

    /// Returns the body as slow as its tenant's part of the store's rate.
    pub fn pace_body(
        &self,
        ufs: &Ufs,
        tenant: &Arc<Tenant>,
        inner: StreamingBlob,
    ) -> StreamingBlob {
        match self.rates.find_rate(ufs.ufs_name()) {
            Some(rate) => {
                let tenant = tenant.clone();
                StreamingBlob::new(PacedBody { inner, rate, tenant, waiting: None })
            }
            None => inner,
        }
    }
}

/// Waits for a tenant's turn in a task of its own, which ends with its owner. A client that does not
/// take its bytes leaves its body alone, and others would wait for a turn that it got and never used.
fn start_turn(rate: Arc<FairRate>, tenant: Arc<Tenant>, bytes: u64) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        if rate.take_bytes(party_of(&tenant), bytes).await {
            tenant.metrics().waits[SharedResource::StoreBytes].inc();
        }
    }))
}

/// A body of which each piece waits for its turn.
struct PacedBody {
    inner: StreamingBlob,
    rate: Arc<FairRate>,
    tenant: Arc<Tenant>,
    waiting: Option<WaitingPiece>,
}

struct WaitingPiece {
    data: Bytes,
    turn: AbortOnDropHandle<()>,
}

impl Stream for PacedBody {
    type Item = Result<Bytes, StdError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(waiting) = &mut this.waiting {
                // It fails only where the runtime ends.
                let _ = ready!(Pin::new(&mut waiting.turn).poll(cx));
                return Poll::Ready(this.waiting.take().map(|waiting| Ok(waiting.data)));
            }
            let data = match ready!(Pin::new(&mut this.inner).poll_next(cx)) {
                Some(Ok(data)) => data,
                ended => return Poll::Ready(ended),
            };
            let bytes = data.len() as u64;
            if this.rate.try_take_bytes(party_of(&this.tenant), bytes) {
                return Poll::Ready(Some(Ok(data)));
            }
            let turn = start_turn(this.rate.clone(), this.tenant.clone(), bytes);
            this.waiting = Some(WaitingPiece { data, turn });
        }
    }
}

impl ByteStream for PacedBody {
    fn remaining_length(&self) -> RemainingLength {
        let waiting = self.waiting.as_ref().map_or(0, |waiting| waiting.data.len());
        match self.inner.remaining_length().exact() {
            Some(rest) => RemainingLength::new_exact(rest.saturating_add(waiting)),
            None => RemainingLength::unknown(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::StreamExt;

    use super::*;

    fn body(pieces: usize) -> StreamingBlob {
        let piece = |_| Ok::<_, std::io::Error>(Bytes::from(vec![7; 100]));
        StreamingBlob::wrap(futures::stream::iter((0..pieces).map(piece)))
    }

    fn paced(rate: &Arc<FairRate>, tenant: &Arc<Tenant>, pieces: usize) -> PacedBody {
        let (rate, tenant) = (rate.clone(), tenant.clone());
        PacedBody { inner: body(pieces), rate, tenant, waiting: None }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_of_one_tenant_does_not_wait_behind_those_of_another() {
        let rate = Arc::new(FairRate::new(1000));
        let [greedy, modest] =
            [1, 2].map(|number| Tenant::one_of_several(&format!("t{number}"), number));
        let greedy_bodies = (0..20).map(|_| paced(&rate, &greedy, 100).count());
        let mut greedy_bodies = Box::pin(futures::future::join_all(greedy_bodies));
        assert!(futures::poll!(&mut greedy_bodies).is_pending());
        tokio::select! {
            biased;
            pieces = paced(&rate, &modest, 20).count() => assert_eq!(pieces, 20),
            _ = &mut greedy_bodies => panic!("a hundred times as much came first"),
        }
        assert_eq!(greedy_bodies.await, [100; 20]);
        assert!(greedy.metrics().waits[SharedResource::StoreBytes].get() > 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_nobody_takes_keeps_nobody_waiting() {
        let rate = Arc::new(FairRate::new(1000));
        let [stalled, other] = [1, 2].map(|number| Tenant::one_of_several("t", number));
        let mut bodies: Vec<_> = (0..20).map(|_| paced(&rate, &stalled, 100)).collect();
        for body in &mut bodies {
            while let std::task::Poll::Ready(piece) = futures::poll!(body.next()) {
                assert!(piece.is_some());
            }
        }
        let taken = paced(&rate, &other, 100).count();
        let taken = tokio::time::timeout(std::time::Duration::from_secs(60), taken).await;
        assert_eq!(taken, Ok(100));
    }

    #[tokio::test(start_paused = true)]
    async fn a_paced_body_is_the_same_body() {
        let rate = Arc::new(FairRate::new(150));
        let mut paced = paced(&rate, &Tenant::one_of_several("t", 1), 5);
        let mut bytes = Vec::new();
        while let Some(piece) = paced.next().await {
            bytes.extend_from_slice(&piece.unwrap());
        }
        assert_eq!(bytes, [7; 500]);
    }
}
