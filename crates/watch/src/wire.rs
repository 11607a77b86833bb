//! The connection to tmux, or what there is in place of one.

use std::pin::Pin;

use protocol::tmux::Means;
use tmux::live::{Heard, Live};
use tmux::{Device, Listing, TmuxError};

type Coming<T> = Pin<Box<dyn Future<Output = Result<T, TmuxError>> + Send>>;

/// How tmux is reached right now.
pub(crate) enum Wire {
    /// Not at all.
    Idle,
    /// A connection is being made.
    Opening(Means, Coming<Live>),
    /// There is a connection.
    Live(Box<Live>),
    /// A listing is being taken by a command.
    Listing(Coming<Listing>),
}

/// What comes of it.
pub(crate) enum Said {
    /// A connection, or none.
    Opened(Means, Result<Box<Live>, TmuxError>),
    /// Over the connection; after an error it is over.
    Heard(Result<Heard, TmuxError>),
    /// The listing.
    Listed(Result<Listing, TmuxError>),
}

impl Wire {
    /// Begins to connect, or to list.
    pub(crate) fn begin(means: Means, device: &Device) -> Self {
        let device = device.clone();
        match means {
            Means::Native | Means::Control => {
                Self::Opening(means, Box::pin(async move { Live::open(&device, means).await }))
            }
            Means::Listings => Self::Listing(Box::pin(async move { device.observe().await })),
        }
    }

    /// What comes next; idle, nothing ever does. May be cancelled.
    pub(crate) async fn says(&mut self) -> Said {
        let said = match self {
            Self::Idle => std::future::pending().await,
            Self::Live(live) => return Said::Heard(live.hear().await),
            Self::Opening(means, live) => Said::Opened(*means, live.await.map(Box::new)),
            Self::Listing(listing) => Said::Listed(listing.await),
        };
        *self = Self::Idle;
        said
    }
}
