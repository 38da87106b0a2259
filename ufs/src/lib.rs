//! What an object store can do: S3 stores through aws-sdk-s3, and a local directory. Every store is an [`s3s::S3`].
#![forbid(unsafe_code)]

mod error;
mod object;

pub use error::{RawAnswer, Retry, UfsError};
pub use object::{ObjectHead, ObjectStream, ReadObject};
