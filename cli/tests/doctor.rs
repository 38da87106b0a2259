//! `verbs3 doctor` on test trees and on this host.
#![allow(clippy::unwrap_used)]

mod processes;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;

use processes::{run, text};
use serde_json::Value;

/// A host of `rdma`'s fixtures, as files below a temporary folder.
fn host(name: &str) -> tempfile::TempDir {
    let fixture = format!("{}/../rdma/doctor/fixtures/{name}.tree", env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    for line in fs::read_to_string(fixture).unwrap().lines().filter(|line| !line.starts_with('#')) {
        let (path, content) = line.split_once(" -> ").or_else(|| line.split_once(" =")).unwrap();
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if line.contains(" -> ") {
            symlink(content, path).unwrap();
        } else {
            fs::write(path, content.trim_start().replace("\\n", "\n").replace("\\t", "\t"))
                .unwrap();
        }
    }
    folder
}

/// Exit status and output.
fn doctor(root: &Path, words: &[&str]) -> (i32, String) {
    let output = run(&[&["doctor", "--root", root.to_str().unwrap()], words].concat());
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    (output.status.code().unwrap(), text(&output.stdout).to_string())
}

#[test]
fn the_text_of_a_soft_roce_host_is_as_it_was() {
    let (status, said) = doctor(host("rxe").path(), &[]);
    let expected = include_str!("doctor/rxe.txt");
    assert!(
        said == expected,
        "if this is what it should say, write it to cli/tests/doctor/rxe.txt:\n{said}"
    );
    assert_eq!(status, 1, "warnings");
}

#[test]
fn the_exit_status_is_that_of_the_worst_finding() {
    assert_eq!(doctor(host("bare").path(), &[]).0, 0, "no RDMA is no failure");
    assert_eq!(doctor(host("efa").path(), &[]).0, 0, "nor is a NIC that tcp serves");
    let broken = host("rxe");
    fs::remove_file(broken.path().join("usr/lib/x86_64-linux-gnu/librdmacm.so.1")).unwrap();
    let (status, said) = doctor(broken.path(), &[]);
    assert_eq!(status, 2, "{said}");
    assert!(said.contains("fail  libraries     librdmacm.so.1: not found"), "{said}");
}

#[test]
fn json_is_one_document_with_the_documented_fields() {
    let (status, said) = doctor(host("rxe").path(), &["--json"]);
    let document: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(document["schema"], 1);
    assert_eq!(
        (status, &document["exit_status"], &document["verdict"]),
        (1, &Value::from(1), &Value::from("warn"))
    );
    assert_eq!(document["usable_rails"], serde_json::json!(["rxe0/1"]));
    let port = &document["devices"][0]["ports"][0];
    assert_eq!(
        (&port["state"], &port["link_layer"]),
        (&Value::from("active"), &Value::from("Ethernet"))
    );
    assert_eq!(port["gids"][1]["type"], "roce_v2");
    assert_eq!(port["addresses"], serde_json::json!(["10.77.0.2"]));
    for finding in document["findings"].as_array().unwrap() {
        for field in ["check", "subject", "severity", "seen", "why"] {
            assert!(finding[field].is_string(), "{field} of {finding}");
        }
        assert!(finding["severity"] == "ok" || finding["remedy"].is_string(), "{finding}");
    }
    assert!(document["peer"].is_null());
}

#[test]
fn the_page_length_is_that_of_the_kernel() {
    let host = host("rxe");
    let pages =
        |document: &str| serde_json::from_str::<Value>(document).unwrap()["page_bytes"].clone();
    assert!(pages(&doctor(host.path(), &["--json"]).1).is_null(), "the tree does not say");
    let maps = "00400000-00401000 r--p 00000000 08:01 1 /bin/verbs3\nSize:    64 kB\n\
                KernelPageSize:       64 kB\nMMUPageSize:          64 kB\n";
    fs::create_dir_all(host.path().join("proc/self")).unwrap();
    fs::write(host.path().join("proc/self/smaps"), maps).unwrap();
    assert_eq!(pages(&doctor(host.path(), &["--json"]).1), 65_536);
}

#[test]
fn memory_is_held_against_the_role_of_the_configuration() {
    let example = format!("{}/../config/examples/dev.toml", env!("CARGO_MANIFEST_DIR"));
    let status = |capacity: &str, role: &str| {
        let set = format!("worker.memory.capacity={capacity}");
        doctor(host("bare").path(), &["--config", &example, "--role", role, "--set", &set])
    };
    // The tree's host has 7.6 GiB.
    let (failed, said) = status("8GiB", "dev");
    assert_eq!(failed, 2, "{said}");
    assert!(said.contains("worker.memory.capacity is 8 GiB"), "{said}");
    assert_eq!(status("1GiB", "dev").0, 0);
}

#[test]
fn a_peer_that_listens_is_well_and_one_that_refuses_fails() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = listener.local_addr().unwrap().to_string();
    let output = run(&["doctor", "--json", "--peer", &peer]);
    let document: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    assert_eq!(document["peer"]["connected"], true, "{document:#}");
    assert_eq!(document["peer"]["device"], "lo");
    assert!(document["peer"]["round_trip_us"].as_f64().unwrap() > 0.0);
    let about_peer: Vec<_> = document["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| finding["check"] == "peer")
        .collect();
    assert!(
        about_peer.len() >= 3 && about_peer.iter().all(|finding| finding["severity"] == "ok"),
        "{about_peer:#?}"
    );
    drop(listener);
    let refused = run(&["doctor", "--peer", &peer]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stdout).contains("and refuses port"), "{}", text(&refused.stdout));
}

#[test]
fn what_is_no_peer_or_no_configuration_is_refused() {
    let peer = run(&["doctor", "--peer", "gpu-01:"]);
    assert_eq!(peer.status.code(), Some(2));
    assert!(text(&peer.stderr).contains("is no HOST[:PORT]"), "{}", text(&peer.stderr));
    assert_eq!(run(&["doctor", "--config", "/nowhere.toml"]).status.code(), Some(2));
}
