//! Decides what a pod is given, as operations of a JSON Patch (RFC 6902). Pure. Never changes what a
//! container sets itself, and gives a pod that was patched already nothing more.

mod lending_folder;

use serde_json::{Value, json};

use lending_folder::LendingFolder;

use super::settings::WebhookSettings;

/// Label of pods and namespaces; the webhook's configuration selects by it.
const LABEL: &str = "verbs3.io/inject";
/// Annotation: the Secret that holds the pod's access key.
const CREDENTIALS: &str = "verbs3.io/credentials";
/// Annotation: variables are added beside `envFrom`, too.
const BESIDE_ENV_FROM: &str = "verbs3.io/beside-env-from";
/// Annotation that a kubelet gives the shadow of its static pod: nobody may change it.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The lists of a pod's containers.
const CONTAINER_LISTS: [&str; 2] = ["initContainers", "containers"];
const NODE_IP: &str = "VERBS3_NODE_IP";
const ENDPOINT: &str = "AWS_ENDPOINT_URL_S3";
/// What says where S3 is. The first wins over the second in every SDK, so it is not added beside it.
const ENDPOINTS: [&str; 2] = [ENDPOINT, "AWS_ENDPOINT_URL"];
/// SDKs differ in which they read, so both are added, or neither.
const REGIONS: [&str; 2] = ["AWS_REGION", "AWS_DEFAULT_REGION"];
const KEYS: [&str; 2] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
/// What names credentials in another way than a key: a key beside it would win over it.
const OTHER_CREDENTIALS: [&str; 9] = [
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];
/// Longest warning; API servers cut beyond 256 letters.
const WARNING_LETTERS_MAX: usize = 250;
/// Most containers of a pod that gets something. A body of three bytes a container would otherwise
/// become a patch of hundreds of bytes for each.
const CONTAINERS_MAX: usize = 200;
/// Most warnings of one pod.
const WARNINGS_MAX: usize = 8;

/// What one pod gets.
#[derive(Debug, Default, PartialEq)]
pub struct PodInjection {
    /// Operations of a JSON Patch, in order. Empty: the pod stays as it is.
    pub operations: Vec<Value>,
    /// What its author is told.
    pub warnings: Vec<String>,
}

/// Where a pod's keys come from.
struct CredentialsSource<'a> {
    secret: &'a str,
    /// Whether the pod starts without it.
    is_optional: bool,
}

/// What the containers of a pod get besides the endpoint.
#[derive(Clone, Copy)]
struct ContainerParts<'a> {
    source: Option<&'a CredentialsSource<'a>>,
    lending: Option<LendingFolder<'a>>,
}

impl WebhookSettings {
    /// Decides what a pod is given. `pod` may be anything: the API server checks it later.
    pub fn plan_injection(&self, pod: &Value) -> PodInjection {
        let mut injection = PodInjection::default();
        let annotations = &pod["metadata"]["annotations"];
        let is_disabled = pod["metadata"]["labels"][LABEL] == "disabled";
        if is_disabled || annotations.get(MIRROR).is_some() || runs_on_windows(&pod["spec"]) {
            return injection;
        }
        let count_of = |list: &str| pod["spec"][list].as_array().map_or(0, Vec::len);
        if CONTAINER_LISTS.into_iter().map(count_of).sum::<usize>() > CONTAINERS_MAX {
            let warning = format!(
                "verbs3: the pod has more than {CONTAINERS_MAX} containers: nothing was added"
            );
            injection.warnings.push(warning);
            return injection;
        }
        let named = annotations[CREDENTIALS].as_str().filter(|name| !name.is_empty());
        let source = match (named, &self.credentials_secret) {
            // A name that is wrong has to show, so that pod does not start without it.
            (Some(secret), _) => Some(CredentialsSource { secret, is_optional: false }),
            (None, Some(secret)) => Some(CredentialsSource { secret, is_optional: true }),
            (None, None) => None,
        };
        let is_beside_env_from = annotations[BESIDE_ENV_FROM] == "true";
        let lending = match annotations[lending_folder::LENDING] == "true" {
            true => self.find_lending(&pod["spec"], &mut injection.warnings),
            false => None,
        };
        let mut lends = false;
        for list in CONTAINER_LISTS {
            for (index, container) in pod["spec"][list].as_array().into_iter().flatten().enumerate()
            {
                if !is_beside_env_from && hides_variables(container, lending.is_some()) {
                    injection.warn_env_from(container);
                    continue;
                }
                let path = format!("/spec/{list}/{index}");
                let parts = ContainerParts { source: source.as_ref(), lending };
                lends |= self.plan_container(container, &path, parts, &mut injection.operations);
            }
        }
        // For nobody, a folder of the host would only keep the pod out of its namespace.
        if let Some(folder) = lending.filter(|_| lends) {
            folder.plan_volume(&pod["spec"], &mut injection.operations);
        }
        injection
    }

    /// Returns the folder of the gateway's socket, for a pod that asks for it.
    fn find_lending(&self, spec: &Value, warnings: &mut Vec<String>) -> Option<LendingFolder<'_>> {
        let folder = self.lending_socket.as_deref().and_then(LendingFolder::of_socket);
        let warning = match &folder {
            Some(found) if !found.is_in_the_way(spec) => return folder,
            Some(_) => lending_folder::OWN_USE,
            None => lending_folder::NO_SOCKET,
        };
        warnings.push(warning.to_owned());
        None
    }

    /// Returns whether the container sees the folder of the gateway's socket.
    fn plan_container(
        &self,
        container: &Value,
        path: &str,
        parts: ContainerParts<'_>,
        operations: &mut Vec<Value>,
    ) -> bool {
        let env = container["env"].as_array();
        if env.is_none() && !container["env"].is_null() {
            return false;
        }
        let place = |name: &str| env.and_then(|env| env.iter().position(|v| v["name"] == name));
        let sets_any = |names: &[&str]| names.iter().any(|name| place(name).is_some());
        let mut added = Vec::new();
        // `$(NAME)` sees only variables before it. What is added comes first, so that the
        // container's own may use it; but after an address of its own, which it uses itself.
        let mut at = 0;
        // An endpoint of the container's own has its own region and keys, which need not be variables.
        let is_ours = !sets_any(&ENDPOINTS);
        if is_ours {
            if self.endpoint.contains(&format!("$({NODE_IP})")) {
                match place(NODE_IP) {
                    Some(own) => at = own + 1,
                    None => added.push(json!({
                        "name": NODE_IP,
                        "valueFrom": { "fieldRef": { "fieldPath": "status.hostIP" } },
                    })),
                }
            }
            added.push(json!({ "name": ENDPOINT, "value": self.endpoint }));
        }
        let region = &self.region;
        if !region.is_empty() && is_ours && !sets_any(&REGIONS) {
            added.extend(REGIONS.map(|name| json!({ "name": name, "value": region })));
        }
        if let Some(CredentialsSource { secret, is_optional }) = parts.source
            && (is_ours || !is_optional)
            && !sets_any(&KEYS)
            && !sets_any(&OTHER_CREDENTIALS)
        {
            added.extend(KEYS.map(|key| {
                let reference = json!({ "name": secret, "key": key, "optional": is_optional });
                json!({ "name": key, "valueFrom": { "secretKeyRef": reference } })
            }));
        }
        // A socket of the container's own has its own folder.
        let mut lends = false;
        if let Some(lending) = parts.lending.filter(|_| !sets_any(&[lending_folder::SOCKET]))
            && let Some(mounting) = lending.plan_mount(container, path)
        {
            lends = true;
            added.push(lending.socket_variable());
            operations.extend(mounting);
        }
        let path = format!("{path}/env");
        match env {
            _ if added.is_empty() => {}
            None => operations.push(json!({ "op": "add", "path": path, "value": added })),
            Some(_) => operations.extend(added.into_iter().enumerate().map(|(index, variable)| {
                json!({ "op": "add", "path": format!("{path}/{}", at + index), "value": variable })
            })),
        }
        lends
    }
}

impl PodInjection {
    fn warn_env_from(&mut self, container: &Value) {
        if self.warnings.len() >= WARNINGS_MAX {
            return;
        }
        let name: String =
            container["name"].as_str().unwrap_or_default().chars().take(63).collect();
        let warning = format!(
            "verbs3: container {name:?} takes variables by envFrom, which may set its endpoint: \
            nothing was added; the annotation {BESIDE_ENV_FROM}=true adds them"
        );
        self.warnings.push(warning.chars().take(WARNING_LETTERS_MAX).collect());
    }
}

/// Whether `envFrom` may set a variable that is added: what a ConfigMap or Secret holds is not known
/// here, and `env` wins over it.
fn hides_variables(container: &Value, lends: bool) -> bool {
    let socket: &[&str] = if lends { &[lending_folder::SOCKET] } else { &[] };
    let lists = [&[NODE_IP][..], &ENDPOINTS, &REGIONS, &KEYS, &OTHER_CREDENTIALS, socket];
    let may_set = |source: &Value| {
        let prefix = source["prefix"].as_str().unwrap_or_default();
        lists.iter().copied().flatten().any(|name| name.starts_with(prefix))
    };
    container["envFrom"].as_array().into_iter().flatten().any(may_set)
}

fn runs_on_windows(spec: &Value) -> bool {
    let selector = &spec["nodeSelector"];
    spec["os"]["name"] == "windows"
        || selector["kubernetes.io/os"] == "windows"
        || selector["beta.kubernetes.io/os"] == "windows"
}

#[cfg(test)]
mod tests;
