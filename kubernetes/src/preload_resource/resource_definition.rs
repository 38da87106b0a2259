//! The definition of the resource, as an API server takes it: made from the types.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, generate::SchemaGenerator};
use serde_json::{Value, json};

use super::{PreloadResource, PreloadResourceSpec, PreloadResourceStatus};

pub(crate) const GROUP: &str = "verbs3.io";
pub(crate) const VERSION: &str = "v1alpha1";
pub(crate) const PLURAL: &str = "preloads";
pub(crate) const KIND: &str = "Preload";

impl PreloadResource {
    /// Returns the `CustomResourceDefinition`.
    pub fn definition() -> Value {
        let column = |name: &str, kind: &str, path: &str| json!({ "name": name, "type": kind, "jsonPath": path });
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{PLURAL}.{GROUP}"),
                // Without it every resource would go with the chart.
                "annotations": { "helm.sh/resource-policy": "keep" },
            },
            "spec": {
                "group": GROUP,
                "scope": "Namespaced",
                "names": { "plural": PLURAL, "singular": "preload", "kind": KIND, "categories": ["verbs3"] },
                "versions": [{
                    "name": VERSION,
                    "served": true,
                    "storage": true,
                    "subresources": { "status": {} },
                    "additionalPrinterColumns": [
                        column("State", "string", ".status.state"),
                        column("Objects", "integer", ".status.objects"),
                        column("Loaded", "integer", ".status.objectsLoaded"),
                        column("Age", "date", ".metadata.creationTimestamp"),
                    ],
                    "schema": { "openAPIV3Schema": {
                        "description": "Objects that are loaded into the cache before anybody reads them.",
                        "type": "object",
                        "required": ["spec"],
                        "properties": {
                            "spec": structural_schema::<PreloadResourceSpec>(),
                            "status": structural_schema::<PreloadResourceStatus>(),
                        },
                    } },
                }],
            },
        })
    }
}

/// A type's schema, as API servers want it: whole, and with nothing that they refuse.
fn structural_schema<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::openapi3();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = SchemaGenerator::new(settings).into_root_schema_for::<T>().to_value();
    clean_schema(&mut schema);
    schema
}

fn clean_schema(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("title");
            // Formats that Kubernetes does not know say nothing there, and warn.
            let is_unknown =
                |format: &Value| format.as_str().is_some_and(|name| name.starts_with("uint"));
            if fields.get("format").is_some_and(is_unknown) {
                fields.remove("format");
            }
            if fields.get("default").is_some_and(Value::is_null) {
                fields.remove("default");
            }
            fields.values_mut().for_each(clean_schema);
        }
        Value::Array(values) => values.iter_mut().for_each(clean_schema),
        _ => {}
    }
}
