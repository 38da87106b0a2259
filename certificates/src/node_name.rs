//! The name in a node's certificate: a URI among the subject's alternative names,
//! `verbs3://CLUSTER/ROLE/NAME`. Each part may have percent escapes.

use std::fmt;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;

const SCHEME: &str = "verbs3://";

/// What a process is in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NodeRole {
    Gateway,
    Worker,
    Coordinator,
    /// A person or a tool that runs the cluster.
    Operator,
}

impl NodeRole {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Gateway, Self::Worker, Self::Coordinator, Self::Operator];

    /// The role as certificates write it.
    pub fn role_text(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Worker => "worker",
            Self::Coordinator => "coordinator",
            Self::Operator => "operator",
        }
    }
}

impl FromStr for NodeRole {
    type Err = NodeNameError;

    fn from_str(text: &str) -> Result<Self, NodeNameError> {
        let found = Self::ALL.into_iter().find(|role| role.role_text() == text);
        found.ok_or_else(|| NodeNameError::Role(text.to_owned()))
    }
}

/// Role and name of one process, from a certificate that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeName {
    pub role: NodeRole,
    /// A worker's is its `worker.id`.
    pub name: String,
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.role.role_text(), self.name)
    }
}

/// Why a certificate names no node of this cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeNameError {
    #[error("no certificate was shown")]
    Missing,
    #[error("the certificate can't be parsed")]
    Malformed,
    #[error("the certificate has no alternative name {SCHEME}CLUSTER/ROLE/NAME")]
    Nameless,
    #[error("the certificate has more than one alternative name that begins with {SCHEME}")]
    Ambiguous,
    #[error("{0:?} is not {SCHEME}CLUSTER/ROLE/NAME")]
    Form(String),
    #[error("{0:?} is not one of the roles gateway, worker, coordinator and operator")]
    Role(String),
    #[error("the certificate is one of the cluster {0:?}")]
    OtherCluster(String),
    #[error("the certificate is one of {found}, where the role {wanted} is wanted",
        wanted = wanted.role_text())]
    OtherRole { found: NodeName, wanted: NodeRole },
    #[error("the certificate is one of {found}, where the name {wanted:?} is wanted")]
    OtherName { found: NodeName, wanted: String },
}

impl NodeName {
    /// Reads the name of a node of `cluster`. Verifies nothing: the certificate must have been.
    pub fn of_certificate(
        certificate: &CertificateDer<'_>,
        cluster: &str,
    ) -> Result<Self, NodeNameError> {
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
            .map_err(|_| NodeNameError::Malformed)?;
        let names = parsed.subject_alternative_name().map_err(|_| NodeNameError::Malformed)?;
        let names = names.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
        let mut uris = names.iter().filter_map(|name| match name {
            GeneralName::URI(uri) if uri.starts_with(SCHEME) => Some(*uri),
            _ => None,
        });
        let uri = uris.next().ok_or(NodeNameError::Nameless)?;
        if uris.next().is_some() {
            return Err(NodeNameError::Ambiguous);
        }
        Self::parse_uri(uri, cluster)
    }

    fn parse_uri(uri: &str, cluster: &str) -> Result<Self, NodeNameError> {
        let form = || NodeNameError::Form(uri.to_owned());
        let parts: Vec<String> = uri
            .strip_prefix(SCHEME)
            .ok_or_else(form)?
            .split('/')
            .map(|part| percent_decode_str(part).decode_utf8().map(Into::into))
            .collect::<Result<_, _>>()
            .map_err(|_| form())?;
        let Ok([found, role, name]) = <[String; 3]>::try_from(parts) else { return Err(form()) };
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(form());
        }
        if found != cluster {
            return Err(NodeNameError::OtherCluster(found));
        }
        Ok(Self { role: role.parse()?, name })
    }

    /// Fails unless this is a node of `role`.
    pub fn require_role(&self, wanted: NodeRole) -> Result<(), NodeNameError> {
        match self.role == wanted {
            true => Ok(()),
            false => Err(NodeNameError::OtherRole { found: self.clone(), wanted }),
        }
    }

    /// Fails unless this node has the name `wanted`.
    pub fn require_name(&self, wanted: &str) -> Result<(), NodeNameError> {
        match self.name == wanted {
            true => Ok(()),
            false => {
                Err(NodeNameError::OtherName { found: self.clone(), wanted: wanted.to_owned() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_name_has_cluster_role_and_name() {
        let parse = |uri| NodeName::parse_uri(uri, "train");
        let worker = parse("verbs3://train/worker/gpu%2F01").unwrap();
        assert_eq!(worker, NodeName { role: NodeRole::Worker, name: "gpu/01".to_owned() });
        assert_eq!(worker.require_role(NodeRole::Worker), Ok(()));
        assert!(worker.require_role(NodeRole::Operator).is_err());
        assert!(worker.require_name("gpu/01").is_ok() && worker.require_name("gpu").is_err());
        assert_eq!(
            parse("verbs3://other/worker/a"),
            Err(NodeNameError::OtherCluster("other".to_owned()))
        );
        assert_eq!(parse("verbs3://train/root/a"), Err(NodeNameError::Role("root".to_owned())));
        for wrong in [
            "verbs3://train/worker",
            "verbs3://train/worker/",
            "verbs3://train/worker/a/b",
            "verbs3://train/worker/%ff",
            "verbs3://train/worker/a%0ab",
        ] {
            assert_eq!(parse(wrong), Err(NodeNameError::Form(wrong.to_owned())), "{wrong}");
        }
    }
}
