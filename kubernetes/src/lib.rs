//! verbs3 in Kubernetes: a webhook that gives pods the variables of their node's endpoint. Owns what
//! an admission review is answered, and the server that answers. Knows no gateway, and asks the
//! cluster for nothing.
#![forbid(unsafe_code)]

pub mod metrics;
mod webhook;

pub use webhook::{InjectionRules, PodInjection, WebhookLimits, WebhookServer};
