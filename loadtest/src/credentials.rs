//! Owns the keys that requests are signed with. Reads none: the caller has them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Keys and region for signing requests.
#[derive(Clone, Serialize, Deserialize)]
pub struct BenchCredentials {
    pub access_key: String,
    pub secret_key: String,
    pub region: String,
}

/// Without the secret key, which belongs into no log.
impl fmt::Debug for BenchCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BenchCredentials")
            .field("access_key", &self.access_key)
            .finish_non_exhaustive()
    }
}
