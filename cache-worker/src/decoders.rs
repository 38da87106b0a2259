//! Decoders of untrusted bytes, exposed as functions of bytes alone for the fuzz targets in
//! `fuzz/`. Not an API.

pub use crate::disk::decoders::decode_headers;
