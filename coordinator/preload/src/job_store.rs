//! Defines where jobs are kept, so that they outlive the engine that runs them.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

/// Error of the store of jobs.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JobStoreError {
    #[error("{0} exists already")]
    Exists(String),
    /// Another engine runs the jobs now.
    #[error("this process runs no jobs any more: {0}")]
    Deposed(String),
    #[error("the store of jobs can't be used: {0}")]
    Unavailable(String),
    /// The store refuses this value, and would again.
    #[error("the store of jobs does not take it: {0}")]
    Refused(String),
}

/// Durable store with one writer: a deposed engine can't write.
#[async_trait]
pub trait JobStore: Send + Sync + 'static {
    /// Returns all entries, by key.
    async fn list_entries(&self) -> Result<Vec<(String, Bytes)>, JobStoreError>;

    /// Writes an entry. With `new`, only if the key is absent.
    async fn put_entry(&self, key: &str, value: Bytes, new: bool) -> Result<(), JobStoreError>;

    async fn delete_entry(&self, key: &str) -> Result<(), JobStoreError>;
}

/// Store of jobs that ends with the process.
#[derive(Debug, Default)]
pub struct MemoryJobs {
    entries: Mutex<BTreeMap<String, Bytes>>,
}

#[async_trait]
impl JobStore for MemoryJobs {
    async fn list_entries(&self) -> Result<Vec<(String, Bytes)>, JobStoreError> {
        Ok(self.entries.lock().iter().map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    async fn put_entry(&self, key: &str, value: Bytes, new: bool) -> Result<(), JobStoreError> {
        let mut entries = self.entries.lock();
        if new && entries.contains_key(key) {
            return Err(JobStoreError::Exists(key.to_owned()));
        }
        entries.insert(key.to_owned(), value);
        Ok(())
    }

    async fn delete_entry(&self, key: &str) -> Result<(), JobStoreError> {
        self.entries.lock().remove(key);
        Ok(())
    }
}
