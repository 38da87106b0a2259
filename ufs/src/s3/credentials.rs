//! Owns the providers of a store's credentials, which renew them.

use std::fmt;
use std::path::PathBuf;

use aws_config::BehaviorVersion;
use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::environment::EnvironmentVariableCredentialsProvider;
use aws_config::imds;
use aws_config::imds::credentials::ImdsCredentialsProvider;
use aws_config::profile::ProfileFileCredentialsProvider;
use aws_config::provider_config::ProviderConfig;
use aws_config::sts::AssumeRoleProvider;
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{self, ProvideCredentials, SharedCredentialsProvider, future};
use aws_runtime::env_config::file::{EnvConfigFileKind, EnvConfigFiles};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use aws_types::SdkConfig;
use aws_types::region::Region;

use verbs3_settings::ConfigSecret;

use super::{ConnectError, EndpointDefect, check_endpoint};
use crate::settings::{CredentialsKind, CredentialsSettings};

/// Session name of an assumed role, where none is configured.
const SESSION_NAME: &str = "verbs3";

/// Makes the provider, or returns `None` for unsigned requests. Sends no request yet. All but fixed
/// credentials are read again, or fetched anew, before they run out. Fails where the settings lack
/// what their kind needs.
pub(super) async fn credentials_provider(
    settings: &CredentialsSettings,
    region: &str,
    http: SharedHttpClient,
) -> Result<Option<SharedCredentialsProvider>, ConnectError> {
    let region = Region::new(region.to_owned());
    let config = ProviderConfig::without_region()
        .with_region(Some(region.clone()))
        .with_behavior_version(Some(BehaviorVersion::latest()))
        .with_http_client(http.clone());
    let missing = |setting| ConnectError::Credentials { setting };
    let session_name = settings.session_name.as_deref().unwrap_or(SESSION_NAME);
    let role_arn = || settings.role_arn.clone().ok_or_else(|| missing("role_arn"));
    let default_chain = async || {
        let chain = DefaultCredentialsChain::builder().configure(config.clone());
        SharedCredentialsProvider::new(chain.region(region.clone()).build().await)
    };
    let provider = match settings.kind {
        CredentialsKind::Anonymous => return Ok(None),
        CredentialsKind::Default => default_chain().await,
        CredentialsKind::Static => SharedCredentialsProvider::new(fixed_credentials(settings)?),
        CredentialsKind::Environment => {
            SharedCredentialsProvider::new(EnvironmentVariableCredentialsProvider::new())
        }
        CredentialsKind::Profile => {
            let mut builder = ProfileFileCredentialsProvider::builder().configure(&config);
            if let Some(file) = &settings.profile_file {
                let files = EnvConfigFiles::builder()
                    .with_file(EnvConfigFileKind::Credentials, file)
                    .build();
                builder = builder.profile_files(files);
            }
            if let Some(profile) = &settings.profile {
                builder = builder.profile_name(profile);
            }
            SharedCredentialsProvider::new(builder.build())
        }
        CredentialsKind::WebIdentity => {
            let (role_arn, token_file) = (role_arn()?, settings.token_file.clone());
            let token_file = token_file.ok_or_else(|| missing("token_file"))?;
            let config = sts_config(region, http, settings.sts_endpoint.as_deref()).await?;
            SharedCredentialsProvider::new(WebIdentity {
                client: aws_sdk_sts::Client::new(&config),
                role_arn,
                token_file,
                session_name: session_name.to_owned(),
            })
        }
        CredentialsKind::Instance => {
            let mut client = imds::Client::builder().configure(&config);
            if let Some(endpoint) = &settings.metadata_endpoint {
                check_endpoint(Some(endpoint))?;
                client = client.endpoint(endpoint).map_err(|error| ConnectError::Endpoint {
                    endpoint: endpoint.clone(),
                    defect: EndpointDefect::Refused(error),
                })?;
            }
            let builder =
                ImdsCredentialsProvider::builder().configure(&config).imds_client(client.build());
            SharedCredentialsProvider::new(builder.build())
        }
        CredentialsKind::AssumeRole => {
            let (role_arn, base) = (role_arn()?, default_chain().await);
            let config = sts_config(region, http, settings.sts_endpoint.as_deref()).await?;
            let mut builder =
                AssumeRoleProvider::builder(role_arn).session_name(session_name).configure(&config);
            if let Some(id) = &settings.external_id {
                builder = builder.external_id(id.reveal_text());
            }
            SharedCredentialsProvider::new(builder.build_from_provider(base).await)
        }
    };
    Ok(Some(provider))
}

/// The keys that the settings hold, or name a file of.
fn fixed_credentials(settings: &CredentialsSettings) -> Result<Credentials, ConnectError> {
    let missing = |setting| ConnectError::Credentials { setting };
    let secret = match (&settings.secret_access_key, &settings.secret_access_key_file) {
        (Some(secret), _) => secret.clone(),
        (None, Some(file)) => ConfigSecret::read(file)?,
        (None, None) => return Err(missing("secret_access_key")),
    };
    let key = settings.access_key_id.as_deref().ok_or_else(|| missing("access_key_id"))?;
    let token = settings.session_token.as_ref().map(|token| token.reveal_text().to_owned());
    Ok(Credentials::new(key, secret.reveal_text(), token, None, "verbs3 configuration"))
}

/// Configures the access to AWS's token service.
async fn sts_config(
    region: Region,
    http: SharedHttpClient,
    endpoint: Option<&str>,
) -> Result<SdkConfig, ConnectError> {
    check_endpoint(endpoint)?;
    let loader = aws_config::defaults(BehaviorVersion::latest())
        .region(region)
        .http_client(http)
        .no_credentials();
    Ok(match endpoint {
        Some(endpoint) => loader.endpoint_url(endpoint).load().await,
        None => loader.load().await,
    })
}

/// A provider that exchanges a token file for a role's credentials. The SDK's own provider takes no
/// endpoint.
struct WebIdentity {
    client: aws_sdk_sts::Client,
    role_arn: String,
    token_file: PathBuf,
    session_name: String,
}

impl WebIdentity {
    async fn exchange_token(&self) -> provider::Result {
        // Kubernetes replaces the file before its token runs out, so it is read each time.
        let token = tokio::fs::read_to_string(&self.token_file).await.map_err(|source| {
            let text =
                format!("token file {}: {source}; is it mounted?", self.token_file.display());
            CredentialsError::provider_error(text)
        })?;
        let request = self.client.assume_role_with_web_identity().role_arn(&self.role_arn);
        let request =
            request.role_session_name(&self.session_name).web_identity_token(token.trim_end());
        let answer = request.send().await.map_err(CredentialsError::provider_error)?;
        let given = answer
            .credentials
            .ok_or_else(|| CredentialsError::unhandled("sts answered without credentials"))?;
        let expires = given
            .expiration
            .try_into()
            .map_err(|_| CredentialsError::unhandled("sts gave no valid end"))?;
        let (key, secret, token) =
            (given.access_key_id, given.secret_access_key, given.session_token);
        Ok(Credentials::new(key, secret, Some(token), Some(expires), "web identity"))
    }
}

impl ProvideCredentials for WebIdentity {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.exchange_token())
    }
}

impl fmt::Debug for WebIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebIdentity").field("role_arn", &self.role_arn).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::settings::UfsSettings;
    use aws_credential_types::provider::ProvideCredentials;
    use std::io::Write;

    fn fixed() -> CredentialsSettings {
        CredentialsSettings {
            kind: CredentialsKind::Static,
            access_key_id: Some("AKIDEXAMPLE".into()),
            secret_access_key: Some(ConfigSecret::new("hush-secret")),
            session_token: Some(ConfigSecret::new("hush-token")),
            external_id: Some(ConfigSecret::new("hush-id")),
            ..CredentialsSettings::default()
        }
    }

    fn store(credentials: CredentialsSettings) -> UfsSettings {
        let endpoint = Some("http://127.0.0.1:1".into());
        UfsSettings { endpoint, credentials, ..UfsSettings::default() }
    }

    fn http() -> SharedHttpClient {
        crate::s3::connection::build_connections(&store(fixed()), false).unwrap().client
    }

    #[tokio::test]
    async fn secrets_are_not_shown() {
        let settings = store(fixed());
        let provider = credentials_provider(&fixed(), "us-east-1", http()).await.unwrap().unwrap();
        let given = provider.provide_credentials().await.unwrap();
        assert_eq!(given.secret_access_key(), "hush-secret");
        let shown = format!("{settings:?} {settings:#?} {provider:?} {given:?}");
        assert!(!shown.contains("hush"), "{shown}");
    }

    #[tokio::test]
    async fn a_profile_file_is_read_and_read_again() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "[team]\naws_access_key_id = FIRST\naws_secret_access_key = s").unwrap();
        let from = CredentialsSettings {
            kind: CredentialsKind::Profile,
            profile_file: Some(file.path().to_owned()),
            profile: Some("team".into()),
            ..CredentialsSettings::default()
        };
        let given = credentials_provider(&from, "us-east-1", http())
            .await
            .unwrap()
            .unwrap()
            .provide_credentials()
            .await
            .unwrap();
        assert_eq!(given.access_key_id(), "FIRST");
    }
}
