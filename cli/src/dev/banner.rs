//! What a person sees who has started `verbs3 dev`. Written to standard output; log lines go to
//! standard error.

use std::net::SocketAddr;
use std::path::Path;

use super::identities::DevAccessKey;

/// Where it serves, and lines to paste.
pub fn print_banner(
    listen: SocketAddr,
    admin: SocketAddr,
    folder: &Path,
    key: Option<&DevAccessKey>,
) {
    let endpoint = format!("http://{}", reachable_address(listen));
    println!("verbs3 serves S3 on {endpoint}");
    println!("  data     {}", folder.display());
    println!("  metrics  http://{}/metrics", reachable_address(admin));
    println!(
        "  control  verbs3 status · preload · cache, with --config {}",
        folder.join("cluster.toml").display()
    );
    let Some(DevAccessKey { access_key, secret_key }) = key else { return };
    println!(
        "\n  export AWS_ACCESS_KEY_ID={access_key} AWS_SECRET_ACCESS_KEY={secret_key} \
        AWS_DEFAULT_REGION=us-east-1"
    );
    println!("  aws --endpoint-url {endpoint} s3 ls s3://demo/");
    println!("\n  import boto3");
    println!("  s3 = boto3.client(\"s3\", endpoint_url=\"{endpoint}\", region_name=\"us-east-1\",");
    println!("      aws_access_key_id=\"{access_key}\", aws_secret_access_key=\"{secret_key}\")");
    println!("  s3.put_object(Bucket=\"demo\", Key=\"hello\", Body=b\"world\")\n");
}

/// After the demonstration.
pub fn until_stopped() {
    println!("serving; Ctrl-C ends it and keeps the data");
}

/// An address that a client of this host can use: one that listens everywhere is reached on
/// loopback.
fn reachable_address(address: SocketAddr) -> SocketAddr {
    let mut address = address;
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}
