//! The open connection.

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};

use super::connect::Stream;
use crate::wire::Frame;

type Socket = WebSocketStream<Box<dyn Stream>>;

/// The connection is over.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The peer closed it.
    #[error("the control plane closed the connection{}", reason.as_deref().map(|r| format!(": {r}")).unwrap_or_default())]
    Closed {
        /// What it said, cut to a sane length.
        reason: Option<String>,
    },
    /// It broke, or the peer broke the protocol.
    #[error("the connection broke")]
    Broken {
        /// How.
        #[source]
        source: WsError,
    },
}

/// The receiving half.
pub struct Reader(SplitStream<Socket>);

/// The sending half.
pub struct Writer(SplitSink<Socket, Message>);

pub(super) fn split(socket: Socket) -> (Reader, Writer) {
    let (sink, stream) = socket.split();
    (Reader(stream), Writer(sink))
}

impl Reader {
    /// The next frame.
    ///
    /// # Errors
    /// [`LinkError`]: nothing more will come.
    ///
    /// # Cancel safety
    /// Safe: a frame that is half read stays in the buffer.
    pub async fn next(&mut self) -> Result<Frame, LinkError> {
        match self.0.next().await {
            Some(Ok(Message::Text(text))) => Ok(Frame::Text(text.as_str().to_owned())),
            Some(Ok(Message::Binary(bytes))) => Ok(Frame::Binary(bytes)),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Ok(Frame::Alive),
            Some(Ok(Message::Close(frame))) => Err(LinkError::Closed { reason: frame.map(|f| f.reason.as_str().chars().take(200).collect()) }),
            Some(Err(WsError::ConnectionClosed | WsError::AlreadyClosed)) | None => Err(LinkError::Closed { reason: None }),
            Some(Err(source)) => Err(LinkError::Broken { source }),
        }
    }
}

impl Writer {
    /// Sends a text frame and waits until the socket took it.
    ///
    /// # Errors
    /// [`LinkError`]: nothing more can be sent.
    pub async fn text(&mut self, text: String) -> Result<(), LinkError> {
        self.send(Message::text(text)).await
    }

    /// Sends a binary frame and waits until the socket took it.
    ///
    /// # Errors
    /// [`LinkError`]: nothing more can be sent.
    pub async fn binary(&mut self, bytes: Bytes) -> Result<(), LinkError> {
        self.send(Message::binary(bytes)).await
    }

    /// Says goodbye. The peer's answer is not waited for.
    ///
    /// # Errors
    /// [`LinkError`] when the connection is gone already.
    pub async fn close(&mut self, reason: &str) -> Result<(), LinkError> {
        self.send(Message::Close(Some(CloseFrame { code: CloseCode::Away, reason: reason.into() }))).await
    }

    async fn send(&mut self, message: Message) -> Result<(), LinkError> {
        self.0.send(message).await.map_err(|error| match error {
            WsError::ConnectionClosed | WsError::AlreadyClosed => LinkError::Closed { reason: None },
            source => LinkError::Broken { source },
        })
    }
}
