//! lakeshore: the control plane and its command line, in one program.

use std::process::ExitCode;

fn main() -> ExitCode {
    // By name and first: two providers in one process would make rustls refuse to choose.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        eprintln!("error: a TLS provider is installed already; this is a bug of lakeshore");
        return ExitCode::FAILURE;
    }
    nymph::cli::main()
}
