//! Sets up `tracing`.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use crate::config::LogFormat;

/// The log cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is not in `tracing`'s language.
    #[error("log.filter {filter:?} is not a filter such as \"info,kube_client=off,kube_runtime=off\"")]
    Filter {
        /// The filter.
        filter: String,
        /// What the parser said.
        #[source]
        source: ParseError,
    },
    /// Somebody set up a log in this process before.
    #[error("the log is already set up")]
    Twice,
}

/// Sends this process' log to stdout.
///
/// The default filter turns `kube_client` off: it logs whole response bodies at WARN when it cannot decode them, and each failed
/// connection at ERROR; our own code says both once, without bodies.
///
/// # Errors
/// [`TelemetryError::Filter`] for a malformed filter; [`TelemetryError::Twice`] when called a second time.
pub fn init(filter: &str, format: LogFormat) -> Result<(), TelemetryError> {
    let filter = with_audit(filter)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stdout);
    match format {
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
        LogFormat::Text => builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stdout())).try_init(),
    }
    .map_err(|_| TelemetryError::Twice)
}

/// Audit lines are not part of what a log level chooses: only who names their target turns them off.
fn with_audit(filter: &str) -> Result<EnvFilter, TelemetryError> {
    let failed = |source| TelemetryError::Filter { filter: filter.to_owned(), source };
    let parsed = EnvFilter::try_new(filter).map_err(failed)?;
    if filter.split(',').any(|directive| directive.trim().starts_with("audit")) {
        return Ok(parsed);
    }
    Ok(parsed.add_directive("audit=info".parse().map_err(failed)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_lines_are_written_whatever_the_level_is() {
        for (filter, written) in [("warn", "audit=info"), ("off", "audit=info"), ("info,audit=off", "audit=off")] {
            let filter = with_audit(filter).expect("a filter").to_string();
            assert!(filter.contains(written), "{filter}");
        }
    }

    #[test]
    fn a_bad_filter_is_named() {
        let error = init("info,=,", LogFormat::Json).expect_err("not a filter");
        assert!(error.to_string().contains("log.filter"), "{error}");
    }
}
