//! Owns how people write a host, with or without a port.

/// Host and port, the latter `default` where there is none: `host`, `host:port`, `1.2.3.4:port`,
/// `::1`, `[::1]`, `[::1]:port`
pub fn split_host_port(text: &str, default: u16) -> Result<(String, u16), String> {
    let complaint = || {
        format!("{text:?} is no HOST[:PORT]; write gpu-08, gpu-08:9400, 10.0.0.8 or [fd00::8]:9400")
    };
    let number = |port: &str| port.parse().ok().filter(|port| *port != 0).ok_or_else(complaint);
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or_else(complaint)?;
        match after.strip_prefix(':') {
            Some(port) => (host, number(port)?),
            None if after.is_empty() => (host, default),
            None => return Err(complaint()),
        }
    } else {
        match text.split_once(':') {
            // More than one colon: an IPv6 address without port.
            Some((_, port)) if port.contains(':') => (text, default),
            Some((host, port)) => (host, number(port)?),
            None => (text, default),
        }
    };
    if host.is_empty() || host.contains(char::is_whitespace) {
        Err(complaint())
    } else {
        Ok((host.to_owned(), port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_a_port_has_the_default() {
        for (given, host, port) in [
            ("gpu-01", "gpu-01", 9410),
            ("gpu-01:9500", "gpu-01", 9500),
            ("10.1.0.8", "10.1.0.8", 9410),
            ("fd00::8", "fd00::8", 9410),
            ("[fd00::8]", "fd00::8", 9410),
            ("[fd00::8]:9500", "fd00::8", 9500),
        ] {
            assert_eq!(split_host_port(given, 9410), Ok((host.to_owned(), port)));
        }
    }
}
