//! Applies bucket notifications: the JSON by which stores report changes made behind the gateways.
//!
//! The form is AWS's
//! (<https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html>).
//! RGW and MinIO send it, too; their event names begin with `s3:`. Keys are encoded as in forms.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Value, json};
use verbs3_protocol::ObjectVolume;

use crate::api::{NotificationSummary, PreloadJobSpec, PreloadPriority};
use crate::object_admin::{NAMES_MAX, ObjectAdmin, ObjectError};

/// Prefix of the ids of jobs that notifications start.
pub(crate) const NOTIFIED: &str = "notified-";

/// The used parts of a notification.
#[derive(Debug, Clone, Default, JsonSchema, Deserialize)]
pub struct BucketNotification {
    #[serde(rename = "Records", default)]
    records: Vec<NotificationRecord>,
    /// Set in a test message: `s3:TestEvent`.
    #[serde(rename = "Event", default)]
    event: Option<String>,
}

#[derive(Debug, Clone, JsonSchema, Deserialize)]
struct NotificationRecord {
    #[serde(rename = "eventName")]
    name: String,
    #[schemars(schema_with = "changed_object_schema")]
    s3: Value,
}

/// Describes the part of a record that is looked at.
fn changed_object_schema(_: &mut SchemaGenerator) -> Schema {
    let text = |name: &str| {
        let properties = json!({ name: { "type": "string" } });
        json!({ "type": "object", "required": [name], "properties": properties })
    };
    json_schema!({
        "type": "object",
        "required": ["bucket", "object"],
        "properties": { "bucket": text("name"), "object": text("key") },
    })
}

/// Reason for refusing a notification.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NotificationError {
    #[error("a notification has Records, or is an Event that tests the way; this is neither")]
    Empty,
    #[error("record {0} names no s3.bucket.name and s3.object.key")]
    Record(usize),
    #[error(transparent)]
    Object(#[from] ObjectError),
}

impl ObjectAdmin {
    /// Makes homes ask the UFS again before they answer for created or removed objects. Returns
    /// what was done, and the job that would load the created objects.
    pub async fn apply_notification(
        &self,
        said: &BucketNotification,
        ufs: Option<&str>,
    ) -> Result<(NotificationSummary, Option<PreloadJobSpec>), NotificationError> {
        if said.records.is_empty() && said.event.is_none() {
            return Err(NotificationError::Empty);
        }
        if said.records.len() > NAMES_MAX {
            return Err(ObjectError::TooMany(said.records.len()).into());
        }
        let mut keys: BTreeMap<ObjectVolume, Vec<String>> = BTreeMap::new();
        let (mut notified, mut created) = (NotificationSummary::default(), Vec::new());
        for (number, record) in said.records.iter().enumerate() {
            let text = |path: &str| record.s3.pointer(path).and_then(Value::as_str);
            let (Some(bucket), Some(raw)) = (text("/bucket/name"), text("/object/key")) else {
                return Err(NotificationError::Record(number));
            };
            let Some(kind) = ObjectEventKind::from_event_name(&record.name) else {
                notified.ignored += 1;
                continue;
            };
            let key = percent_decode_str(&raw.replace('+', "%20")).decode_utf8_lossy().into_owned();
            let volumes = self.volumes_of(ufs, bucket);
            if volumes.is_empty() {
                notified.unknown += 1;
            }
            for volume in volumes {
                if kind == ObjectEventKind::Created {
                    created.extend(self.path_of(&volume, &key));
                }
                let of_volume = keys.entry(volume).or_default();
                of_volume.push(key.clone());
                if raw != key {
                    // Some stores do not encode keys. One of the two keys then does not exist,
                    // which is harmless.
                    of_volume.push(raw.to_owned());
                }
                notified.invalidated += 1;
            }
        }
        self.invalidate_keys(keys).await.map_err(ObjectError::from)?;
        created.sort();
        created.dedup();
        let id = Some(format!("{NOTIFIED}{:016x}", rand::random::<u64>()));
        let job = PreloadJobSpec {
            id,
            paths: created,
            priority: PreloadPriority::Low,
            ..PreloadJobSpec::default()
        };
        Ok((notified, (!job.paths.is_empty()).then_some(job)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ObjectEventKind {
    Created,
    Removed,
    /// Tags, ACLs or a restore changed.
    Changed,
}

impl ObjectEventKind {
    /// Parses an event's name. `None`: it changes nothing that is cached.
    fn from_event_name(event: &str) -> Option<Self> {
        let event = event.strip_prefix("s3:").unwrap_or(event);
        match event.split(':').next().unwrap_or_default() {
            "ObjectCreated" => Some(Self::Created),
            "ObjectRemoved" | "LifecycleExpiration" | "ObjectLifecycle" => Some(Self::Removed),
            "ObjectTagging"
            | "ObjectAcl"
            | "ObjectRestore"
            | "LifecycleTransition"
            | "ObjectSynced" => Some(Self::Changed),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn events_of_all_dialects_are_understood() {
        for event in
            ["ObjectCreated:Put", "s3:ObjectCreated:CompleteMultipartUpload", "ObjectCreated:Copy"]
        {
            assert_eq!(
                ObjectEventKind::from_event_name(event),
                Some(ObjectEventKind::Created),
                "{event}"
            );
        }
        for event in [
            "ObjectRemoved:Delete",
            "s3:ObjectRemoved:DeleteMarkerCreated",
            "s3:ObjectLifecycle:Expiration:Current",
        ] {
            assert_eq!(
                ObjectEventKind::from_event_name(event),
                Some(ObjectEventKind::Removed),
                "{event}"
            );
        }
        assert_eq!(
            ObjectEventKind::from_event_name("s3:ObjectTagging:Put"),
            Some(ObjectEventKind::Changed)
        );
        assert_eq!(ObjectEventKind::from_event_name("s3:ObjectAccessed:Get"), None);
        assert_eq!(
            ObjectEventKind::from_event_name("Replication:OperationFailedReplication"),
            None
        );
    }

    #[test]
    fn a_store_may_say_more_than_we_know() {
        let text = r#"{"EventName":"s3:ObjectCreated:Put","Key":"b/k","Records":[{"eventVersion":"2.1","eventName":"s3:ObjectCreated:Put",
            "s3":{"bucket":{"name":"b","arn":"arn"},"object":{"key":"a%2Fb+c","size":5,"eTag":"x"}},"opaqueData":""}]}"#;
        let said: BucketNotification = serde_json::from_str(text).unwrap();
        assert_eq!(
            (said.records.len(), said.records[0].name.as_str()),
            (1, "s3:ObjectCreated:Put")
        );
        let test: BucketNotification =
            serde_json::from_str(r#"{"Service":"Amazon S3","Event":"s3:TestEvent"}"#).unwrap();
        assert!(test.event.is_some());
    }
}
