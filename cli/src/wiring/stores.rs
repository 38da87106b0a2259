//! The UFSs of a process, by name.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, bail};
use prometheus::Registry;
use verbs3_config::{
    ConfigSecret, CredentialsKind, CredentialsSettings, UfsCircuitSettings, UfsDeadlinesSettings,
    UfsKind, UfsLimitsSettings, UfsRetriesSettings, UfsSettings,
};
use verbs3_ufs::local::{LocalOptions, LocalStore};
use verbs3_ufs::s3::{self, S3Options, S3StoreDeadlines};
use verbs3_ufs::{CircuitLimits, RetryLimits};

/// Session name of an assumed role, where none is configured.
const SESSION_NAME: &str = "verbs3";

/// Every configured UFS, ready to be asked.
pub async fn open_stores(
    list: &[UfsSettings],
    registry: &Registry,
) -> anyhow::Result<HashMap<String, verbs3_ufs::Ufs>> {
    let mut stores = HashMap::new();
    for ufs in list {
        let store = open_one(ufs, registry)
            .await
            .with_context(|| format!("can't open ufs {}", ufs.name))?;
        stores.insert(ufs.name.clone(), store);
    }
    Ok(stores)
}

async fn open_one(ufs: &UfsSettings, registry: &Registry) -> anyhow::Result<verbs3_ufs::Ufs> {
    let UfsSettings {
        name,
        kind,
        path,
        sync,
        endpoint,
        ca_file,
        // The check of the configuration alone asks for it.
        namespace: _,
        region,
        path_style,
        trailing_checksums,
        credentials,
        limits,
        deadlines,
        retries,
        circuit,
    } = ufs;
    let UfsLimitsSettings { connections_max, requests_in_flight_max, wait_max, skip_max } = limits;
    let UfsDeadlinesSettings { connect, first_byte, answer, idle_body, keep_alive } = deadlines;
    let store: Arc<dyn s3s::S3> = match kind {
        UfsKind::S3 => {
            let options = S3Options {
                endpoint: endpoint.clone(),
                region: region.clone(),
                credentials: resolve_credentials(credentials)?,
                path_style: *path_style,
                ca_file: ca_file.clone(),
                deadlines: S3StoreDeadlines {
                    connect: connect.0,
                    answer: answer.0,
                    idle: idle_body.0,
                    keep_alive: keep_alive.0,
                },
                connections_max: *connections_max as usize,
                trailing_checksums: *trailing_checksums,
            };
            s3::connect_store(options).await?
        }
        UfsKind::Local => {
            let Some(root) = path else { bail!("kind = \"local\" needs a path") };
            let (name, region, sync) = (name.clone(), region.clone(), *sync);
            let options = LocalOptions { name, region, sync, ..LocalOptions::new(root) };
            let opened = tokio::task::spawn_blocking(move || LocalStore::open_store(options)).await;
            let store = opened.context("the store's thread panicked")??;
            store.register_metrics(registry)?;
            Arc::new(store)
        }
    };
    let limits = verbs3_ufs::UfsLimits {
        requests_in_flight_max: *requests_in_flight_max as usize,
        wait_max: wait_max.0,
        first_byte_max: first_byte.0,
        idle_max: idle_body.0,
        skip_bytes_max: skip_max.0,
        retries: retry_limits(retries),
        circuit: circuit_limits(circuit),
    };
    Ok(verbs3_ufs::Ufs::new(name.clone(), store, limits))
}

fn retry_limits(retries: &UfsRetriesSettings) -> RetryLimits {
    let UfsRetriesSettings { attempts_max, budget_max, budget_per_second, pause, pause_max } =
        retries;
    RetryLimits {
        attempts_max: *attempts_max,
        budget_max: *budget_max,
        budget_per_second: *budget_per_second,
        pause: pause.0,
        pause_max: pause_max.0,
    }
}

fn circuit_limits(circuit: &UfsCircuitSettings) -> CircuitLimits {
    let UfsCircuitSettings { failures_max, open_for, open_for_max } = circuit;
    CircuitLimits {
        failures_max: *failures_max,
        open_for: open_for.0,
        open_for_max: open_for_max.0,
    }
}

fn resolve_credentials(
    credentials: &CredentialsSettings,
) -> anyhow::Result<s3::S3StoreCredentials> {
    let CredentialsSettings {
        kind,
        access_key_id,
        secret_access_key,
        secret_access_key_file,
        session_token,
        profile,
        profile_file,
        role_arn,
        session_name,
        external_id,
        token_file,
        sts_endpoint,
        metadata_endpoint,
    } = credentials;
    let hidden = |secret: &ConfigSecret| s3::S3StoreSecret::new(secret.reveal_text());
    let session_name = || session_name.clone().unwrap_or_else(|| SESSION_NAME.to_owned());
    let role = || role_arn.clone().context("credentials.role_arn is missing");
    Ok(match kind {
        CredentialsKind::Default => s3::S3StoreCredentials::DefaultChain,
        CredentialsKind::Anonymous => s3::S3StoreCredentials::Anonymous,
        CredentialsKind::Environment => s3::S3StoreCredentials::Environment,
        CredentialsKind::Instance => {
            s3::S3StoreCredentials::InstanceMetadata { endpoint: metadata_endpoint.clone() }
        }
        CredentialsKind::Profile => {
            s3::S3StoreCredentials::Profile { file: profile_file.clone(), profile: profile.clone() }
        }
        CredentialsKind::Static => {
            let secret = match (secret_access_key, secret_access_key_file) {
                (Some(secret), _) => secret.clone(),
                (None, Some(file)) => ConfigSecret::read(file)?,
                (None, None) => bail!("credentials.secret_access_key is missing"),
            };
            s3::S3StoreCredentials::Static {
                access_key_id: access_key_id
                    .clone()
                    .context("credentials.access_key_id is missing")?,
                secret_access_key: hidden(&secret),
                session_token: session_token.as_ref().map(hidden),
            }
        }
        CredentialsKind::WebIdentity => s3::S3StoreCredentials::WebIdentity {
            role_arn: role()?,
            token_file: token_file.clone().context("credentials.token_file is missing")?,
            session_name: session_name(),
            sts_endpoint: sts_endpoint.clone(),
        },
        CredentialsKind::AssumeRole => s3::S3StoreCredentials::AssumeRole {
            role_arn: role()?,
            session_name: session_name(),
            external_id: external_id.as_ref().map(hidden),
            base: Box::new(s3::S3StoreCredentials::DefaultChain),
            sts_endpoint: sts_endpoint.clone(),
        },
    })
}
