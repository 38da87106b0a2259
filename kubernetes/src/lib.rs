//! verbs3 in Kubernetes: a webhook that gives pods the variables of their node's endpoint, and a
//! controller that runs the preload jobs that resources ask for. Owns what an admission review is
//! answered, the resource `Preload`, and its life. Knows no gateway: the binary gives it one.
#![forbid(unsafe_code)]

mod api_server;
mod controller;
pub mod metrics;
mod preload_resource;
mod webhook;

pub use controller::{
    ControllerSettings, PreloadController, PreloadGateway, PreloadGatewayError, PreloadKey,
};
pub use preload_resource::{
    PreloadResource, PreloadResourceCondition, PreloadResourceFailure, PreloadResourcePriority,
    PreloadResourceSpec, PreloadResourceStatus, PreloadResourceTier, ResourceMetadata,
};
pub use webhook::{PodInjection, WebhookServer, WebhookSettings, WebhookTlsSettings};
