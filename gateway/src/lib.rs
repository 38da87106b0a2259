//! S3 over HTTP on every node: parses and authorises requests, reads through the cache tier, passes the rest to the UFS.
//! The only crate that knows XML and S3 status codes.
#![forbid(unsafe_code)]

pub mod mount;
pub mod read;
pub mod request;
