//! Stands in for `verbs3_ufs::Ufs` until that type is there; holds what a mount needs of it.

use std::sync::Arc;

/// A named object store.
#[derive(Clone)]
pub struct Ufs {
    name: Arc<str>,
    s3: Arc<dyn s3s::S3>,
}

impl Ufs {
    pub fn new(name: String, s3: Arc<dyn s3s::S3>) -> Self {
        Self { name: name.into(), s3 }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn s3(&self) -> &Arc<dyn s3s::S3> {
        &self.s3
    }
}
