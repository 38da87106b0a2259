//! What the controller asks the API server about resources: lists them, writes status and
//! finalizers, reads the Secret that one names, publishes events. Decides nothing.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::json;

use super::preload_gateway::PreloadKey;
use super::preload_round::{ListedPreload, PreloadName};
use crate::api_server::{ApiServer, ApiServerError};
use crate::preload_resource::resource_definition::{GROUP, KIND, PLURAL, VERSION};
use crate::preload_resource::{
    PreloadResource, PreloadResourceStatus, ResourceMetadata, bound_text,
};

const NAME: &str = "verbs3-controller";
/// Resources in one answer. Each has 2 MiB at most, with all that others may have written to it.
const PAGE: usize = 20;
/// Longest note of an event, in letters; API servers refuse more than 1024 bytes.
const NOTE_LETTERS_MAX: usize = 250;

/// The resources, at the API server.
pub(super) struct ResourceStore {
    api: ApiServer,
}

/// Some resources, as they were listed.
#[derive(Debug)]
pub(super) struct ListedResources {
    pub resources: Vec<ListedPreload>,
    /// What the next page is asked by; empty: there is none.
    pub next: String,
}

/// Something to tell about a resource.
pub(super) struct PreloadEvent<'a> {
    pub kind: EventKind,
    /// One word.
    pub reason: &'a str,
    pub note: String,
}

/// Whether somebody should look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventKind {
    Normal,
    Warning,
}

#[derive(Debug, Deserialize)]
struct ResourcePage {
    items: Vec<ListedPreload>,
    #[serde(default)]
    metadata: PageMetadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PageMetadata {
    #[serde(rename = "continue")]
    next: String,
}

/// A Secret, as far as it is read.
#[derive(Deserialize)]
struct SecretDocument {
    #[serde(default)]
    data: std::collections::BTreeMap<String, String>,
}

impl ResourceStore {
    /// Makes it. Asks nobody yet.
    pub fn new(api: ApiServer) -> Self {
        Self { api }
    }

    /// Lists resources of all namespaces, a page of them. `next` comes from the page before; empty:
    /// the first one.
    pub async fn list_page(&self, next: &str) -> Result<ListedResources, ApiServerError> {
        // Base64: nothing else of it has to be escaped.
        let next = next.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
        let path = format!("/apis/{GROUP}/{VERSION}/{PLURAL}?limit={PAGE}&continue={next}");
        let ResourcePage { items: resources, metadata } = self.api.get(&path).await?;
        Ok(ListedResources { resources, next: metadata.next })
    }

    /// Reads a resource as it is now. `None`: it is gone, or a namesake has its place.
    pub async fn read_resource(
        &self,
        name: &PreloadName,
    ) -> Result<Option<PreloadResource>, ApiServerError> {
        let path = resource_path(&name.namespace, &name.name);
        let resource: PreloadResource = match self.api.get(&path).await {
            Err(error) if error.is_status(404) => return Ok(None),
            answer => answer?,
        };
        Ok(Some(resource).filter(|resource| resource.metadata.uid == name.uid))
    }

    /// Adds a finalizer, or takes it away. By the version that was read: another's finalizer must
    /// not get lost.
    pub async fn set_finalizer(
        &self,
        resource: &PreloadResource,
        finalizer: &str,
        is_wanted: bool,
    ) -> Result<(), ApiServerError> {
        let path = resource_path(&resource.metadata.namespace, &resource.metadata.name);
        let fresh: PreloadResource = match self.api.get(&path).await {
            Err(error) if error.is_status(404) => return Ok(()),
            answer => answer?,
        };
        let mut finalizers = fresh.metadata.finalizers;
        let is_there = finalizers.iter().any(|name| name == finalizer);
        if is_there == is_wanted || fresh.metadata.uid != resource.metadata.uid {
            return Ok(());
        }
        match is_wanted {
            true => finalizers.push(finalizer.to_owned()),
            false => finalizers.retain(|name| name != finalizer),
        }
        let version = fresh.metadata.resource_version;
        let change =
            json!({ "metadata": { "finalizers": finalizers, "resourceVersion": version } });
        match self.api.merge_document(&path, &change).await {
            Err(error) if error.is_status(404) => Ok(()),
            answer => answer,
        }
    }

    /// Writes the status. What it has not is taken away. Returns whether it was written: a resource
    /// that was changed since it was read, or a namesake, keeps its own.
    pub async fn write_status(
        &self,
        resource: &PreloadResource,
        status: &PreloadResourceStatus,
    ) -> Result<bool, ApiServerError> {
        let ResourceMetadata { namespace, name, resource_version, .. } = &resource.metadata;
        // The uid would not do: API servers compare it with nothing here.
        let change =
            json!({ "metadata": { "resourceVersion": resource_version }, "status": status });
        let path = format!("{}/status", resource_path(namespace, name));
        match self.api.merge_document(&path, &change).await {
            Err(error) if error.is_status(404) || error.is_status(409) => Ok(false),
            answer => answer.map(|()| true),
        }
    }

    /// Reads the key of the Secret that the resource names, in the resource's own namespace.
    /// `None`: the Secret lacks a part of it.
    pub async fn read_key(
        &self,
        resource: &PreloadResource,
    ) -> Result<Option<PreloadKey>, ApiServerError> {
        let (namespace, name) = (&resource.metadata.namespace, &resource.spec.secret_name);
        // What is no name of a Secret must not become another path.
        if !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c))
            || name.starts_with('.')
        {
            let message = format!("{:?} is no name of a Secret", bound_text(name, 253));
            return Err(ApiServerError::Refused { status: 404, message });
        }
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        let secret: SecretDocument = self.api.get(&path).await?;
        let part = |key: &str| {
            let bytes = BASE64_STANDARD.decode(secret.data.get(key)?).ok()?;
            let text = String::from_utf8(bytes).ok()?.trim().to_owned();
            (!text.is_empty()).then_some(text)
        };
        let parts = (part("AWS_ACCESS_KEY_ID"), part("AWS_SECRET_ACCESS_KEY"));
        let (Some(access_key), Some(secret_key)) = parts else { return Ok(None) };
        Ok(Some(PreloadKey { access_key, secret_key }))
    }

    /// Publishes an event. One that is refused is no reason to stop: a namespace that goes takes
    /// none.
    pub async fn publish_event(
        &self,
        resource: &PreloadResource,
        event: PreloadEvent<'_>,
        now: &str,
    ) {
        let metadata = &resource.metadata;
        let kind = match event.kind {
            EventKind::Normal => "Normal",
            EventKind::Warning => "Warning",
        };
        let suffix = rand::random::<u64>();
        let document = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "type": kind,
            "metadata": {
                "name": format!("{}.{suffix:016x}", bound_text(&metadata.name, 200)),
                "namespace": metadata.namespace,
            },
            "eventTime": now.replace('Z', ".000000Z"),
            "reportingController": NAME, "reportingInstance": NAME,
            "action": "Preload", "reason": event.reason,
            "note": bound_text(&event.note, NOTE_LETTERS_MAX),
            "regarding": {
                "apiVersion": format!("{GROUP}/{VERSION}"), "kind": KIND,
                "name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid,
            },
        });
        let path = format!("/apis/events.k8s.io/v1/namespaces/{}/events", metadata.namespace);
        if let Err(error) = self.api.create_document(&path, &document).await {
            tracing::debug!(%error, "an event was not published");
        }
    }
}

/// Names of resources and namespaces have nothing that a path would have to hide.
fn resource_path(namespace: &str, name: &str) -> String {
    format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}/{name}")
}
