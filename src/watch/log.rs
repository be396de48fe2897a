//! One log stream.

use std::io;
use std::pin::Pin;

use futures_util::{AsyncBufRead, AsyncBufReadExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use kube::{Api, Client};

use crate::error::Chain;
use crate::types::{InstanceName, KubeNamespace};

/// A log that cannot be opened or read on.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The container has not started, or the kubelet is not ready to tell: try again.
    #[error("the log cannot be read yet: {message}")]
    NotYet {
        /// The cluster's words.
        message: String,
    },
    /// The Pod is gone.
    #[error("the Pod is gone")]
    Gone,
    /// The cluster refused.
    #[error("the cluster refused to give the log ({code}): {message}")]
    Refused {
        /// HTTP status.
        code: u16,
        /// The cluster's words.
        message: String,
    },
    /// The connection failed.
    #[error("the log stream broke: {detail}")]
    Broken {
        /// How, with causes.
        detail: String,
    },
}

/// The raw bytes of a container's log, each line behind the kubelet's time stamp.
pub struct LogStream {
    reader: Pin<Box<dyn AsyncBufRead + Send>>,
}

impl LogStream {
    /// Opens the log of `container`, from `since` (a whole second: the API rounds others and would lose lines).
    ///
    /// With `follow`, the kubelet answers only when the first byte is there: opening may wait as long as the container is silent.
    ///
    /// # Errors
    /// [`LogError`].
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn open(
        client: &Client,
        namespace: &KubeNamespace,
        name: &InstanceName,
        container: &str,
        since: Option<Timestamp>,
        follow: bool,
    ) -> Result<Self, LogError> {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace.as_str());
        let parameters = LogParams { container: Some(container.to_owned()), follow, timestamps: true, since_time: since, ..LogParams::default() };
        match pods.log_stream(name.as_str(), &parameters).await {
            Ok(reader) => Ok(Self { reader: Box::pin(reader) }),
            Err(kube::Error::Api(status)) => Err(match status.code {
                404 => LogError::Gone,
                // "container is waiting to start", "is not available": the kubelet's way to say later.
                400 | 408 | 429 | 500..=599 => LogError::NotYet { message: status.message.clone() },
                code => LogError::Refused { code, message: status.message.clone() },
            }),
            Err(error) => Err(LogError::Broken { detail: Chain(&error).to_string() }),
        }
    }

    /// The bytes that are there, once at least one is; empty at the end. They are taken only by [`LogStream::consume`], so
    /// that a caller who cannot pass them on yet leaves them to the connection's own flow control.
    ///
    /// # Errors
    /// [`LogError::Broken`].
    ///
    /// # Cancel safety
    /// Safe: nothing is taken.
    pub async fn fill(&mut self) -> Result<&[u8], LogError> {
        self.reader.fill_buf().await.map_err(|error: io::Error| LogError::Broken { detail: Chain(&error).to_string() })
    }

    /// Takes bytes that [`LogStream::fill`] showed.
    pub fn consume(&mut self, bytes: usize) {
        self.reader.as_mut().consume(bytes);
    }
}
