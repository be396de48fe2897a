//! The server's certificate, read again when its files change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::Chain;

/// A certificate that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing, unreadable or not PEM of the expected kind.
    #[error("read {what} from {}", path.display())]
    File {
        /// The certificate or the key.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Certificate and key are not accepted together.
    #[error("use the certificate in {} with its key", path.display())]
    Unusable {
        /// The certificate's file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
}

type Stamps = [Option<SystemTime>; 2];

/// Certificate and key files, and what they last held.
#[derive(Debug)]
pub(crate) struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    current: Mutex<(Stamps, Arc<ServerConfig>)>,
}

impl Certificate {
    /// Reads both files.
    ///
    /// # Errors
    /// [`TlsError`] that names the file at fault.
    pub(crate) fn open(chain: PathBuf, key: PathBuf) -> Result<Self, TlsError> {
        let stamps = stamps(&chain, &key);
        let config = load(&chain, &key)?;
        Ok(Self { chain, key, current: Mutex::new((stamps, Arc::new(config))) })
    }

    /// What to use for the next handshake. A file that changed for the worse keeps the old certificate in use, and is told once.
    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = stamps(&self.chain, &self.key);
        if stamps != current.0 {
            current.0 = stamps;
            match load(&self.chain, &self.key) {
                Ok(config) => {
                    tracing::info!("Certificate read again");
                    current.1 = Arc::new(config);
                }
                Err(error) => tracing::error!(error = %Chain(&error), "The changed certificate cannot be used; the old one stays"),
            }
        }
        Arc::clone(&current.1)
    }
}

fn stamps(chain: &Path, key: &Path) -> Stamps {
    [chain, key].map(|path| std::fs::metadata(path).and_then(|data| data.modified()).ok())
}

fn load(chain: &Path, key: &Path) -> Result<ServerConfig, TlsError> {
    let file = |what, path: &Path, source: Box<dyn std::error::Error + Send + Sync>| TlsError::File { what, path: path.to_owned(), source };
    let certificates = CertificateDer::pem_file_iter(chain).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = certificates.map_err(|error| file("the certificate chain", chain, error.into()))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| file("the private key", key, error.into()))?;
    let unusable = |source| TlsError::Unusable { path: chain.to_owned(), source };
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(certificates, private)
        .map_err(unusable)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
