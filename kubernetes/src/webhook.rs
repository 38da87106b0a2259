//! The webhook for pods: what a review is, what a pod is given, and the server.

mod address_places;
mod admission_review;
mod pod_injection;
mod settings;
mod webhook_server;

pub use pod_injection::PodInjection;
pub use settings::{WebhookSettings, WebhookTlsSettings};
pub use webhook_server::WebhookServer;
