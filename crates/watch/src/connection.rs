//! Connection to tmux, in each of its states.

use std::pin::Pin;

use protocol::tmux::TmuxTransport;
use tmux::live::{Live, LiveEvent};
use tmux::{Device, Listing, TmuxError};

type Pending<T> = Pin<Box<dyn Future<Output = Result<T, TmuxError>> + Send>>;

/// State of the connection.
pub(crate) enum Connection {
    /// None.
    Idle,
    /// A connection is being opened.
    Opening(TmuxTransport, Pending<Live>),
    /// An open connection.
    Live(Box<Live>),
    /// A listing is being taken by a command.
    Listing(Pending<Listing>),
}

/// Result of waiting for the connection.
pub(crate) enum ConnectionEvent {
    /// Opening succeeded or failed.
    Opened(TmuxTransport, Result<Box<Live>, TmuxError>),
    /// An event of the connection; after an error it has ended.
    Live(Result<LiveEvent, TmuxError>),
    /// The listing succeeded or failed.
    Listed(Result<Listing, TmuxError>),
}

impl Connection {
    /// Starts to connect, or to list.
    pub(crate) fn open(transport: TmuxTransport, device: &Device) -> Self {
        let device = device.clone();
        match transport {
            TmuxTransport::Native | TmuxTransport::Control => {
                Self::Opening(transport, Box::pin(async move { Live::open(&device, transport).await }))
            }
            TmuxTransport::Listings => Self::Listing(Box::pin(async move { device.observe().await })),
        }
    }

    /// Waits for the next event; while idle, for ever. Cancel-safe.
    pub(crate) async fn next(&mut self) -> ConnectionEvent {
        let event = match self {
            Self::Idle => std::future::pending().await,
            Self::Live(live) => return ConnectionEvent::Live(live.next().await),
            Self::Opening(transport, live) => ConnectionEvent::Opened(*transport, live.await.map(Box::new)),
            Self::Listing(listing) => ConnectionEvent::Listed(listing.await),
        };
        *self = Self::Idle;
        event
    }
}
