//! A lasting connection to a server, over which tmux notifies of changes at once, and reads are answered in
//! the order of their requests, many at a time. Notifications are hints only; state is taken from a
//! subsequent read.

mod attached;
mod channel;
mod control;
mod native;
mod notice;
mod parse;
mod pending;
mod unattached;

use protocol::tmux::TmuxTransport;

use self::attached::Attached;
pub use self::notice::{LiveEvent, Notice};
#[cfg(any(test, feature = "testing"))]
pub(crate) use self::parse::pieces_agree;
use self::unattached::Unattached;
use crate::device::Device;
use crate::error::TmuxError;
use crate::guard::ServerRef;
pub use crate::query::{Reading, Scope, SessionPart};

/// A lasting connection. Dropping it ends it, and leaves only the hidden session behind. Call
/// [`Live::next`] all the time: events that are not taken wait in the server's memory.
pub struct Live {
    transport: TmuxTransport,
    link: Link,
}

enum Link {
    /// The pool's own server.
    Own(Attached),
    /// Any other server.
    Other(Unattached),
}

impl Live {
    /// Connects by [`TmuxTransport::Native`] or [`TmuxTransport::Control`], and proves with one read that
    /// the connection works. On the pool's own server ([`Device::own`]) the hidden session is created if it
    /// is missing; on any other, nothing is created or changed. On Linux the client of
    /// [`TmuxTransport::Control`] ends with the thread that opened the connection.
    ///
    /// # Errors
    /// [`TmuxError::NoServer`] if nothing listens; [`TmuxError::TimedOut`]; any other error means that this
    /// server cannot be watched by this transport.
    pub async fn open(device: &Device, transport: TmuxTransport) -> Result<Self, TmuxError> {
        let connect = async {
            match (transport, device.own) {
                (TmuxTransport::Native | TmuxTransport::Control, true) => {
                    Attached::open(device, transport).await.map(Link::Own)
                }
                (TmuxTransport::Native, false) => Unattached::open(device).await.map(Link::Other),
                (TmuxTransport::Control, false) => {
                    Err(refused("a control client would have to attach to a session of the user"))
                }
                (TmuxTransport::Listings, _) => Err(refused("listings need no connection")),
            }
        };
        let link = tokio::time::timeout(device.deadline, connect).await;
        link.map_err(|_elapsed| TmuxError::TimedOut(device.deadline))?.map(|link| Self { transport, link })
    }

    /// Transport of the connection.
    pub fn transport(&self) -> TmuxTransport {
        self.transport
    }

    /// Identity of the server; constant for the life of the connection.
    pub fn server(&self) -> ServerRef {
        match &self.link {
            Link::Own(attached) => attached.server(),
            Link::Other(unattached) => unattached.server(),
        }
    }

    /// Requests a read, without waiting for its answer or for earlier ones.
    pub fn request(&mut self, scope: Scope) {
        match &mut self.link {
            Link::Own(attached) => attached.request(scope),
            Link::Other(unattached) => unattached.request(scope),
        }
    }

    /// Returns the next event. Cancel-safe. Has no deadline of its own.
    ///
    /// # Errors
    /// The connection has ended, or its data cannot be trusted: reconnect and read everything.
    pub async fn next(&mut self) -> Result<LiveEvent, TmuxError> {
        match &mut self.link {
            Link::Own(attached) => attached.next().await,
            Link::Other(unattached) => unattached.next().await,
        }
    }
}

fn refused(why: &str) -> TmuxError {
    TmuxError::Refused(why.to_owned())
}
