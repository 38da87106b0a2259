//! Programs in C that read and write by lent memory: they are compiled against `verbs3.h`, and run
//! beside a gateway.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::Command;
use verbs3_tests::{ACCESS_KEY, Cluster, SECRET_KEY, Section, built_binary, content, reading};

const LIBRARY: &str = "libverbs3.so";
/// Generous: the machine may be busy with other tests.
const WITHIN: Duration = Duration::from_secs(240);
/// What programs ask the loader for.
const LOADED_LIBRARY: &str = "libverbs3.so.0";

/// The library as it is installed, and what is compiled against it.
struct InstalledLibrary {
    folder: TempDir,
    sources: PathBuf,
}

impl InstalledLibrary {
    fn install() -> Self {
        let built = built_binary().unwrap().with_file_name(LIBRARY);
        assert!(built.exists(), "{} is missing: cargo build --workspace", built.display());
        let folder = tempfile::tempdir().unwrap();
        for name in [LIBRARY, LOADED_LIBRARY] {
            symlink(&built, folder.path().join(name)).unwrap();
        }
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gateway/lending/c");
        Self { folder, sources }
    }

    /// Compiles a source with every warning as an error.
    async fn compile(&self, source: &str) -> PathBuf {
        let program = self.folder.path().join("program");
        let mut compiler = Command::new("cc");
        compiler.args(["-std=c11", "-O1", "-pthread", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
        compiler.arg("-I").arg(self.sources.join("include")).arg(self.sources.join(source));
        compiler.arg("-L").arg(self.folder.path()).args(["-lverbs3", "-o"]).arg(&program);
        let said = compiler.output().await.unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        program
    }

    async fn run(&self, source: &str, words: &[&str]) -> Output {
        let mut program = Command::new(self.compile(source).await);
        program.args(words).env("LD_LIBRARY_PATH", self.folder.path());
        program.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
        let said = tokio::time::timeout(WITHIN, program.kill_on_drop(true).output()).await;
        said.expect("a program in C hangs").unwrap()
    }
}

/// A cluster whose gateway takes memory, a bucket of it, and the path of its socket.
async fn start_lending(folder: &Path) -> (Cluster, String, String) {
    let socket = folder.join("gateway.sock").display().to_string();
    let lending = format!("[gateway.lending]\nsocket = \"{socket}\"\npages_total = \"64MiB\"");
    let builder = Cluster::builder().workers(2).settings(Section::Gateway, &lending);
    let cluster = builder.start().await.unwrap();
    let bucket = cluster.bucket("lent-to-c").await.unwrap();
    (cluster, bucket, socket)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_in_c_reads_and_writes_by_lent_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, bucket, socket) = start_lending(folder.path()).await;
    let gateway = cluster.pid("gateway-0").unwrap().to_string();
    let library = InstalledLibrary::install();
    let said = library.run("tests/checked_calls.c", &[&socket, &bucket, &gateway]).await;
    assert!(said.status.success(), "{said:?}");
    assert_eq!(said.stdout, b"held\n", "{said:?}");
    // What was written is everybody's.
    let client = &cluster.gateways()[0].client;
    let head = client.head_object().bucket(&bucket).key("large").send().await.unwrap();
    assert_eq!(head.metadata().unwrap()["of"], "c");
    let metrics = cluster.metrics("gateway-0").await.unwrap();
    let in_pages = metrics.sum("verbs3_lending_bytes_in_pages_total", &[]);
    assert!(in_pages > 0.0, "nothing was read in pages");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_in_c_copies_an_object_or_says_why_not() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, bucket, socket) = start_lending(folder.path()).await;
    let client = reading::once(&cluster.gateways()[0].client);
    let length = (5 << 20) + 7;
    reading::put_surely(&client, &bucket, "object", 1, length).await;
    let library = InstalledLibrary::install();
    let example = "examples/copy_object.c";
    let said = library.run(example, &[&socket, &bucket, "object"]).await;
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    assert_eq!(said.stdout.len(), length);
    content::check("object", 1, 0, &said.stdout).unwrap();
    let said = library.run(example, &[&socket, &bucket, "none"]).await;
    assert_eq!(said.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&said.stderr).contains("NoSuchKey"), "{said:?}");
    let nowhere = folder.path().join("nowhere").display().to_string();
    let said = library.run(example, &[&nowhere, &bucket, "object"]).await;
    assert_eq!(said.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&said.stderr).contains("gateway.lending.socket"), "{said:?}");
}
