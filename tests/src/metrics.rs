//! What a process says of itself on `/metrics`, as numbers that a test can compare.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Of `verbs3 dev`: bytes of bodies that it has sent.
pub(crate) const SENT_BYTES: &str = "verbs3_gateway_body_bytes_sent_total";

/// Gauges of gateways and workers that are 0 when nobody asks for anything.
pub const BORROWED: [&str; 9] = [
    "verbs3_rdma_shm_pins",
    "verbs3_rdma_shm_held_bytes",
    "verbs3_rdma_landings_quarantined",
    "verbs3_rdma_calls_serving",
    "verbs3_rdma_credits_in_use",
    "verbs3_read_bytes_in_flight",
    "verbs3_read_bypasses_in_flight",
    "verbs3_client_writes_open",
    "verbs3_gateway_requests_in_flight",
];

/// One scrape.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    samples: Vec<(String, f64)>,
}

impl Metrics {
    pub async fn of(admin: &str) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(admin).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
        tokio::spawn(connection);
        let request = Request::get("/metrics").header("host", admin).body(Empty::<Bytes>::new())?;
        let answer = sender.send_request(request).await?;
        ensure!(answer.status().is_success(), "/metrics of {admin}: {}", answer.status());
        let text = String::from_utf8(answer.into_body().collect().await?.to_bytes().to_vec())?;
        Ok(Self::parse(&text))
    }

    /// Reads what `/metrics` answered.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Self { samples: samples.collect() }
    }

    /// The sum over the samples of a family whose labels contain each of `labels`
    /// (`op="GetObject"`). 0 if there is none.
    pub fn sum(&self, family: &str, labels: &[&str]) -> f64 {
        self.sum_shown(family, labels).unwrap_or(0.0)
    }

    /// The same; `None` if there is none.
    pub fn sum_shown(&self, family: &str, labels: &[&str]) -> Option<f64> {
        let of_family = self.samples.iter().filter(|(name, _)| {
            let (found, rest) = name.split_once('{').unwrap_or((name, ""));
            found == family && labels.iter().all(|label| rest.contains(label))
        });
        of_family.map(|(_, value)| *value).reduce(|sum, value| sum + value)
    }
}

/// What gateways have to say of leases on attributes: how many they were granted, reads answered by
/// them, and recalls. A history in which there were none proves nothing of them.
pub fn leases(gateways: &[Metrics]) -> anyhow::Result<String> {
    let sum = |family: &str, labels: &[&str]| -> f64 {
        gateways.iter().map(|one| one.sum(family, labels)).sum()
    };
    let granted = sum("verbs3_client_leases_total", &["event=\"granted\""]);
    let answered = sum("verbs3_client_leased_total", &[]);
    let recalled = sum("verbs3_client_leases_total", &["event=\"recalled"]);
    let said =
        format!("{granted} leases granted, {answered} reads answered by them, {recalled} recalls");
    ensure!(granted > 0.0 && answered > 0.0 && recalled > 0.0, "{said}");
    Ok(said)
}

/// Waits until `condition` holds; fails with what it last said.
pub async fn eventually<T, F: AsyncFnMut() -> Result<T, String>>(
    within: Duration,
    mut condition: F,
) -> anyhow::Result<T> {
    let began = Instant::now();
    loop {
        match condition().await {
            Ok(seen) => return Ok(seen),
            Err(why) if began.elapsed() > within => {
                return Err(anyhow::anyhow!(why)).context("waited in vain");
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(30)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_by_family_and_labels() {
        let metrics = Metrics::parse(
            "# HELP a b\na{x=\"1\",y=\"2\"} 3\na{x=\"2\",y=\"2\"} 4\nab 9\na_b 1e2\n",
        );
        assert_eq!(
            (metrics.sum("a", &[]), metrics.sum("a", &["x=\"2\""]), metrics.sum("a_b", &[])),
            (7.0, 4.0, 100.0)
        );
        assert_eq!(metrics.sum("a", &["x=\"3\""]), 0.0);
        assert_eq!(metrics.sum_shown("a", &["x=\"3\""]), None);
    }
}
