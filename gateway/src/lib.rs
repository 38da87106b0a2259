//! The S3 gateway on every node: parses and authorises HTTP requests, reads through the cache tier,
//! passes the rest to the UFS. The only crate that knows XML and S3 status codes.
#![forbid(unsafe_code)]

pub mod auth;
mod cors;
#[doc(hidden)]
pub mod decoders;
mod gateway;
mod http;
mod http_exchange;
mod lending;
pub mod metrics;
pub mod mount;
mod operation_table;
mod operations;
mod plain_read;
mod preload;
pub mod read;
pub mod request_context;
mod s3_errors;
mod s3_rdma;
mod settings;
mod store_probes;
mod store_rates;
mod tenant_metrics;
mod tenant_places;
mod ufs_answer;
mod write;

pub use self::http::{HttpListener, ListenError, RateMin};
pub use gateway::{GatewayParts, GatewayService};
pub use lending::{GatewayLendingSettings, LendingAccess};
pub use operation_table::AccessRight;
pub use preload::{PreloadAnswer, PreloadJobs, PreloadQuestion};
pub use s3_rdma::S3OverRdmaSettings;
pub use settings::{
    GatewayLimitsSettings, GatewayReadSettings, GatewaySettings, GatewayTimeoutsSettings,
    GatewayTlsSettings,
};
pub use verbs3_certificates::{TlsError, TlsFiles};
pub use write::{
    GatewayPopulateSettings, HomeNotifier, HomeUnreachable, NoticeRoute, PopulateTier,
    WriteAnnouncement,
};
