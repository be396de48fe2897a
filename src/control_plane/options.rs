//! What `lakeshore serve` can be told: flags, each with an environment variable beside it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::LogFormat;

/// Options of `lakeshore serve`. A flag wins over its environment variable, which wins over the default.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeOptions {
    /// Folder that holds the database, the logs and the admin socket; made with mode 0700 when it is missing
    #[arg(long, env = "LAKESHORE_DATA", default_value = "./lakeshore-data", value_name = "DIR")]
    pub data: PathBuf,
    /// Address to listen on, for callers and daemons alike
    #[arg(long, env = "LAKESHORE_LISTEN", default_value = "127.0.0.1:7420", value_name = "IP:PORT")]
    pub listen: SocketAddr,
    /// PEM file with the server's certificate chain; switches to TLS. Read again when the file changes
    #[arg(long, env = "LAKESHORE_TLS_CERT", requires = "tls_key", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// PEM file with the private key of the certificate
    #[arg(long, env = "LAKESHORE_TLS_KEY", requires = "tls_cert", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// How long a launch waits for the daemon's word before it is answered with `starting`
    #[arg(long, env = "LAKESHORE_LAUNCH_WAIT", default_value = "10s", value_parser = parse_duration, value_name = "TIME")]
    pub launch_wait: Duration,
    /// How long a daemon may be away before its instances are shown as `unknown`
    #[arg(long, env = "LAKESHORE_STALE_AFTER", default_value = "60s", value_parser = parse_duration, value_name = "TIME")]
    pub stale_after: Duration,
    /// How long after acceptance an object that is absent may be told as lost; above the API server's own request time-out of 60 s
    #[arg(long, env = "LAKESHORE_LOST_AFTER", default_value = "70s", value_parser = parse_duration, value_name = "TIME")]
    pub lost_after: Duration,
    /// Longest log that is stored of one instance, in bytes; what comes after it is counted and dropped
    #[arg(long, env = "LAKESHORE_LOG_LIMIT_BYTES", default_value_t = 64 << 20, value_name = "BYTES")]
    pub log_limit_bytes: u64,
    /// Audience of the tokens by which daemons prove who they are; the chart nymph has it as controlPlane.audience
    #[arg(long, env = "LAKESHORE_AUDIENCE", default_value = "lakeshore", value_parser = parse_audience, value_name = "NAME")]
    pub audience: String,
    /// Bytes of the disk under the data folder that must be free for a launch to be taken; what runs is stored below it too
    #[arg(long, env = "LAKESHORE_MIN_FREE_BYTES", default_value_t = 64 << 20, value_name = "BYTES")]
    pub min_free_bytes: u64,
    /// File that holds a token of the form lakeshore_…; it is made an admin token named `admin` at start, if it is not yet known
    #[arg(long, env = "LAKESHORE_BOOTSTRAP_TOKEN_FILE", value_name = "FILE")]
    pub bootstrap_token_file: Option<PathBuf>,
    /// What is logged, as tracing's directives say it
    #[arg(long, env = "LAKESHORE_LOG", default_value = "info", value_name = "FILTER")]
    pub log_filter: String,
    /// How log lines are written
    #[arg(long, env = "LAKESHORE_LOG_FORMAT", default_value = "json", value_parser = parse_log_format, value_name = "json|text")]
    pub log_format: LogFormat,
}

fn parse_audience(text: &str) -> Result<String, &'static str> {
    let valid = (1..=256).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if valid { Ok(text.to_owned()) } else { Err("write 1 to 256 ASCII characters without spaces, such as lakeshore or https://lakeshore.example") }
}

fn parse_log_format(text: &str) -> Result<LogFormat, &'static str> {
    match text {
        "json" => Ok(LogFormat::Json),
        "text" => Ok(LogFormat::Text),
        _ => Err("write json or text"),
    }
}

/// A text that is not a length of time.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} is not a time: write a whole number and ms, s, m, h or d, as in 10s")]
pub struct InvalidDuration {
    text: String,
}

/// Reads `500ms`, `10s`, `5m`, `1h` or `30d`.
///
/// # Errors
/// [`InvalidDuration`] for anything else: no unit, a fraction, a sign, or a number too large to be a time.
pub fn parse_duration(text: &str) -> Result<Duration, InvalidDuration> {
    let invalid = || InvalidDuration { text: text.chars().take(64).collect() };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| invalid())?;
    let milliseconds = match unit {
        "ms" => Some(number),
        "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        "d" => number.checked_mul(86_400_000),
        _ => None,
    };
    milliseconds.map(Duration::from_millis).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_whole_number_and_a_unit() {
        for (text, milliseconds) in [("500ms", 500), ("10s", 10_000), ("5m", 300_000), ("1h", 3_600_000), ("30d", 2_592_000_000), ("0s", 0)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for bad in ["", "10", "s", "1.5s", "-1s", "10 s", "10S", "99999999999999999999s", "18446744073709551615h"] {
            assert!(parse_duration(bad).is_err(), "{bad:?}");
        }
    }
}
