//! Problems of `[gateway]`.

use super::*;

#[test]
fn gateway_problems() {
    let gateway = |lines: &str| format!("[gateway]\n{lines}\n");
    broken_by(
        "[gateway]",
        "listen = \"127.0.0.1:9001\"",
        &["gateway.admin_listen: 127.0.0.1:9001 is gateway.listen too; give it another port"],
    );
    broken_by(
        "[gateway]",
        "domains = [\"s3.example\", \"a b\"]",
        &["gateway.domains[1]: \"a b\" is not a host name"],
    );
    broken_by(
        "[gateway]",
        "own_hosts = [\"gpu-07:9000\", \"10.0.0.7\", \"[fd00::7]:9000\", \"[::1]\", \"a/b\"]",
        &["gateway.own_hosts[4]: \"a/b\" is neither a host name nor an address"],
    );
    broken_by(
        "[gateway]",
        "tls = { key = \"/k\" }",
        &["gateway.tls.certificate: is missing; a key needs its certificate"],
    );
    broken_by(
        "[gateway]",
        "tls = { key = \"/k\", certificate = \"/c\" }",
        &[
            "gateway.tls.certificate: can't read /c: No such file or directory (os error 2)",
            "gateway.tls.key: can't read /k: No such file or directory (os error 2)",
        ],
    );
    broken(
        "IDENTITIES",
        "/no/such",
        &["gateway.identities: can't read /no/such: No such file or directory (os error 2)"],
    );
    broken_by(
        "[gateway]",
        "read = { bytes_in_flight_max = \"2GiB\" }",
        &[
            "gateway.memory.capacity: 1GiB is too small for gateway.read.bytes_in_flight_max (2GiB); raise the one or lower the other",
        ],
    );
    broken_by(
        "[gateway]",
        "memory = { capacity = \"32MiB\" }\nread = { window = \"64MiB\" }",
        &["gateway.memory.capacity: 32MiB is too small for one gateway.read.window (64MiB)"],
    );
    broken_by(
        "[gateway]",
        "read = { bytes_in_flight_max = \"16MiB\", window = \"32MiB\" }",
        &["gateway.read.window: 32MiB is more than bytes_in_flight_max (16MiB): no large read \
            could start"],
    );
    broken_by(
        "[gateway]",
        "tier = { hedge_after = \"5s\" }",
        &["gateway.tier.hedge_after: 5s is not shorter than first_progress (2s): no hedge would \
            ever be sent"],
    );
    // Of use with coordinators alone, and a matter of them alone.
    let in_vain = "tier = { announce_deadline = \"500ms\" }";
    broken_by("[gateway]", in_vain, &[]);
    let too_soon = |deadline: &str| {
        format!(
            "warning: gateway.tier.announce_deadline: {deadline} is not longer than \
            coordinator.lease (6s, as this file has it): writes whose home has died get 503"
        )
    };
    let coordinated = "coordinators = [\"http://10.0.0.1:9500\"]";
    let relayed = GOOD.replacen(
        "workers = [{ id = \"w0\", address = \"10.0.0.1:9400\" }]\nworkers_fixed = true",
        coordinated,
        1,
    );
    assert_eq!(findings(&relayed, BOTH), [""; 0]);
    assert_eq!(
        findings(&relayed.replacen("[gateway]", &gateway(in_vain), 1), BOTH),
        [
            too_soon("500ms"),
            "gateway.tier.relay_after: 500ms is not shorter than announce_deadline (500ms): no \
            announcement would ever be relayed"
                .to_owned()
        ]
    );
    let none = |deadline| {
        let tier = format!("tier = {{ announce_deadline = \"{deadline}\", relays_max = 0 }}");
        findings(&relayed.replacen("[gateway]", &gateway(&tier), 1), BOTH)
    };
    assert_eq!(none("6s"), [too_soon("6s")]);
    assert_eq!(none("6001ms"), [""; 0]);
}
