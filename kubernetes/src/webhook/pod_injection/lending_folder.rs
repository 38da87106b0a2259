//! What a pod gets that lends memory: the folder of its node's gateway socket, and where it is.

use std::path::Path;

use serde_json::{Value, json};

use super::CONTAINER_LISTS;

/// Annotation of pods that lend memory. Not for all: a folder of the host keeps a pod out of
/// namespaces that enforce Pod Security `baseline`.
pub(super) const LENDING: &str = "verbs3.io/lending";
/// Where clients look for the socket.
pub(super) const SOCKET: &str = "VERBS3_SOCKET";
const VOLUME: &str = "verbs3-lending";

/// Why a pod that asks for it gets no folder.
pub(super) const NO_SOCKET: &str = "verbs3: webhook.lending_socket is not set: the gateways of this \
    cluster take no memory of pods, which read over HTTP";
pub(super) const OWN_USE: &str = "verbs3: the pod has a volume or mount of its own that is named \
    verbs3-lending: it reads over HTTP";

/// The socket, and the folder that it is in.
#[derive(Clone, Copy)]
pub(super) struct LendingFolder<'a> {
    socket: &'a str,
    folder: &'a str,
}

impl<'a> LendingFolder<'a> {
    /// Takes the socket of the settings, which have been checked. `None`: it is no text.
    pub fn of_socket(socket: &'a Path) -> Option<Self> {
        Some(Self { socket: socket.to_str()?, folder: socket.parent()?.to_str()? })
    }

    /// Returns true if the pod uses the volume's name itself, and not as a patch would. A mount of its
    /// own could be writable.
    pub fn is_in_the_way(&self, spec: &Value) -> bool {
        match volume_of(spec) {
            Some(own) => own["hostPath"]["path"] != self.folder,
            None => CONTAINER_LISTS
                .into_iter()
                .flat_map(|list| spec[list].as_array().into_iter().flatten())
                .flat_map(|container| container["volumeMounts"].as_array().into_iter().flatten())
                .any(|mount| mount["name"] == VOLUME),
        }
    }

    /// Adds the volume, unless a patch has done so.
    pub fn plan_volume(&self, spec: &Value, operations: &mut Vec<Value>) {
        if volume_of(spec).is_none() {
            let volumes = spec["volumes"].as_array();
            operations.push(add_to_list(volumes, "/spec/volumes", self.volume()));
        }
    }

    /// Adds the mount to a container at `path` of the pod. Clients sign the socket's path, so it is
    /// the gateway's own. `None`: the container has something else there.
    pub fn plan_mount(&self, container: &Value, path: &str) -> Option<Vec<Value>> {
        let mounts = container["volumeMounts"].as_array();
        let is_here = |mount: &&Value| {
            let at = mount["mountPath"].as_str().unwrap_or_default();
            mount["name"] == VOLUME || at.trim_end_matches('/') == self.folder
        };
        let Some(own) = mounts.into_iter().flatten().find(is_here) else {
            let mount = json!({ "name": VOLUME, "mountPath": self.folder, "readOnly": true });
            return Some(vec![add_to_list(mounts, &format!("{path}/volumeMounts"), mount)]);
        };
        let is_same = own["name"] == VOLUME && own["mountPath"] == self.folder;
        is_same.then(Vec::new)
    }

    /// Returns the variable that tells clients the socket's path.
    pub fn socket_variable(&self) -> Value {
        json!({ "name": SOCKET, "value": self.socket })
    }

    /// A node whose gateway is not there yet has no folder: its pods start all the same.
    fn volume(&self) -> Value {
        let host_path = json!({ "path": self.folder, "type": "DirectoryOrCreate" });
        json!({ "name": VOLUME, "hostPath": host_path })
    }
}

fn volume_of(spec: &Value) -> Option<&Value> {
    spec["volumes"].as_array()?.iter().find(|volume| volume["name"] == VOLUME)
}

/// Adds to the end of a list, which may not be there.
fn add_to_list(list: Option<&Vec<Value>>, path: &str, value: Value) -> Value {
    match list {
        Some(list) => {
            json!({ "op": "add", "path": format!("{path}/{}", list.len()), "value": value })
        }
        None => json!({ "op": "add", "path": path, "value": [value] }),
    }
}
