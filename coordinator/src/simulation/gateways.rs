//! Gateways of the simulation: they do what `MapFollower` does. Each distinct answer is decoded
//! once, as a gateway would, for all that receive it.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use verbs3_coordinator_client::api::MapAnswer;
use verbs3_protocol::{Epoch, MemberRoster};

use super::world::{COORDINATORS, SimulatedWorld, SimulationEvent};

/// Matches `MapFollower`'s value.
const WAIT: Duration = Duration::from_secs(20);

pub(super) struct SimulatedGateway {
    coordinator: usize,
    known: Option<Arc<MemberRoster>>,
    /// Epoch by which it places requests.
    adopted: Epoch,
    questions: u64,
}

pub(super) enum SimulatedGatewayEvent {
    Asks,
    Arrives,
    WaitOver { question: u64 },
    Told { membership: Arc<MemberRoster> },
    Adopted { epoch: Epoch },
}

/// Gateway whose question waits for news.
pub(super) struct WaitingGateway {
    pub(super) gateway: usize,
    question: u64,
}

impl SimulatedWorld {
    pub(super) fn add_gateway(&mut self, after: Duration) {
        let coordinator = self.rng.random_range(0..COORDINATORS);
        let at = self.gateways.len();
        self.gateways.push(SimulatedGateway {
            coordinator,
            known: None,
            adopted: Epoch(0),
            questions: 0,
        });
        *self.gateways_at.entry(Epoch(0)).or_default() += 1;
        self.plan_event(after, SimulationEvent::Gateway { at, what: SimulatedGatewayEvent::Asks });
    }

    pub(super) fn handle_gateway_event(&mut self, at: usize, what: SimulatedGatewayEvent) {
        match what {
            SimulatedGatewayEvent::Asks => {
                // The coordinator that answered last is asked first, then the others.
                while !self.coordinators[self.gateways[at].coordinator].alive {
                    self.gateways[at].coordinator = self.rng.random_range(0..COORDINATORS);
                }
                self.counts.requests += 1;
                let after = self.draw_latency();
                self.plan_event(
                    after,
                    SimulationEvent::Gateway { at, what: SimulatedGatewayEvent::Arrives },
                );
            }
            SimulatedGatewayEvent::Arrives => {
                let gateway = &mut self.gateways[at];
                gateway.questions += 1;
                let (question, coordinator) = (gateway.questions, gateway.coordinator);
                if !self.coordinators[coordinator].alive {
                    return self.gateway_lost(at);
                }
                if !self.tell_gateway(coordinator, at) {
                    self.coordinators[coordinator]
                        .waiting
                        .push(WaitingGateway { gateway: at, question });
                    self.plan_event(
                        WAIT,
                        SimulationEvent::Gateway {
                            at,
                            what: SimulatedGatewayEvent::WaitOver { question },
                        },
                    );
                }
            }
            SimulatedGatewayEvent::WaitOver { question } => {
                let waiting = &mut self.coordinators[self.gateways[at].coordinator].waiting;
                let found =
                    waiting.iter().position(|one| (one.gateway, one.question) == (at, question));
                if let Some(found) = found {
                    waiting.swap_remove(found);
                    let after = self.draw_latency();
                    self.plan_event(
                        after,
                        SimulationEvent::Gateway { at, what: SimulatedGatewayEvent::Asks },
                    );
                }
            }
            SimulatedGatewayEvent::Told { membership } => {
                // The gateway asks again while it computes.
                let (epoch, compute) =
                    (membership.epoch, Duration::from_millis(self.scale.compute_ms));
                self.gateways[at].known = Some(membership);
                self.plan_event(
                    compute,
                    SimulationEvent::Gateway { at, what: SimulatedGatewayEvent::Adopted { epoch } },
                );
                self.handle_gateway_event(at, SimulatedGatewayEvent::Asks);
            }
            SimulatedGatewayEvent::Adopted { epoch } => {
                let before = std::mem::replace(&mut self.gateways[at].adopted, epoch);
                *self.gateways_at.entry(before).or_default() -= 1;
                *self.gateways_at.entry(epoch).or_default() += 1;
            }
        }
    }

    /// Handles a lost coordinator: its gateway asks another one at once.
    pub(super) fn gateway_lost(&mut self, at: usize) {
        let after = self.draw_latency();
        self.plan_event(after, SimulationEvent::Gateway { at, what: SimulatedGatewayEvent::Asks });
    }

    pub(super) fn tell_gateways(&mut self, coordinator: usize) {
        let waiting = std::mem::take(&mut self.coordinators[coordinator].waiting);
        for waiter in waiting {
            if !self.tell_gateway(coordinator, waiter.gateway) {
                self.coordinators[coordinator].waiting.push(waiter);
            }
        }
    }

    /// Answers a gateway. Returns whether there was news.
    fn tell_gateway(&mut self, coordinator: usize, at: usize) -> bool {
        let known = self.gateways[at].known.clone();
        let published = &self.coordinators[coordinator].published;
        let (current, epoch) =
            (published.current_map(), known.as_ref().map_or(Epoch(0), |known| known.epoch));
        if current.epoch <= epoch {
            return false;
        }
        let encoded = published.encode_answer(epoch, &current);
        let decoded = self.decoded.entry((epoch, current.epoch)).or_insert_with(|| {
            let answer: MapAnswer =
                serde_json::from_slice(&encoded).expect("answers can be decoded");
            let membership =
                answer.resolve_membership(known.as_deref()).expect("the answer fits what is known");
            assert_eq!(membership, *current, "what is told is the map in force");
            Arc::new(membership)
        });
        let membership = decoded.clone();
        self.counts.bytes_to_gateways += encoded.len() as u64;
        let after = self.transfer_time(coordinator, encoded.len());
        self.plan_event(
            after,
            SimulationEvent::Gateway { at, what: SimulatedGatewayEvent::Told { membership } },
        );
        true
    }
}
