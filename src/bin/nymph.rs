//! The daemon's binary: crypto provider, parse, run, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    // By name, so that no dependency's features can change which one is used.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        eprintln!("nymph: a crypto provider is already installed");
        return ExitCode::FAILURE;
    }
    nymph::daemon::main()
}
