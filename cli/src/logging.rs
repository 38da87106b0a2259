//! Log lines and panics. Owns their form; what is logged is decided where things happen.

use std::io::IsTerminal;
use std::panic;

use anyhow::Context;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::prelude::*;
use verbs3_config::{LogFormat, LogSettings, ProcessRole};

/// Libraries that log answers of 4xx, or a client's closed connection, as errors: the access log
/// and the metrics tell of these. A filter in `log.level` that names them brings them back.
const QUIET: &str = "s3s=off,aws_smithy_runtime=off,aws_smithy_runtime_api=off,aws_sdk_s3=off,aws_config=warn,\
                     hyper=warn,hyper_util=warn,h2=warn,rustls=warn";

/// A person who tries things out wants to read what the process says, not a line for each request
/// that was refused.
const QUIET_DEV: &str = "verbs3::access=warn,";

/// From now on, lines go to standard error, and so do panics.
pub fn start_logging(log: &LogSettings, role: ProcessRole) -> anyhow::Result<()> {
    let LogSettings { level, format } = log;
    let dev = if role == ProcessRole::Dev { QUIET_DEV } else { "" };
    let filter =
        EnvFilter::builder().parse(format!("{QUIET},{dev}{level}")).with_context(|| {
            format!("log.level: {level:?} is not a level or a list of target=level")
        })?;
    let json = match format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !std::io::stderr().is_terminal(),
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    if json {
        registry.with(lines.json().flatten_event(true).with_span_list(false)).try_init()
    } else {
        registry.with(lines.with_ansi(std::io::stderr().is_terminal())).try_init()
    }
    .context("can't set up logging")?;
    panic::set_hook(Box::new(|panic| {
        let text = panic.payload().downcast_ref::<&str>().copied();
        let message = text
            .or_else(|| panic.payload().downcast_ref::<String>().map(String::as_str))
            .unwrap_or("");
        let at = panic.location().map(ToString::to_string).unwrap_or_default();
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!(message, at, %backtrace, "panic; this is a bug of verbs3");
    }));
    Ok(())
}
