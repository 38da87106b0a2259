//! Owns the sources of a store's credentials, and the providers that renew them. Secrets never
//! reach `Debug` output.

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
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{self, ProvideCredentials, SharedCredentialsProvider, future};
use aws_runtime::env_config::file::{EnvConfigFileKind, EnvConfigFiles};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use aws_types::SdkConfig;
use aws_types::region::Region;

use super::{ConnectError, EndpointDefect, check_endpoint};

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct S3StoreSecret(String);

impl S3StoreSecret {
    /// Keeps the text as it is. Only this module reads it again.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for S3StoreSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// The source of a store's credentials. All but the first three are read again, or fetched anew,
/// before they run out. Endpoints are `http://host:port` or `https://…`. `None` means AWS's own, or
/// what the SDK's environment variables and files name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum S3StoreCredentials {
    /// Requests are not signed.
    Anonymous,
    Static {
        access_key_id: String,
        secret_access_key: S3StoreSecret,
        session_token: Option<S3StoreSecret>,
    },
    /// `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`.
    Environment,
    /// An AWS credentials file; `None` for the usual place and for the profile `default`.
    Profile { file: Option<PathBuf>, profile: Option<String> },
    /// A token file, like the one Kubernetes keeps, exchanged for the role's credentials.
    WebIdentity {
        role_arn: String,
        token_file: PathBuf,
        session_name: String,
        sts_endpoint: Option<String>,
    },
    /// The machine's own role (EC2 instance metadata, version 2).
    InstanceMetadata { endpoint: Option<String> },
    /// A role, assumed with other credentials.
    AssumeRole {
        role_arn: String,
        session_name: String,
        external_id: Option<S3StoreSecret>,
        base: Box<S3StoreCredentials>,
        sts_endpoint: Option<String>,
    },
    /// The order of the AWS SDKs: environment, profile, web identity, container, instance metadata.
    DefaultChain,
}

/// Makes the provider, or returns `None` for unsigned requests. Sends no request yet.
pub(super) async fn credentials_provider(
    credentials: &S3StoreCredentials,
    region: &str,
    http: SharedHttpClient,
) -> Result<Option<SharedCredentialsProvider>, ConnectError> {
    let region = Region::new(region.to_owned());
    let config = || {
        ProviderConfig::without_region()
            .with_region(Some(region.clone()))
            .with_behavior_version(Some(BehaviorVersion::latest()))
            .with_http_client(http.clone())
    };
    let provider = match credentials {
        S3StoreCredentials::Anonymous => return Ok(None),
        S3StoreCredentials::Static { access_key_id, secret_access_key, session_token } => {
            let token = session_token.as_ref().map(|token| token.0.clone());
            let secret = secret_access_key.0.clone();
            let fixed = aws_credential_types::Credentials::new(
                access_key_id,
                secret,
                token,
                None,
                "verbs3 configuration",
            );
            SharedCredentialsProvider::new(fixed)
        }
        S3StoreCredentials::Environment => {
            SharedCredentialsProvider::new(EnvironmentVariableCredentialsProvider::new())
        }
        S3StoreCredentials::Profile { file, profile } => {
            let mut builder = ProfileFileCredentialsProvider::builder().configure(&config());
            if let Some(file) = file {
                let files = EnvConfigFiles::builder()
                    .with_file(EnvConfigFileKind::Credentials, file)
                    .build();
                builder = builder.profile_files(files);
            }
            if let Some(profile) = profile {
                builder = builder.profile_name(profile);
            }
            SharedCredentialsProvider::new(builder.build())
        }
        S3StoreCredentials::WebIdentity { role_arn, token_file, session_name, sts_endpoint } => {
            let config = sts_config(region, http, sts_endpoint.as_deref()).await?;
            SharedCredentialsProvider::new(WebIdentity {
                client: aws_sdk_sts::Client::new(&config),
                role_arn: role_arn.clone(),
                token_file: token_file.clone(),
                session_name: session_name.clone(),
            })
        }
        S3StoreCredentials::InstanceMetadata { endpoint } => {
            let mut client = imds::Client::builder().configure(&config());
            if let Some(endpoint) = endpoint {
                check_endpoint(Some(endpoint))?;
                client = client.endpoint(endpoint).map_err(|error| ConnectError::Endpoint {
                    endpoint: endpoint.clone(),
                    defect: EndpointDefect::Refused(error),
                })?;
            }
            let builder =
                ImdsCredentialsProvider::builder().configure(&config()).imds_client(client.build());
            SharedCredentialsProvider::new(builder.build())
        }
        S3StoreCredentials::AssumeRole {
            role_arn,
            session_name,
            external_id,
            base,
            sts_endpoint,
        } => {
            let Some(base) =
                Box::pin(credentials_provider(base, region.as_ref(), http.clone())).await?
            else {
                return Ok(None);
            };
            let config = sts_config(region, http, sts_endpoint.as_deref()).await?;
            let mut builder =
                AssumeRoleProvider::builder(role_arn).session_name(session_name).configure(&config);
            if let Some(id) = external_id {
                builder = builder.external_id(&id.0);
            }
            SharedCredentialsProvider::new(builder.build_from_provider(base).await)
        }
        S3StoreCredentials::DefaultChain => {
            let chain = DefaultCredentialsChain::builder()
                .configure(config())
                .region(region.clone())
                .build()
                .await;
            SharedCredentialsProvider::new(chain)
        }
    };
    Ok(Some(provider))
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
        Ok(aws_credential_types::Credentials::new(
            key,
            secret,
            Some(token),
            Some(expires),
            "web identity",
        ))
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
    use aws_credential_types::provider::ProvideCredentials;
    use std::io::Write;

    fn fixed() -> S3StoreCredentials {
        S3StoreCredentials::Static {
            access_key_id: "AKIDEXAMPLE".into(),
            secret_access_key: S3StoreSecret::new("hush-secret"),
            session_token: Some(S3StoreSecret::new("hush-token")),
        }
    }

    fn http() -> SharedHttpClient {
        let options =
            crate::s3::S3Options::new(Some("http://127.0.0.1:1".into()), "us-east-1", fixed());
        crate::s3::connection::build_http_client(&options, false).unwrap()
    }

    #[tokio::test]
    async fn secrets_are_not_shown() {
        let role = S3StoreCredentials::AssumeRole {
            role_arn: "arn:aws:iam::1:role/r".into(),
            session_name: "s".into(),
            external_id: Some(S3StoreSecret::new("hush-id")),
            base: Box::new(fixed()),
            sts_endpoint: None,
        };
        let options = crate::s3::S3Options::new(None, "us-east-1", role);
        let provider = credentials_provider(&fixed(), "us-east-1", http()).await.unwrap().unwrap();
        let given = provider.provide_credentials().await.unwrap();
        assert_eq!(given.secret_access_key(), "hush-secret");
        let shown = format!("{options:?} {options:#?} {provider:?} {given:?}");
        assert!(!shown.contains("hush"), "{shown}");
    }

    #[tokio::test]
    async fn a_profile_file_is_read_and_read_again() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "[team]\naws_access_key_id = FIRST\naws_secret_access_key = s").unwrap();
        let from = S3StoreCredentials::Profile {
            file: Some(file.path().to_owned()),
            profile: Some("team".into()),
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
