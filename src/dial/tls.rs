//! Roots of trust.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::{CertificateError, ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};

use super::error::DialError;

/// A private CA bundle is a few kilobytes; the largest public one is under 1 MiB.
const MAX_CA_FILE: u64 = 4 << 20;

/// TLS settings that trust `ca_file` alone, or the system's roots. Reads files: blocking.
pub(super) fn config(ca_file: Option<&Path>) -> Result<ClientConfig, DialError> {
    let roots = match ca_file {
        Some(path) => roots_of(path)?,
        None => system_roots()?,
    };
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| DialError::Tls { address: String::new(), source: io::Error::other(error) })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

fn roots_of(path: &Path) -> Result<RootCertStore, DialError> {
    let bad = |why: String| DialError::CaFile { path: path.to_owned(), why };
    let length = std::fs::metadata(path).map_err(|error| bad(error.to_string()))?.len();
    if length > MAX_CA_FILE {
        return Err(bad(format!("it is over {MAX_CA_FILE} bytes")));
    }
    let pem = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| bad(format!("it is not PEM: {error}")))?;
        roots.add(certificate).map_err(|error| bad(format!("a certificate in it cannot be used: {error}")))?;
    }
    if roots.is_empty() { Err(bad("it holds no certificate in PEM".into())) } else { Ok(roots) }
}

fn system_roots() -> Result<RootCertStore, DialError> {
    let mut roots = RootCertStore::empty();
    // Single certificates of a system bundle may be too odd for rustls; the others still count.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(DialError::NoRoots) } else { Ok(roots) }
}

pub(super) fn server_name(name: &str) -> Result<ServerName<'static>, DialError> {
    ServerName::try_from(name.to_owned()).map_err(|_| DialError::ServerName { name: name.chars().take(300).collect() })
}

/// What a failed TLS handshake means to whoever runs the daemon.
pub(super) fn explain(address: &str, source: io::Error) -> DialError {
    let cause = source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let cure = match cause {
        Some(rustls::Error::InvalidCertificate(CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. })) => {
            "it was issued for another name: set control_plane.server_name to a name that it carries"
        }
        Some(rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. })) => {
            "it has expired: renew it, or check this node's clock"
        }
        Some(rustls::Error::InvalidCertificate(CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. })) => {
            "it is not valid yet: check this node's clock"
        }
        Some(rustls::Error::InvalidCertificate(_)) => "set control_plane.ca_file to the CA that signed it",
        _ => return DialError::Tls { address: address.to_owned(), source },
    };
    DialError::Untrusted { cure, source }
}
