//! Tests of what only this store promises: crashes, files, concurrency.
#![allow(clippy::unwrap_used)]
