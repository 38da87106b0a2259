//! The patches of many kinds of pods, applied as an API server would.
#![allow(clippy::unwrap_used)]

use super::*;

fn settings() -> WebhookSettings {
    WebhookSettings::default()
}

/// What the pod is after the patch. Knows `add`, which is all that is used.
fn apply(pod: &Value, injection: &PodInjection) -> Value {
    let mut pod = pod.clone();
    for operation in &injection.operations {
        assert_eq!(operation["op"], "add");
        let path = operation["path"].as_str().unwrap();
        let (parent, last) = path.rsplit_once('/').unwrap();
        match pod.pointer_mut(parent).unwrap() {
            Value::Object(object) => {
                drop(object.insert(last.to_owned(), operation["value"].clone()));
            }
            Value::Array(list) => list.insert(last.parse().unwrap(), operation["value"].clone()),
            other => panic!("{path} leads into {other}"),
        }
    }
    pod
}

/// Patches a pod, and holds that a second patch is empty.
fn inject(settings: &WebhookSettings, pod: &Value) -> Value {
    let patched = apply(pod, &settings.plan_injection(pod));
    let again = settings.plan_injection(&patched);
    assert_eq!(again.operations, Vec::<Value>::new(), "a second patch of {patched}");
    patched
}

fn pod(container: Value) -> Value {
    json!({ "metadata": { "name": "train" }, "spec": { "containers": [container] } })
}

/// Names of a container's variables, in order.
fn names(pod: &Value, list: &str, index: usize) -> Vec<String> {
    let env = pod["spec"][list][index]["env"].as_array().cloned().unwrap_or_default();
    env.iter().map(|variable| variable["name"].as_str().unwrap().to_owned()).collect()
}

const ALL: [&str; 4] =
    ["VERBS3_NODE_IP", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"];

#[test]
fn every_container_gets_endpoint_and_region() {
    let pod = json!({ "spec": {
        "initContainers": [{ "name": "fetch" }],
        "containers": [{ "name": "train", "env": null }, { "name": "log", "env": [] }],
    } });
    let patched = inject(&settings(), &pod);
    assert_eq!(names(&patched, "initContainers", 0), ALL);
    assert_eq!(names(&patched, "containers", 0), ALL);
    assert_eq!(names(&patched, "containers", 1), ALL);
    let env = &patched["spec"]["containers"][0]["env"];
    assert_eq!(env[0]["valueFrom"]["fieldRef"]["fieldPath"], "status.hostIP");
    assert_eq!(env[1]["value"], "http://$(VERBS3_NODE_IP):9000");
}

#[test]
fn the_address_stands_before_whatever_uses_it() {
    let own = json!({ "name": "S3", "value": "$(AWS_ENDPOINT_URL_S3)/data" });
    let patched = inject(&settings(), &pod(json!({ "env": [own] })));
    assert_eq!(names(&patched, "containers", 0)[4], "S3");
    // An address of the container's own is used, and stays where it is.
    let own = json!([{ "name": "A", "value": "1" }, { "name": "VERBS3_NODE_IP", "value": "::1" }]);
    let patched = inject(&settings(), &pod(json!({ "env": own })));
    let expected = ["A", "VERBS3_NODE_IP", ALL[1], ALL[2], ALL[3]];
    assert_eq!(names(&patched, "containers", 0), expected);
}

#[test]
fn variables_that_are_set_stay() {
    for (set, expected) in [
        ("AWS_ENDPOINT_URL_S3", &[][..]),
        ("AWS_ENDPOINT_URL", &[]),
        ("AWS_REGION", &["VERBS3_NODE_IP", "AWS_ENDPOINT_URL_S3"]),
        ("AWS_DEFAULT_REGION", &["VERBS3_NODE_IP", "AWS_ENDPOINT_URL_S3"]),
    ] {
        let patched =
            inject(&settings(), &pod(json!({ "env": [{ "name": set, "value": "own" }] })));
        let mut expected: Vec<&str> = expected.to_vec();
        expected.push(set);
        assert_eq!(names(&patched, "containers", 0), expected, "{set}");
        let env = patched["spec"]["containers"][0]["env"].as_array().unwrap();
        assert_eq!(env.last().unwrap()["value"], "own");
    }
}

#[test]
fn keys_come_from_the_secret_unless_any_credentials_are_set() {
    let settings = WebhookSettings { credentials_secret: Some("s3".to_owned()), ..settings() };
    let patched = inject(&settings, &pod(json!({})));
    assert_eq!(names(&patched, "containers", 0)[4..], KEYS);
    let reference = &patched["spec"]["containers"][0]["env"][4]["valueFrom"]["secretKeyRef"];
    assert_eq!(*reference, json!({ "name": "s3", "key": KEYS[0], "optional": true }));
    for set in KEYS.iter().chain(&OTHER_CREDENTIALS) {
        let patched = inject(&settings, &pod(json!({ "env": [{ "name": set, "value": "own" }] })));
        assert_eq!(names(&patched, "containers", 0).len(), 5, "{set}");
    }
}

#[test]
fn an_own_endpoint_gets_no_keys_unless_the_pod_names_them() {
    let settings = WebhookSettings { credentials_secret: Some("s3".to_owned()), ..settings() };
    let mut pod = pod(json!({ "env": [{ "name": ENDPOINT, "value": "https://other" }] }));
    assert_eq!(settings.plan_injection(&pod).operations, Vec::<Value>::new());
    pod["metadata"]["annotations"] = json!({ "verbs3.io/credentials": "mine" });
    assert_eq!(names(&inject(&settings, &pod), "containers", 0), [KEYS[0], KEYS[1], ENDPOINT]);
}

#[test]
fn a_secret_that_the_pod_names_has_to_be_there() {
    let settings = WebhookSettings { credentials_secret: Some("s3".to_owned()), ..settings() };
    let mut pod = pod(json!({}));
    pod["metadata"]["annotations"] = json!({ "verbs3.io/credentials": "mine" });
    let patched = inject(&settings, &pod);
    let reference = &patched["spec"]["containers"][0]["env"][4]["valueFrom"]["secretKeyRef"];
    assert_eq!(*reference, json!({ "name": "mine", "key": KEYS[0], "optional": false }));
}

#[test]
fn beside_env_from_nothing_is_added_unless_the_pod_wants_it() {
    let hidden = json!({ "name": "train", "envFrom": [{ "configMapRef": { "name": "s3" } }] });
    let mut pod = pod(hidden);
    let injection = settings().plan_injection(&pod);
    assert_eq!(injection.operations, Vec::<Value>::new());
    assert!(injection.warnings[0].contains("\"train\""), "{:?}", injection.warnings);
    assert!(injection.warnings[0].len() <= WARNING_LETTERS_MAX);
    pod["metadata"]["annotations"] = json!({ "verbs3.io/beside-env-from": "true" });
    assert_eq!(names(&inject(&settings(), &pod), "containers", 0), ALL);
}

#[test]
fn env_from_with_another_prefix_hides_nothing() {
    for (prefix, count) in [("DB_", 4), ("AWS_S", 0), ("AWS_", 0), ("V", 0), ("AWS_CA_", 4)] {
        let pod = pod(json!({ "envFrom": [{ "prefix": prefix, "secretRef": {} }] }));
        assert_eq!(names(&inject(&settings(), &pod), "containers", 0).len(), count, "{prefix}");
    }
}

#[test]
fn pods_on_windows_mirrors_and_disabled_ones_stay() {
    let pods = [
        json!({ "spec": { "os": { "name": "windows" }, "containers": [{}] } }),
        json!({ "spec": { "nodeSelector": { "kubernetes.io/os": "windows" }, "containers": [{}] } }),
        json!({
            "metadata": { "annotations": { "kubernetes.io/config.mirror": "f00" } },
            "spec": { "containers": [{}] },
        }),
        json!({
            "metadata": { "labels": { "verbs3.io/inject": "disabled" } },
            "spec": { "containers": [{}] },
        }),
    ];
    for pod in pods {
        assert_eq!(settings().plan_injection(&pod), PodInjection::default(), "{pod}");
    }
}

#[test]
fn pods_of_the_hosts_network_and_volumes_are_like_others() {
    let pod = json!({ "spec": {
        "hostNetwork": true, "containers": [{ "volumeMounts": [{ "name": "sockets" }] }],
        "volumes": [{ "name": "sockets", "emptyDir": {} }],
    } });
    let patched = inject(&settings(), &pod);
    assert_eq!(names(&patched, "containers", 0), ALL);
    assert_eq!(patched["spec"]["volumes"], pod["spec"]["volumes"]);
    assert_eq!(patched["spec"]["containers"][0]["volumeMounts"][0]["name"], "sockets");
}

#[test]
fn a_fixed_endpoint_needs_no_address() {
    let endpoint = "http://verbs3-gateway.verbs3.svc:9000".to_owned();
    let settings = WebhookSettings { endpoint, region: String::new(), ..settings() };
    assert_eq!(names(&inject(&settings, &pod(json!({}))), "containers", 0), [ENDPOINT]);
}

#[test]
fn a_pod_of_very_many_containers_gets_a_warning_alone() {
    let of = |count: usize| json!({ "spec": { "containers": vec![json!({}); count] } });
    assert_eq!(settings().plan_injection(&of(CONTAINERS_MAX)).operations.len(), CONTAINERS_MAX);
    let injection = settings().plan_injection(&of(CONTAINERS_MAX + 1));
    assert_eq!((injection.operations.len(), injection.warnings.len()), (0, 1));
}

#[test]
fn what_is_no_pod_gets_nothing() {
    let text = json!({ "spec": { "containers": [{ "env": "text" }, 3, null, []] } });
    for pod in
        [json!(null), json!([1]), json!({ "spec": [] }), json!({ "spec": { "containers": 1 } })]
    {
        assert_eq!(settings().plan_injection(&pod), PodInjection::default(), "{pod}");
    }
    // An API server never sends such containers; they must not end the process.
    settings().plan_injection(&text);
}

fn lending_settings() -> WebhookSettings {
    let socket = Some("/run/verbs3-lending/gateway.sock".into());
    WebhookSettings { lending_socket: socket, ..settings() }
}

fn lending_pod(spec: Value) -> Value {
    json!({ "metadata": { "annotations": { "verbs3.io/lending": "true" } }, "spec": spec })
}

#[test]
fn a_pod_that_lends_memory_gets_the_folder_of_its_node() {
    let spec = json!({
        "initContainers": [{ "name": "fetch" }],
        "containers": [{ "name": "train", "volumeMounts": [{ "name": "d", "mountPath": "/d" }] }],
        "volumes": [{ "name": "d", "emptyDir": {} }],
    });
    let patched = inject(&lending_settings(), &lending_pod(spec.clone()));
    let volume = json!({
        "name": "verbs3-lending",
        "hostPath": { "path": "/run/verbs3-lending", "type": "DirectoryOrCreate" },
    });
    assert_eq!(patched["spec"]["volumes"], json!([{ "name": "d", "emptyDir": {} }, volume]));
    let mount =
        json!({ "name": "verbs3-lending", "mountPath": "/run/verbs3-lending", "readOnly": true });
    let train = &patched["spec"]["containers"][0];
    assert_eq!(train["volumeMounts"], json!([{ "name": "d", "mountPath": "/d" }, mount]));
    assert_eq!(patched["spec"]["initContainers"][0]["volumeMounts"], json!([mount]));
    let told = json!({ "name": "VERBS3_SOCKET", "value": "/run/verbs3-lending/gateway.sock" });
    assert_eq!(train["env"].as_array().unwrap().last(), Some(&told));
    // Only who asks.
    for other in [json!({ "spec": spec }), pod(json!({ "name": "train" }))] {
        let patched = inject(&lending_settings(), &other);
        assert_eq!(patched["spec"].get("volumes"), other["spec"].get("volumes"));
        assert_eq!(names(&patched, "containers", 0), ALL);
    }
}

#[test]
fn a_container_with_a_socket_or_folder_of_its_own_gets_neither() {
    let own = json!([{ "name": "VERBS3_SOCKET", "value": "/mine/gateway.sock" }]);
    let spec = json!({ "containers": [
        { "name": "a", "env": own },
        { "name": "b", "volumeMounts": [{ "name": "x", "mountPath": "/run/verbs3-lending/" }] },
        { "name": "c", "envFrom": [{ "prefix": "VERBS3_" }] },
    ], "volumes": [{ "name": "x", "emptyDir": {} }] });
    let patched = inject(&lending_settings(), &lending_pod(spec.clone()));
    let containers = &patched["spec"]["containers"];
    assert_eq!(containers[0].get("volumeMounts"), None);
    assert_eq!(containers[1]["volumeMounts"], spec["containers"][1]["volumeMounts"]);
    assert_eq!(names(&patched, "containers", 1), ALL, "no socket is there");
    assert_eq!(containers[2], spec["containers"][2]);
    assert_eq!(patched["spec"]["volumes"], spec["volumes"], "a folder for nobody");
}

#[test]
fn a_pod_that_does_not_ask_may_take_a_socket_from_elsewhere() {
    let pod = pod(json!({ "envFrom": [{ "prefix": "VERBS3_SOCK" }] }));
    assert_eq!(names(&inject(&lending_settings(), &pod), "containers", 0), ALL);
}

#[test]
fn who_asks_for_a_folder_that_there_is_not_is_told() {
    let asks = lending_pod(json!({ "containers": [{ "name": "train" }] }));
    let plan = settings().plan_injection(&asks);
    assert!(plan.warnings[0].contains("webhook.lending_socket is not set"), "{plan:?}");
    assert_eq!(names(&apply(&asks, &plan), "containers", 0), ALL);
}

#[test]
fn a_mount_that_waits_for_the_volume_gets_none() {
    // It would have the folder to write to.
    let mounts = json!([{ "name": "verbs3-lending", "mountPath": "/x" }]);
    let waits = json!({ "containers": [{ "name": "a" }, { "name": "b", "volumeMounts": mounts }] });
    let volumes = json!([{ "name": "verbs3-lending", "emptyDir": {} }]);
    let other = json!({ "containers": [{ "name": "train" }], "volumes": volumes });
    for spec in [waits, other] {
        let asks = lending_pod(spec.clone());
        let plan = lending_settings().plan_injection(&asks);
        assert!(plan.warnings[0].contains("of its own"), "{plan:?}");
        let patched = apply(&asks, &plan);
        assert_eq!(names(&patched, "containers", 0), ALL);
        assert_eq!(patched["spec"].get("volumes"), spec.get("volumes"));
    }
}
