//! Whom the CLI trusts: the authorities of a file, or else those of the system. A machine that has none can still speak `http://`.

use std::path::Path;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::failure::Failure;

/// A TLS configuration with these roots.
///
/// # Errors
///
/// [`Failure::Usage`], naming the file, when it cannot be read or holds no certificate.
pub(super) fn config(ca_file: Option<&Path>) -> Result<ClientConfig, Failure> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => add_file(&mut roots, path)?,
        // Whatever of the system's bundle cannot be read is missing, and a handshake that needs it says so.
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    Ok(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), Failure> {
    let place = path.display();
    let bytes = std::fs::read(path).map_err(|e| Failure::usage(format!("cannot read the CA file {place}: {e}")))?;
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        let certificate = certificate.map_err(|e| Failure::usage(format!("the CA file {place} is not PEM: {e}")))?;
        roots.add(certificate).map_err(|e| Failure::usage(format!("the CA file {place} holds a certificate that cannot be used: {e}")))?;
    }
    if roots.is_empty() {
        return Err(Failure::usage(format!("the CA file {place} holds no certificate (a block that begins with -----BEGIN CERTIFICATE-----)")));
    }
    Ok(())
}
