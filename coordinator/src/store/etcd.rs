//! Store in etcd, below a prefix, for several coordinators.
//!
//! The leader is whoever created the key `…leader`, which lives as long as its etcd lease. A fenced
//! write requires that the key is still the one of that election. The comparison and the write are
//! one transaction.

mod election;
mod members;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, GetOptions, Identity, KeyValue,
    TlsOptions, Txn, TxnOp, TxnResponse, WatchOptions, WatchStream,
};
use futures::future::try_join_all;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    ClusterStore, ClusterStoreEntry, ClusterStoreError, ClusterStoreRevision, ClusterStoreWatch,
    EntryPrecondition, FencingToken, LeadershipGuard, StoreOutage, validate_entry,
};
use members::EtcdMembers;

/// Options for reaching etcd.
#[derive(Debug, Clone)]
pub struct EtcdOptions {
    /// `http://host:2379` or `https://…`, of any members of one etcd cluster.
    pub endpoints: Vec<String>,
    /// Prefix of every key. Each cluster needs its own.
    pub prefix: String,
    /// PEM of the certificates to trust.
    pub ca: Option<Vec<u8>>,
    /// PEM of a certificate and its key, for client authentication.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    pub user: Option<EtcdUser>,
    /// Deadline of one request to one member.
    pub deadline: Duration,
}

/// Name and password that etcd knows.
#[derive(Clone)]
pub struct EtcdUser {
    pub name: String,
    pub password: String,
}

impl fmt::Debug for EtcdUser {
    /// Leaves the password out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdUser").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Pause before a watch or an election is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// Longest answer to a listing; the client's default is 4 MiB. A hundred preload jobs, each with
/// the longest description and progress, need less.
const LIST_BYTES_MAX: usize = 256 << 20;
/// The leader's key, below the prefix.
const LEADER: &str = "leader";

/// The store in etcd.
pub struct EtcdStore {
    members: Arc<EtcdMembers>,
    name: String,
    prefix: String,
    /// Ends the authentication task, which runs until etcd has answered.
    _introducing: DropGuard,
}

/// Authenticates now, or, if etcd does not answer, as soon as it does. Earlier requests are refused
/// and repeated.
async fn authenticate_user(
    mut client: Client,
    user: EtcdUser,
    store: &str,
    deadline: Duration,
    stop: CancellationToken,
) -> Result<(), ClusterStoreError> {
    let EtcdUser { name, password } = user;
    let credentials = Some((name.clone(), password));
    match tokio::time::timeout(deadline, client.update_user(credentials.clone())).await {
        Ok(Ok(())) => return Ok(()),
        // etcd has answered: "authentication failed", or "authentication is not enabled".
        Ok(Err(etcd_client::Error::GRpcStatus(status)))
            if status.message().contains("authentication") =>
        {
            let (store, answer) = (store.to_owned(), status.message().to_owned());
            let outage = StoreOutage::UserRefused { user: name, answer };
            return Err(ClusterStoreError::Unavailable { store, outage });
        }
        Ok(Err(error)) => {
            tracing::warn!(store, %error, "etcd was not told of the user; trying again")
        }
        Err(_) => tracing::warn!(store, "etcd was not told of the user: no answer; trying again"),
    }
    tokio::spawn(stop.run_until_cancelled_owned(async move {
        loop {
            tokio::time::sleep(RETRY_PAUSE).await;
            let told =
                tokio::time::timeout(deadline, client.update_user(credentials.clone())).await;
            if matches!(told, Ok(Ok(()))) {
                return;
            }
        }
    }));
    Ok(())
}

impl EtcdStore {
    /// Connects on first use, because an absent etcd should not prevent a start. An etcd that
    /// refuses the user does.
    pub async fn connect(options: EtcdOptions) -> Result<Self, ClusterStoreError> {
        let EtcdOptions { endpoints, prefix, ca, identity, user, deadline } = options;
        let prefix = format!("{}/", prefix.trim_end_matches('/'));
        let name = format!("etcd {} {prefix}", endpoints.join(","));
        let mut connect = ConnectOptions::new()
            .with_connect_timeout(deadline)
            .with_keep_alive(deadline, deadline)
            .with_keep_alive_while_idle(true)
            // A member that is cut off from the others then reports it, and another is asked.
            .with_require_leader(true)
            // Tokens end with the etcd process that gave them, and after some minutes without use.
            .with_auto_token_refresh(true);
        if endpoints.iter().any(|endpoint| endpoint.starts_with("https:")) {
            let mut tls = TlsOptions::new();
            if let Some(ca) = ca {
                tls = tls.ca_certificate(Certificate::from_pem(ca));
            }
            if let Some((certificate, key)) = identity {
                tls = tls.identity(Identity::from_pem(certificate, key));
            }
            connect = connect.with_tls(tls);
        }
        let each = endpoints.iter().map(|url| Client::connect([url], Some(connect.clone())));
        let clients = try_join_all(each).await.map_err(|error| ClusterStoreError::Unavailable {
            store: name.clone(),
            outage: error.into(),
        })?;
        let introducing = CancellationToken::new();
        if let Some(user) = user {
            let each = clients.iter().map(|client| {
                authenticate_user(
                    client.clone(),
                    user.clone(),
                    &name,
                    deadline,
                    introducing.clone(),
                )
            });
            try_join_all(each).await?;
        }
        let members = Arc::new(EtcdMembers::new(clients, deadline));
        Ok(Self { members, name, prefix, _introducing: introducing.drop_guard() })
    }

    fn full_key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn decode_entry(&self, found: &KeyValue) -> Option<ClusterStoreEntry> {
        let key = found.key_str().ok()?.strip_prefix(&self.prefix)?.to_owned();
        Some(ClusterStoreEntry {
            key,
            value: Bytes::copy_from_slice(found.value()),
            revision: decode_revision(found.mod_revision()),
        })
    }

    fn unavailable_error(&self, outage: StoreOutage) -> ClusterStoreError {
        ClusterStoreError::Unavailable { store: self.name.clone(), outage }
    }

    async fn found(&self, key: &str) -> Result<Option<KeyValue>, ClusterStoreError> {
        let found = self.members.ask_each(|client| {
            let full = self.full_key(key);
            async move { client.kv_client().get(full, None).await }
        });
        Ok(found.await.map_err(|outage| self.unavailable_error(outage))?.take_kvs().pop())
    }

    /// Commits a transaction. Without an answer it may have happened.
    async fn commit(&self, txn: Txn) -> Result<TxnResponse, ClusterStoreError> {
        let commit = |client: Client| async move { client.kv_client().txn(txn).await };
        self.members.ask_one(commit).await.map_err(|outage| self.unavailable_error(outage))
    }

    /// Runs one transaction: the write if all comparisons hold. Otherwise it reads the present
    /// entry and leader, to explain the refusal.
    async fn write(
        &self,
        key: &str,
        write: TxnOp,
        expect: EntryPrecondition,
        fence: Option<&FencingToken>,
    ) -> Result<ClusterStoreRevision, ClusterStoreError> {
        let full = self.full_key(key);
        let mut compares = Vec::new();
        match expect {
            EntryPrecondition::Any => {}
            EntryPrecondition::Absent => {
                compares.push(Compare::create_revision(full.clone(), CompareOp::Equal, 0))
            }
            EntryPrecondition::Revision(ClusterStoreRevision(at)) => {
                compares.push(Compare::mod_revision(full.clone(), CompareOp::Equal, at as i64));
            }
        }
        if let Some(FencingToken { term }) = fence {
            compares.push(Compare::create_revision(
                self.full_key(LEADER),
                CompareOp::Equal,
                *term as i64,
            ));
        }
        let otherwise =
            [TxnOp::get(self.full_key(LEADER), Some(GetOptions::new().with_keys_only()))];
        let txn = Txn::new().when(compares).and_then([write]).or_else(otherwise);
        let answer = self.commit(txn).await?;
        if answer.succeeded() {
            return Ok(decode_revision(
                answer.header().map_or(0, etcd_client::ResponseHeader::revision),
            ));
        }
        let term = answer.op_responses().iter().find_map(|response| match response {
            etcd_client::TxnOpResponse::Get(found) => {
                found.kvs().first().map(KeyValue::create_revision)
            }
            _ => None,
        });
        match fence {
            Some(fence) if term != Some(fence.term as i64) => {
                Err(ClusterStoreError::Fenced { key: key.to_owned() })
            }
            _ => Err(ClusterStoreError::Conflict { key: key.to_owned() }),
        }
    }
}

#[async_trait]
impl ClusterStore for EtcdStore {
    async fn get_entry(&self, key: &str) -> Result<Option<ClusterStoreEntry>, ClusterStoreError> {
        Ok(self.found(key).await?.and_then(|found| self.decode_entry(&found)))
    }

    async fn list_entries(
        &self,
        prefix: &str,
    ) -> Result<Vec<ClusterStoreEntry>, ClusterStoreError> {
        let answer = self.members.ask_each(|client| {
            let (full, options) = (self.full_key(prefix), GetOptions::new().with_prefix());
            let mut client = client.kv_client().max_decoding_message_size(LIST_BYTES_MAX);
            async move { client.get(full, Some(options)).await }
        });
        let answer = answer.await.map_err(|outage| self.unavailable_error(outage))?;
        // The leader's key belongs to this module.
        let leader = self.full_key(LEADER);
        let shown = answer.kvs().iter().filter(|found| found.key() != leader.as_bytes());
        Ok(shown.filter_map(|found| self.decode_entry(found)).collect())
    }

    async fn put_entry(
        &self,
        key: &str,
        value: Bytes,
        expect: EntryPrecondition,
        fence: Option<&FencingToken>,
    ) -> Result<ClusterStoreRevision, ClusterStoreError> {
        validate_entry(key, &value)?;
        self.write(key, TxnOp::put(self.full_key(key), value, None), expect, fence).await
    }

    async fn delete_entry(
        &self,
        key: &str,
        expect: EntryPrecondition,
        fence: Option<&FencingToken>,
    ) -> Result<(), ClusterStoreError> {
        self.write(key, TxnOp::delete(self.full_key(key), None), expect, fence).await.map(|_| ())
    }

    async fn watch_prefix(&self, prefix: &str) -> Result<ClusterStoreWatch, ClusterStoreError> {
        let (full, members) = (self.full_key(prefix), self.members.clone());
        // Starts before the return, so that later changes are signalled.
        let mut stream =
            watched(&members, &full).await.map_err(|outage| self.unavailable_error(outage))?;
        let (sender, changes) = watch::channel(0);
        let stop = CancellationToken::new();
        let (ended, name) = (stop.clone(), self.name.clone());
        // The task ends with the watch.
        tokio::spawn(ended.run_until_cancelled_owned(async move {
            loop {
                match stream.message().await {
                    Ok(Some(message)) if message.canceled() => {}
                    Ok(Some(message)) => {
                        if !message.events().is_empty() {
                            sender.send_modify(|changes| *changes += 1);
                        }
                        continue;
                    }
                    Ok(None) => {}
                    Err(error) => tracing::debug!(store = name, %error, "a watch broke"),
                }
                stream = loop {
                    tokio::time::sleep(RETRY_PAUSE).await;
                    if let Ok(again) = watched(&members, &full).await {
                        break again;
                    }
                };
                // Signals a change, because anything may have happened meanwhile.
                sender.send_modify(|changes| *changes += 1);
            }
        }));
        Ok(ClusterStoreWatch { changes, _keeping: Some(stop.drop_guard()) })
    }

    async fn campaign_for_leader(
        &self,
        value: &str,
        lease: Duration,
    ) -> Result<LeadershipGuard, ClusterStoreError> {
        self.win_election(value, lease).await
    }

    async fn current_leader(&self) -> Result<Option<String>, ClusterStoreError> {
        Ok(self.found(LEADER).await?.and_then(|found| found.value_str().ok().map(str::to_owned)))
    }

    fn store_name(&self) -> &str {
        &self.name
    }
}

/// Watches a prefix from now on.
async fn watched(members: &EtcdMembers, prefix: &str) -> Result<WatchStream, StoreOutage> {
    let watch = |client: Client| {
        let (prefix, options) = (prefix.to_owned(), WatchOptions::new().with_prefix());
        async move { client.watch_client().watch(prefix, Some(options)).await }
    };
    members.ask_each(watch).await
}

fn decode_revision(number: i64) -> ClusterStoreRevision {
    ClusterStoreRevision(u64::try_from(number).unwrap_or_default())
}
