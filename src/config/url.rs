//! Checks of addresses.

use std::net::IpAddr;

/// What a usable control plane address gives away about itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// Encrypted, or not leaving the machine.
    Private,
    /// In the clear to another machine.
    Clear {
        /// The host.
        host: String,
    },
}

/// Checks the address of a control plane. The error says what to write, and never repeats user or password.
pub(super) fn control_plane(text: &str) -> Result<Transport, String> {
    let uri: http::Uri = text.parse().map_err(|error| format!("it is not a URL ({error}); write wss://HOST[:PORT][/PATH]"))?;
    let Some(authority) = uri.authority() else {
        return Err("it lacks a scheme or a host; write wss://HOST[:PORT][/PATH]".to_owned());
    };
    if authority.as_str().contains('@') {
        return Err("it holds a user or password; the daemon's only credential is the token in `control_plane.token_file`".to_owned());
    }
    let host = authority.host();
    let encrypted = match uri.scheme_str() {
        Some("wss") => true,
        Some("ws") => false,
        Some("https") => return Err(format!("its scheme is https; write wss://{authority}")),
        Some("http") => return Err(format!("its scheme is http; write ws://{authority}, or better wss://")),
        _ => return Err("its scheme must be wss or ws; write wss://HOST[:PORT][/PATH]".to_owned()),
    };
    if host.is_empty() {
        return Err("it names no host; write wss://HOST[:PORT][/PATH]".to_owned());
    }
    if authority.as_str().rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']')) && authority.port_u16().is_none() {
        return Err("its port is not a number from 1 to 65535".to_owned());
    }
    if uri.query().is_some() {
        return Err("it has a query ('?…'), which is not used; remove it".to_owned());
    }
    Ok(if encrypted || is_loopback(host) { Transport::Private } else { Transport::Clear { host: host.to_owned() } })
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Checks the address of a proxy, which may carry user and password.
pub(super) fn proxy(text: &str) -> Result<(), String> {
    let expected = "write http://HOST:PORT";
    let uri: http::Uri = text.parse().map_err(|_| format!("it is not a URL; {expected}"))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http"), Some(host)) if !host.is_empty() => Ok(()),
        (Some("http") | None, _) => Err(format!("it lacks a scheme or a host; {expected}")),
        (Some(_), _) => Err(format!("only HTTP proxies with CONNECT are supported; {expected}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encrypted_or_local_address_is_private_and_another_is_in_the_clear() {
        for text in ["wss://cp.example", "wss://cp.example:8443/x/y", "ws://127.0.0.1:7420", "ws://localhost", "ws://[::1]:1", "wss://10.0.0.1"] {
            assert_eq!(control_plane(text), Ok(Transport::Private), "{text}");
        }
        for (text, host) in
            [("ws://lakeshore.lakeshore.svc", "lakeshore.lakeshore.svc"), ("ws://10.0.0.1:80", "10.0.0.1"), ("ws://[fd00::1]", "[fd00::1]")]
        {
            assert_eq!(control_plane(text), Ok(Transport::Clear { host: host.into() }), "{text}");
        }
    }

    #[test]
    fn a_bad_address_is_refused_with_what_to_write() {
        for (text, words) in [
            ("https://cp.example:8443", "write wss://cp.example:8443"),
            ("http://cp.example", "write ws://cp.example"),
            ("ftp://cp.example", "must be wss or ws"),
            ("cp.example", "write wss://HOST"),
            ("cp.example:443", "write wss://HOST"),
            ("wss://", "not a URL"),
            ("wss:// cp", "not a URL"),
            ("", "not a URL"),
            ("wss://cp.example:99999", "port"),
            ("wss://cp.example?x=1", "query"),
            ("wss://me:canary@cp.example", "token_file"),
        ] {
            let why = control_plane(text).expect_err(text);
            assert!(why.contains(words), "{text}: {why}");
            assert!(!why.contains("canary"), "{why}");
        }
    }

    #[test]
    fn only_an_http_proxy_is_taken() {
        assert_eq!(proxy("http://me:secret@proxy.example:3128"), Ok(()));
        for bad in ["proxy.example:3128", "socks5://proxy.example", "https://proxy.example", "/proxy", ""] {
            let why = proxy(bad).expect_err(bad);
            assert!(why.contains("write http://HOST:PORT"), "{bad}: {why}");
        }
    }
}
