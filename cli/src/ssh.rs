//! Runs programs on other hosts by the user's own `ssh`. Owns what is accepted as a host's name, and
//! the command line that `ssh` gets. Owns no key and no password: `ssh` is told to ask for nothing.

mod host_list;

use std::fmt;
use std::process::Command;

pub use host_list::read_host_list;
pub use verbs3_loadtest::printable_text::printable_text;

use crate::bounded_process::{BoundedOutput, BoundedProcessError, ProcessBounds, run_bounded};

/// Seconds that `ssh` itself waits for a connection.
const CONNECT_SECONDS: &str = "10";
/// Longest name of a host with its user, in bytes (RFC 1035: 253 for the name).
const NAME_BYTES_MAX: usize = 300;
/// Status by which `ssh` says that itself has failed.
const SSH_FAILED: i32 = 255;
/// Statuses by which a shell says that it can't run a program.
const SHELL_FAILED: [i32; 2] = [126, 127];

/// A host as `ssh` knows it: a name, an address or an alias of its configuration, with or without
/// `USER@`. Never an option.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SshHost(String);

impl SshHost {
    /// Checks a name. It goes to `ssh` as one word, and is refused where that could be more than a
    /// name.
    pub fn parse(text: &str) -> Result<Self, String> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:%[]@".contains(&byte);
        let name = text.rsplit_once('@').map_or(text, |(_, name)| name);
        if text.starts_with('-') || name.starts_with('-') {
            return Err(format!("{text:?} is no host: a name can't begin with \"-\""));
        }
        if name.is_empty() || text.starts_with('@') || text.len() > NAME_BYTES_MAX {
            return Err(format!("{text:?} is no host; write gpu-08, me@gpu-08 or 10.0.0.8"));
        }
        if let Some(wrong) = text.chars().find(|&char| !u8::try_from(char).is_ok_and(plain)) {
            return Err(format!(
                "{text:?} is no host: {wrong:?} is not of a name; a port or a key belongs into \
                ~/.ssh/config"
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns the name as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SshHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Why a program did not run on another host.
#[derive(Debug, thiserror::Error)]
pub enum RemoteRunError {
    #[error(transparent)]
    Process(#[from] BoundedProcessError),
    #[error(
        "ssh does not get there without a question: {said}; try: ssh -o BatchMode=yes {host} true"
    )]
    Ssh { host: SshHost, said: String },
    #[error("{program} can't be run there: {said}")]
    Program { program: String, said: String },
}

/// Makes the command that runs `words` on `host`. Each word arrives there as one word.
pub fn ssh_command(host: &SshHost, words: &[String]) -> Command {
    let mut command = Command::new("ssh");
    let connect = format!("ConnectTimeout={CONNECT_SECONDS}");
    // Behind "--" nothing is an option of ssh, the words of the command included.
    command.args(["-T", "-o", "BatchMode=yes", "-o", &connect, "-o", "ServerAliveInterval=10"]);
    command.arg("--").arg(host.as_str()).arg(quote_words(words));
    command
}

/// Runs `words` on `host` to their end. A status of the program's own is no error.
pub fn run_remote(
    host: &SshHost,
    words: &[String],
    bounds: &ProcessBounds,
) -> Result<BoundedOutput, RemoteRunError> {
    let output = run_bounded(ssh_command(host, words), bounds)?;
    let said = || match output.last_error_line() {
        "" => "it said nothing".to_owned(),
        line => printable_text(line),
    };
    match output.status {
        Some(SSH_FAILED) => Err(RemoteRunError::Ssh { host: host.clone(), said: said() }),
        Some(status) if SHELL_FAILED.contains(&status) => {
            let program = words.first().cloned().unwrap_or_default();
            Err(RemoteRunError::Program { program, said: said() })
        }
        _ => Ok(output),
    }
}

/// Quotes words for the shell of the other host, which `ssh` hands one line to.
fn quote_words(words: &[String]) -> String {
    let quoted: Vec<String> =
        words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
    quoted.join(" ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_hosts_and_everything_else_is_refused() {
        for good in ["gpu-08", "me@gpu-08", "10.0.0.8", "fd00::8", "fe80::1%eth0", "a_b.example"] {
            assert_eq!(SshHost::parse(good).unwrap().as_str(), good);
        }
        for wrong in [
            "",
            "-oProxyCommand=touch /tmp/x",
            "-l",
            "me@-x",
            "@gpu",
            "me@",
            "a b",
            "a;b",
            "$(id)",
            "`id`",
            "a\nb",
            "a'b",
            "ssh://gpu",
            "gpü",
        ] {
            assert!(SshHost::parse(wrong).unwrap_err().contains("is no host"), "{wrong:?}");
        }
        assert!(SshHost::parse(&"a".repeat(301)).is_err());
    }

    #[test]
    fn each_word_is_one_word_of_the_other_shell() {
        let words = ["printf", "%s|", "a b", "it's", "$(id)", "-x", "", "\\"];
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let mut shell = Command::new("sh");
        let output = shell.arg("-c").arg(quote_words(&words)).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "a b|it's|$(id)|-x||\\|");
        let command = ssh_command(&SshHost::parse("gpu-08").unwrap(), &words);
        let arguments: Vec<_> = command.get_args().map(|word| word.to_str().unwrap()).collect();
        let end = arguments.iter().position(|word| *word == "--").unwrap();
        assert_eq!((arguments[end + 1], arguments.len()), ("gpu-08", end + 3));
        assert!(arguments[..end].contains(&"BatchMode=yes"));
    }
}
