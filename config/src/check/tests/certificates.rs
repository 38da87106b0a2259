//! Certificates that a process could not use.

use super::*;

#[path = "../../../../certificates/src/test_issuer.rs"]
mod test_issuer;

use test_issuer::TestIssuer;

#[test]
fn certificates_are_read_as_a_start_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let issuer = TestIssuer::new();
    let path = |name: &str| folder.path().join(name);
    let found = |kind: &str, files: &[PathBuf], role| {
        let [certificate, key, ca] = [0, 1, 2].map(|at| files.get(at).map(|path| path.display()));
        let ca = ca.map(|ca| format!(", ca_file = \"{ca}\"")).unwrap_or_default();
        let (certificate, key) = (certificate.unwrap(), key.unwrap());
        let table =
            format!("[{kind}]\ntls = {{ certificate = \"{certificate}\", key = \"{key}\"{ca} }}");
        let text = GOOD.replacen(&format!("[{kind}]"), &table, 1);
        findings(&text, &[role]).join("\n").replace(folder.path().to_str().unwrap(), "PEM")
    };
    let (name, worker) = ("verbs3://verbs3/worker/w0", ProcessRole::Worker);
    let good = issuer.write_node(&path("good"), &[name]);
    assert_eq!(found("cluster", &good, worker), "");
    assert_eq!(
        found("cluster", &good, ProcessRole::Gateway),
        "cluster.tls.certificate: the certificate is one of worker/w0, where the role gateway is \
        wanted"
    );
    let other = issuer.write_node(&path("other"), &["verbs3://verbs3/worker/w1"]);
    assert!(found("cluster", &other, worker).contains("w1"));
    let over = issuer.write_node_until(&path("over"), &[name], 2020);
    assert!(found("cluster", &over, worker).contains("would be taken by nobody"));
    let mixed = [good[0].clone(), other[1].clone(), good[2].clone()];
    assert!(found("cluster", &mixed, worker).contains("can't be used"));
    // A listener's certificate may have ended, as long as the two are a pair.
    let gateway = ProcessRole::Gateway;
    assert_eq!(found("gateway", &good[..2], gateway), "");
    assert!(
        found("gateway", &over[..2], gateway).ends_with("has ended; put a new one in its place")
    );
    assert!(found("gateway", &mixed[..2], gateway).contains("can't be used"));
}
