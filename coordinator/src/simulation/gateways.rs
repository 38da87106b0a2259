//! Gateways of the simulation: they do what `MapFollower` does.

use std::time::Duration;

use rand::RngExt;
use verbs3_protocol::Epoch;

use super::events::SimulatedGatewayEvent;
use super::world::{COORDINATORS, SimulatedGateway, SimulatedWorld, WaitingGateway};

/// Matches `MapFollower`'s value.
const WAIT: Duration = Duration::from_secs(20);

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
        self.plan_gateway(at, after, SimulatedGatewayEvent::Asks);
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
                self.plan_gateway(at, after, SimulatedGatewayEvent::Arrives);
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
                    self.plan_gateway(at, WAIT, SimulatedGatewayEvent::WaitOver { question });
                }
            }
            SimulatedGatewayEvent::WaitOver { question } => {
                let waiting = &mut self.coordinators[self.gateways[at].coordinator].waiting;
                let found =
                    waiting.iter().position(|one| (one.gateway, one.question) == (at, question));
                if let Some(found) = found {
                    waiting.swap_remove(found);
                    let after = self.draw_latency();
                    self.plan_gateway(at, after, SimulatedGatewayEvent::Asks);
                }
            }
            SimulatedGatewayEvent::Told { membership } => {
                // The gateway asks again while it computes.
                let (epoch, compute) =
                    (membership.epoch, Duration::from_millis(self.scale.compute_ms));
                self.gateways[at].known = Some(membership);
                self.plan_gateway(at, compute, SimulatedGatewayEvent::Adopted { epoch });
                self.handle_gateway_event(at, SimulatedGatewayEvent::Asks);
            }
            SimulatedGatewayEvent::Adopted { epoch } => {
                let before = std::mem::replace(&mut self.gateways[at].adopted, epoch);
                *self.gateways_at.entry(before).or_default() -= 1;
                *self.gateways_at.entry(epoch).or_default() += 1;
            }
        }
    }
}
