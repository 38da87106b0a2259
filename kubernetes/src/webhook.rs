//! The webhook for pods: what a review is, what a pod is given, and the server.

mod address_places;
mod admission_review;
mod pod_injection;
mod webhook_server;

pub use pod_injection::{InjectionRules, PodInjection};
pub use webhook_server::{WebhookLimits, WebhookServer};
