//! Owns the keys that requests are signed with. Reads none: the caller has them.

/// Keys and region for signing requests.
#[derive(Debug, Clone)]
pub struct BenchCredentials {
    pub access_key: String,
    pub secret_key: String,
    pub region: String,
}
