//! Problems of devices, rails and transports.

use super::*;

#[test]
fn rails_are_devices_network_devices_or_addresses_each_once() {
    let rails = |list: &str| findings(&format!("{GOOD}[verbs]\nrails = {list}\n"), BOTH);
    for good in [
        r#"["auto"]"#,
        r#"["mlx5_0", "mlx5_1:2", "ib0", "bond0.100", "10.0.0.1", "fd00::1"]"#,
        r#"["10.2.0.0/16", "fd00:1::/64", "ib0"]"#,
    ] {
        assert_eq!(rails(good), [""; 0], "{good}");
    }
    let wrong = [
        (r#"[]"#, "verbs.rails: is empty"),
        (r#"["auto", "ib0"]"#, "verbs.rails[0]: \"auto\" stands alone"),
        (r#"["ib0", "ib0"]"#, "verbs.rails[1]: \"ib0\" is listed twice"),
        (r#"["mlx5_0:0"]"#, "verbs.rails[0]: \"mlx5_0:0\" has no port number"),
        (r#"["mlx5_0:x"]"#, "verbs.rails[0]: \"mlx5_0:x\" has no port number"),
        (r#"["../etc"]"#, "verbs.rails[0]: \"../etc\" is neither"),
        (r#"[""]"#, "verbs.rails[0]: \"\" is neither"),
        (r#"["0.0.0.0"]"#, "verbs.rails[0]: \"0.0.0.0\" is no address of one host"),
        (r#"["127.0.0.1"]"#, "verbs.rails[0]: \"127.0.0.1\" reaches no other host"),
        (r#"["fe80::1"]"#, "verbs.rails[0]: \"fe80::1\" reaches no other host"),
        (r#"["AUTO"]"#, "verbs.rails[0]: \"AUTO\" is written \"auto\""),
        (r#"["10.2.0.0/33"]"#, "verbs.rails[0]: \"10.2.0.0/33\" is no subnet"),
        (r#"["auto", "10.2.0.0/16"]"#, "verbs.rails[0]: \"auto\" stands alone"),
    ];
    for (list, message) in wrong {
        let found = rails(list);
        assert!(found.len() == 1 && found[0].contains(message), "{list}: {found:?}");
    }
}

#[test]
fn exceptions_belong_to_a_rule() {
    let except = |rails: &str, except: &str| {
        findings(&format!("{GOOD}[verbs]\nrails = {rails}\nrails_except = {except}\n"), BOTH)
    };
    let (auto, subnet) = (r#"["auto"]"#, r#"["10.0.0.0/8", "ib7"]"#);
    for good in [r#"["mlx5_2", "eth0", "10.9.0.0/16"]"#, r#"["mlx5_0:2", "10.9.0.7"]"#] {
        assert_eq!(except(auto, good), [""; 0], "{good}");
        assert_eq!(except(subnet, good), [""; 0], "{good}");
    }
    let wrong = [
        (r#"["ib0"]"#, r#"["ib1"]"#, "verbs.rails_except: leaves nothing out"),
        (auto, r#"["auto"]"#, "verbs.rails_except[0]: \"auto\" would leave out every rail"),
        (auto, r#"["10.9.0.0/0"]"#, "verbs.rails_except[0]: \"10.9.0.0/0\" is no subnet"),
        (subnet, r#"["ib7"]"#, "verbs.rails_except[0]: \"ib7\" stands in verbs.rails, too"),
    ];
    for (rails, left_out, message) in wrong {
        let found = except(rails, left_out);
        assert!(found.len() == 1 && found[0].contains(message), "{left_out}: {found:?}");
    }
}

#[test]
fn ways_that_can_not_work_are_errors() {
    let wrong = [
        ("[verbs]\nport = 9400", "verbs.port: 9400 is the port of worker.listen too"),
        ("[verbs]\nmode = \"always\"", "is not one of"),
        ("[verbs]\npoll_cpus = [0, 1, 0]", "verbs.poll_cpus: names CPU 0 twice"),
        ("[verbs]\npath_mtu_max = 1500", "verbs.path_mtu_max: 1500 is no path MTU"),
        (
            "[worker.shm]\nsocket = \"relative.sock\"",
            "worker.shm.socket: relative.sock is no absolute path",
        ),
        (
            "[gateway.peers]\nrest_min = \"10m\"",
            "gateway.peers.rest_min: 10m is more than rest_max (5m)",
        ),
        (
            "[gateway.lending]\nmemory_max = \"2GiB\"\nmemory_total = \"1GiB\"",
            "gateway.lending.memory_max: 2GiB is more than gateway.lending.memory_total, 1GiB",
        ),
        (
            "[gateway.lending]\nsocket = \"relative.sock\"",
            "gateway.lending.socket: has to be an absolute path",
        ),
    ];
    for (text, message) in wrong {
        let found = findings(&format!("{GOOD}{text}\n"), BOTH);
        assert!(found.len() == 1 && found[0].contains(message), "{text}: {found:?}");
    }
}

#[test]
fn a_bad_network_device_name_is_an_error_for_every_role() {
    // A table that the good configuration has already is gone on with by its last line.
    let settings = [
        ("gateway.bind_device", "identities ="),
        ("gateway.admin_bind_device", "identities ="),
        ("worker.admin_bind_device", "id = \"w0\"\n"),
        ("tcp.bind_device", "[worker]"),
    ];
    for (setting, before) in settings {
        let (section, field) = setting.split_once('.').unwrap();
        let with = |name: &str| {
            let table = if section == "tcp" { "[tcp]\n" } else { "" };
            let (head, tail) = GOOD.rsplit_once(before).unwrap();
            findings(&format!("{head}{table}{field} = \"{name}\"\n{before}{tail}"), BOTH)
        };
        for name in ["", "..", "a/b", "two words", "sixteen-letters-"] {
            let found = with(name);
            assert!(
                found.len() == 1 && found[0].contains("is not the name of a network device"),
                "{name}: {found:?}"
            );
            assert!(found[0].contains(setting), "{found:?}");
        }
        assert!(with("bond0.100").is_empty());
    }
}
