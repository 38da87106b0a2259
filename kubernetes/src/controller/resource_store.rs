//! What the controller asks the API server about resources: lists them, writes status and
//! finalizers, reads the Secret that one names, publishes events. Decides nothing.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::preload_gateway::PreloadKey;
use crate::api_server::{ApiServer, ApiServerError};
use crate::preload_resource::resource_definition::{GROUP, KIND, PLURAL, VERSION};
use crate::preload_resource::{PreloadResource, PreloadResourceStatus, bound_text};

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
#[derive(Debug, Default)]
pub(super) struct ListedResources {
    pub resources: Vec<PreloadResource>,
    /// Such as of another version: nothing is done for them.
    pub unreadable: usize,
    /// What the next page is asked by; empty: there is none.
    pub next: String,
    /// How many come after these, about.
    pub remaining: usize,
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

/// Items are read as what they are: as trees, the annotations of strangers would take much memory.
#[derive(Debug, Deserialize)]
struct ResourcePage<T> {
    items: Vec<T>,
    #[serde(default)]
    metadata: PageMetadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PageMetadata {
    #[serde(rename = "continue")]
    next: String,
    remaining_item_count: usize,
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
        if let Ok(ResourcePage { items: resources, metadata }) = self.api.get(&path).await {
            let PageMetadata { next, remaining_item_count: remaining } = metadata;
            return Ok(ListedResources { resources, unreadable: 0, next, remaining });
        }
        // It failed, or one of them is of another version: then each is read by itself.
        let page: ResourcePage<Value> = self.api.get(&path).await?;
        let PageMetadata { next, remaining_item_count: remaining } = page.metadata;
        let count = page.items.len();
        let items = page.items.into_iter().map(serde_json::from_value);
        let resources: Vec<PreloadResource> = items.filter_map(Result::ok).collect();
        let unreadable = count - resources.len();
        Ok(ListedResources { resources, unreadable, next, remaining })
    }

    /// Adds a finalizer, or takes it away. By the version that was read: another's finalizer must
    /// not get lost.
    pub async fn set_finalizer(
        &self,
        resource: &PreloadResource,
        finalizer: &str,
        is_wanted: bool,
    ) -> Result<(), ApiServerError> {
        let path = resource_path(resource);
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

    /// Writes the status. What it has not is taken away. Of a namesake nothing is changed.
    pub async fn write_status(
        &self,
        resource: &PreloadResource,
        status: &PreloadResourceStatus,
    ) -> Result<(), ApiServerError> {
        let change = json!({ "metadata": { "uid": resource.metadata.uid }, "status": status });
        match self.api.merge_document(&format!("{}/status", resource_path(resource)), &change).await
        {
            Err(error) if error.is_status(404) => Ok(()),
            answer => answer,
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
fn resource_path(resource: &PreloadResource) -> String {
    let metadata = &resource.metadata;
    format!("/apis/{GROUP}/{VERSION}/namespaces/{}/{PLURAL}/{}", metadata.namespace, metadata.name)
}
