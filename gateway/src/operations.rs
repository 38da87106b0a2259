//! What the gateway does with each operation. The order that all share is in `operation_core`. An
//! operation that is more than passing on has a file of its name; one that s3s handles alike shares
//! it (`get_object` has HeadObject, `put_object` has UploadPart, `multipart_ends` both ends of an
//! upload).

mod bucket_lists;
mod client_presence;
mod copy_object;
mod delete_objects;
mod get_object;
mod get_object_attributes;
mod list_buckets;
mod list_objects;
mod multipart_ends;
mod operation_core;
mod operation_input;
mod put_object;
pub(crate) mod query;
mod rewrite;
mod rights;
mod s3_implementation;

pub(crate) use bucket_lists::BucketLists;
pub(crate) use operation_core::OperationCore;
pub(crate) use operation_input::TableOperation;
pub(crate) use rights::RightsJudge;
pub(crate) use s3_implementation::S3Implementation;
