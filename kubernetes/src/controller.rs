//! The controller of `Preload` resources: whom it asks, what it says of them, when it asks again.

mod preload_controller;
mod preload_gateway;
mod preload_pace;
mod preload_round;
mod preload_status;
mod resource_store;
mod settings;

pub use preload_controller::PreloadController;
pub use preload_gateway::{PreloadGateway, PreloadGatewayError, PreloadKey};
pub use settings::ControllerSettings;
