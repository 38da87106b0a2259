//! Runs the reference: nginx sending files from tmpfs, started for one measurement and ended by its
//! pid.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::content::BenchContent;
use crate::endpoint::BenchEndpoint;

/// Bytes of one write to a file.
const PIECE_BYTES: usize = 1 << 20;

/// An nginx process and its folder in `/dev/shm`. Dropping it ends the process and removes the
/// folder.
pub struct NginxReference {
    child: Child,
    folder: PathBuf,
    pub address: SocketAddr,
}

impl NginxReference {
    /// Starts nginx as its documentation recommends for static files: one worker process, sendfile,
    /// kept connections.
    pub fn start() -> anyhow::Result<Self> {
        let folder = PathBuf::from(format!("/dev/shm/verbs3-loadtest-{}", std::process::id()));
        fs::create_dir_all(folder.join("files"))?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let shown = folder.display();
        fs::write(
            folder.join("nginx.conf"),
            format!(
                "daemon off; master_process off; worker_processes 1; pid {shown}/pid; \
                 error_log {shown}/error.log;\n\
                 events {{ worker_connections 4096; }}\n\
                 http {{ access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; \
                 keepalive_requests 1000000000;\n\
                 client_body_temp_path {shown}/b; proxy_temp_path {shown}/p; \
                 fastcgi_temp_path {shown}/f; uwsgi_temp_path {shown}/u; \
                 scgi_temp_path {shown}/s;\n\
                 open_file_cache max=1000; \
                 server {{ listen {address}; root {shown}/files; }} }}\n"
            ),
        )?;
        let child = Command::new("nginx")
            .args(["-p", &shown.to_string(), "-c", &format!("{shown}/nginx.conf")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("can't start nginx; install it: apt-get install nginx-light")?;
        let started = Self { child, folder, address };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            ensure!(
                began.elapsed() < Duration::from_secs(10),
                "nginx does not answer on {address}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(started)
    }

    /// Returns nginx's process id; it is a single process.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Writes a file that nginx then serves as `/name`.
    pub fn put_file(&self, name: &str, body: &[u8]) -> anyhow::Result<()> {
        fs::write(self.files_folder().join(name), body).context("can't write to /dev/shm")
    }

    /// Writes a file of generated content, and creates the folders of its name.
    pub fn put_content(&self, name: &str, content: BenchContent, bytes: u64) -> anyhow::Result<()> {
        let path = self.files_folder().join(name);
        fs::create_dir_all(path.parent().unwrap_or(&path))?;
        let mut file = fs::File::create(&path)?;
        let mut piece = vec![0; PIECE_BYTES];
        let mut at = 0;
        while at < bytes {
            let part = &mut piece[..(bytes - at).min(PIECE_BYTES as u64) as usize];
            content.fill_bytes(at, part);
            file.write_all(part).context("can't write to /dev/shm")?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Returns it as a side of a comparison: unsigned requests, CPU time of its own process.
    pub fn bench_endpoint(&self) -> anyhow::Result<BenchEndpoint> {
        BenchEndpoint::parse(
            &format!("http://{}", self.address),
            "nginx",
            None,
            &[self.process_id()],
        )
    }

    fn files_folder(&self) -> PathBuf {
        Path::new(&self.folder).join("files")
    }
}

impl Drop for NginxReference {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
