//! Problems of stores and of the mounts that show them.

use super::*;

#[test]
fn ufs_problems() {
    broken(
        "name = \"aws\"",
        "name = \"ceph\"",
        &[
            "ufs[1].name: \"ceph\" is the name of ufs[0] too; names are unique",
            "mount[1].ufs: no [[ufs]] is named \"aws\"",
        ],
    );
    broken(
        "name = \"aws\"",
        "name = \"a/b\"",
        &[
            "ufs[1].name: \"a/b\" contains '/', which separates a UFS from its bucket",
            "mount[1].ufs: no [[ufs]] is named \"aws\"",
        ],
    );
    for (endpoint, message) in [
        ("ceph:7480", "\"ceph:7480\" is not a URL; write https://host or http://host:port"),
        (
            "http://",
            "\"http://\" is not a service's URL; it has a host and perhaps a port, and no path",
        ),
        (
            "http://a/b",
            "\"http://a/b\" is not a service's URL; it has a host and perhaps a port, and no path",
        ),
        ("http://me:pw@a", "has a user in it; credentials belong into the credentials table"),
    ] {
        broken("http://127.0.0.1:7480", endpoint, &[&format!("ufs[0].endpoint: {message}")]);
    }
    broken(
        "name = \"aws\"",
        "name = \"aws\"\npath = \"/tmp\"",
        &["ufs[1].path: does nothing with kind = \"s3\"; a folder needs kind = \"local\""],
    );
}

#[test]
fn a_local_store_belongs_to_one_process() {
    let local = |lines: &str| {
        GOOD.replace("name = \"aws\"", &format!("name = \"aws\"\nkind = \"local\"\n{lines}"))
    };
    assert_eq!(findings(&local("path = \"store\""), &[ProcessRole::Dev]), [""; 0]);
    assert_eq!(
        findings(&local("path = \"store\""), BOTH),
        ["ufs[1].kind: a local store belongs to one process; let `verbs3 dev` serve it, and \
            name that here as an s3 store",]
    );
    assert_eq!(
        findings(&local(""), &[ProcessRole::Dev]),
        ["ufs[1].path: is missing; kind = \"local\" needs a folder"]
    );
    assert_eq!(
        findings(&local("path = \"IDENTITIES\"\nendpoint = \"http://a\""), &[ProcessRole::Dev]),
        [
            "ufs[1].path: DIR/identities.toml is not a folder",
            "ufs[1].endpoint: does nothing with kind = \"local\"",
        ]
    );
}

#[test]
fn credentials_that_do_not_fit_their_kind_are_refused() {
    broken(
        "name = \"aws\"",
        "name = \"aws\"\ncredentials = { kind = \"static\" }",
        &[
            "ufs[1].credentials.access_key_id: is missing; kind = \"static\" needs it",
            "ufs[1].credentials.secret_access_key: is missing; kind = \"static\" needs it",
        ],
    );
    broken(
        "name = \"aws\"",
        "name = \"aws\"\ncredentials = { access_key_id = \"a\", role_arn = \"r\" }",
        &[
            "ufs[1].credentials.access_key_id: does nothing with kind = \"default\"; it belongs to \
            \"static\"",
            "ufs[1].credentials.role_arn: does nothing with kind = \"default\"; it belongs to \
            \"assume_role\" and \"web_identity\"",
        ],
    );
    broken(
        "name = \"aws\"",
        "name = \"aws\"\ncredentials = { kind = \"web_identity\", role_arn = \"r\", token_file = \
        \"/no/such\" }",
        &["ufs[1].credentials.token_file: can't read /no/such: No such file or directory (os \
            error 2)"],
    );
    broken(
        "name = \"aws\"",
        "name = \"aws\"\ncredentials = { kind = \"assume_role\" }",
        &["ufs[1].credentials.role_arn: is missing; kind = \"assume_role\" needs it"],
    );
}

#[test]
fn mount_problems() {
    broken(
        "name = \"eval\"",
        "name = \"train\"",
        &["mount[1].name: \"train\" is the name of mount[0] too; names are unique"],
    );
    broken(
        "name = \"eval\"",
        "name = \"Eval\"",
        &["mount[1].name: \"Eval\" is not a bucket name: 3 to 63 lower-case letters, digits, \
            dots and hyphens"],
    );
    broken(
        "name = \"eval\"",
        "name = \"eval\"\nprefix = \"a/b\"",
        &["mount[1].prefix: \"a/b\" does not end in '/'"],
    );
    broken(
        "name = \"eval\"",
        "name = \"eval\"\nbucket = \"a/b\"",
        &["mount[1].bucket: is not a bucket name; put a folder into prefix"],
    );
    broken(
        "name = \"eval\"",
        "name = \"*\"\nbucket = \"b\"\nprefix = \"p/\"",
        &[
            "mount[1].bucket: does nothing with name = \"*\": every bucket keeps its own name",
            "mount[1].prefix: does nothing with name = \"*\": every bucket is seen whole",
        ],
    );
    broken(
        "name = \"eval\"",
        "name = \"eval\"\nattributes_ttl = \"0\"",
        &["warning: mount[1].absence_ttl: attributes are asked for on every read, but an absence \
            is believed for 1s; set it to \"0\""],
    );
    broken(
        "name = \"eval\"",
        "name = \"eval\"\ncoherence = \"ttl\"\nattributes_ttl = \"immutable\"",
        &["mount[1].coherence: \"ttl\" lets a write through that readers see after \
            attributes_ttl, which is \"immutable\": never; set a duration, or coherence = \
            \"strict\""],
    );
}

#[test]
fn mounts_that_show_the_same_objects_are_warned_of() {
    broken(
        "name = \"eval\"\nufs = \"aws\"",
        "name = \"eval\"\nufs = \"ceph\"\nbucket = \"train\"\nprefix = \"eval/\"",
        &["warning: mount[1]: \"eval\" and \"train\" (mount[0]) show the same objects of \
            ceph/train; the rules of each hold only for its own clients"],
    );
    broken("name = \"eval\"\nufs = \"aws\"", "name = \"*\"\nufs = \"ceph\"", &[]);
    broken(
        "name = \"train\"\nufs = \"ceph\"\n[[mount]]\nname = \"eval\"\nufs = \"aws\"",
        "name = \"train\"\nufs = \"ceph\"\nbucket = \"real\"\n[[mount]]\nname = \"*\"\nufs = \
        \"ceph\"",
        &["warning: mount[1]: \"train\" and \"*\" both show ceph/real; the rules of each hold \
            only for its own clients"],
    );
}

#[test]
fn one_store_under_two_names_is_refused() {
    let two = |first: &str, second: &str| {
        let one = GOOD.replacen("endpoint = \"http://127.0.0.1:7480\"", first, 1);
        findings(&one.replacen("region = \"eu-west-1\"", second, 1), BOTH)
    };
    let why = |path: &str, other: &str| {
        format!(
            "ufs[1].{path}: is the store of ufs[0].{other} too: an object would have two identities, and readers of one would miss writes \
             of the other; keep one [[ufs]], or set ufs[1].namespace if the two never show the same bucket"
        )
    };
    for (first, second) in [
        ("http://rgw:7480", "http://rgw:7480"),
        ("http://rgw:7480", "https://RGW.:7480/"),
        ("http://rgw", "http://rgw:80"),
        ("http://rgw", "https://rgw:443"),
        ("http://[::1]:80", "http://[::1]"),
    ] {
        let endpoint = |url: &str| format!("endpoint = \"{url}\"");
        assert_eq!(
            two(&endpoint(first), &endpoint(second)),
            [why("endpoint", "endpoint")],
            "{first} {second}"
        );
    }
    assert_eq!(two("", ""), [why("region", "region")]);
    assert_eq!(two("", "endpoint = \"https://s3.amazonaws.com\""), [why("endpoint", "region")]);
    for (first, second) in [
        ("endpoint = \"http://rgw:7480\"", "endpoint = \"http://rgw:7481\""),
        ("endpoint = \"http://rgw\"", "endpoint = \"http://rgw2\""),
        ("endpoint = \"http://[::1]\"", "endpoint = \"http://[::2]\""),
        ("endpoint = \"http://rgw\"", "endpoint = \"http://rgw\"\nnamespace = \"team\""),
        ("", "region = \"eu-west-1\""),
        ("", ""),
    ] {
        let second = if second.is_empty() { "namespace = \"other-account\"" } else { second };
        assert_eq!(two(first, second), [""; 0], "{first} {second}");
    }
}

#[test]
fn a_gateway_that_is_its_own_store_is_refused() {
    let at = |endpoint: &str, listen: &str| {
        let text = GOOD.replacen("http://127.0.0.1:7480", endpoint, 1);
        let text = text.replacen("[gateway]\n", &format!("[gateway]\nlisten = \"{listen}\"\n"), 1);
        findings(&text, BOTH)
    };
    for (endpoint, listen) in [
        ("http://127.0.0.1:7480", "127.0.0.1:7480"),
        ("http://localhost:7480/", "0.0.0.0:7480"),
        ("http://[::1]:7480", "[::]:7480"),
        ("http://127.0.0.1:7480", "[::]:7480"),
        ("http://localhost:7480", "[::1]:7480"),
        ("http://127.0.0.1:7480\"\nstore_id = \"rack-free", "127.0.0.1:7480"),
        ("http://127.0.0.1", "127.0.0.1:80"),
    ] {
        let why = format!(
            "ufs[0].endpoint: is this gateway's own address ({listen}); name the store behind it"
        );
        assert_eq!(at(endpoint, listen), [why], "{endpoint}");
    }
    for (endpoint, listen) in [
        ("http://127.0.0.1:7480", "127.0.0.1:7481"),
        ("http://127.0.0.2:7480", "127.0.0.1:7480"),
        ("http://10.0.0.7:7480", "0.0.0.0:7480"),
        ("http://[::1]:7480", "0.0.0.0:7480"),
        ("http://rgw:7480", "0.0.0.0:7480"),
        ("http://127.0.0.1", "127.0.0.1:443"),
    ] {
        assert_eq!(at(endpoint, listen), [""; 0], "{endpoint}");
    }
}

#[test]
fn a_store_id_joins_two_endpoints_and_can_not_split_one() {
    let at = |first: &str, second: &str| {
        let text = GOOD.replacen("endpoint = \"http://127.0.0.1:7480\"", first, 1);
        findings(&text.replacen("region = \"eu-west-1\"", second, 1), BOTH)
    };
    let [here, there] = ["http://here:7480", "http://there:7480"];
    let named = |url: &str, id: &str| format!("endpoint = \"{url}\"\nstore_id = \"{id}\"");
    let found = at(&named(here, "one"), &named(there, "one"));
    assert!(
        matches!(&found[..], [why] if why.starts_with("ufs[1].store_id: is the store of ufs[0].store_id too")),
        "{found:?}"
    );
    let found = at(&named(here, "one"), &named(here, "two"));
    assert!(
        matches!(&found[..], [why] if why.starts_with("ufs[1].endpoint: is the store of ufs[0].endpoint too")),
        "{found:?}"
    );
    assert_eq!(at(&named(here, "one"), &named(there, "two")), [""; 0]);
}
