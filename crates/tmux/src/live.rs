//! A connection that stays: tmux says at once what may have changed, and reads are answered in the
//! order in which they were asked, many at a time. What is noticed is never believed, only read.

mod answer;
mod apart;
mod attached;
mod control;
mod native;
mod parse;
mod wire;

use std::collections::BTreeMap;

use protocol::ids::{PaneId, TmuxSessionId, WindowId};
use protocol::tmux::{Means, TmuxPane, TmuxSession};

use self::apart::Apart;
use self::attached::Attached;
use crate::device::Device;
use crate::error::TmuxError;
use crate::guard::ServerRef;
use crate::observe::Listing;

/// Something that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ask {
    /// Only whether the server answers.
    Alive,
    /// The whole server.
    All,
    /// All its sessions, without panes.
    Sessions,
    /// One session with its panes.
    Session(TmuxSessionId),
    /// One window with its panes, and its session.
    Window(WindowId),
    /// One pane, wherever it is now, and its session.
    Pane(PaneId),
}

/// What was read, proved complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// For [`Ask::Alive`].
    Alive,
    /// For [`Ask::All`].
    All(Listing),
    /// For [`Ask::Sessions`]: what is not in it is absent.
    Sessions(BTreeMap<TmuxSessionId, TmuxSession>),
    /// For [`Ask::Session`], [`Ask::Window`] and [`Ask::Pane`]: `None` where this server has none of
    /// that id.
    Part(Option<Part>),
    /// For the same: it is there, and several sessions may show it or some of it. To which it belongs,
    /// only [`Ask::All`] tells.
    Shared,
}

/// A session, whole, or one window or pane of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its id.
    pub id: TmuxSessionId,
    /// Its facts.
    pub session: TmuxSession,
    /// Its panes, those of the window, or the one.
    pub panes: BTreeMap<PaneId, TmuxPane>,
}

/// Where something may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Notice {
    /// A session came or went.
    Sessions,
    /// This session has another name, other windows or other clients.
    Session(TmuxSessionId),
    /// This window came, or has other panes.
    Window(WindowId),
    /// This window went, from all sessions or from one.
    Closed(WindowId),
    /// This pane is in another mode.
    Pane(PaneId),
    /// A client left; which session it was attached to is not said.
    Clients,
}

/// What comes over the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// Something may have changed.
    Notice(Notice),
    /// The oldest question that was not answered is.
    Read(Ask, Read),
}

/// A connection that stays. Dropping it ends it, and leaves nothing behind but the hidden session.
/// Hear it all the time: what is not heard waits in the server's memory.
pub struct Live {
    means: Means,
    to: To,
}

enum To {
    /// The pool's own server.
    Own(Attached),
    /// Any other.
    Other(Apart),
}

impl Live {
    /// Connects by `means` ([`Means::Native`] or [`Means::Control`]) and proves that it works: what is
    /// asked is answered in time. On the pool's own server ([`Device::own`]) the hidden session is made
    /// if it is not there; on any other nothing is made or changed. On Linux the client of
    /// [`Means::Control`] ends with the thread that it was opened from.
    ///
    /// # Errors
    /// [`TmuxError::NoServer`] where nothing listens; [`TmuxError::TimedOut`]; anything else means that
    /// this server cannot be watched by these means.
    pub async fn open(device: &Device, means: Means) -> Result<Self, TmuxError> {
        let connect = async {
            match (means, device.own) {
                (Means::Native | Means::Control, true) => Attached::open(device, means).await.map(To::Own),
                (Means::Native, false) => Apart::open(device).await.map(To::Other),
                (Means::Control, false) => {
                    Err(refused("a client would have to attach to a session of the user"))
                }
                (Means::Listings, _) => Err(refused("listings need no connection")),
            }
        };
        let to = tokio::time::timeout(device.deadline, connect).await;
        to.map_err(|_elapsed| TmuxError::TimedOut(device.deadline))?.map(|to| Self { means, to })
    }

    /// How it is connected.
    #[must_use]
    pub fn means(&self) -> Means {
        self.means
    }

    /// The server at the other end, the same one as long as the connection lasts.
    #[must_use]
    pub fn server(&self) -> ServerRef {
        match &self.to {
            To::Own(attached) => attached.server(),
            To::Other(apart) => apart.server(),
        }
    }

    /// Asks, without waiting for the answer or for answers to earlier questions.
    pub fn ask(&mut self, ask: Ask) {
        match &mut self.to {
            To::Own(attached) => attached.ask(ask),
            To::Other(apart) => apart.ask(ask),
        }
    }

    /// What comes next. May be cancelled without loss. Has no deadline of its own.
    ///
    /// # Errors
    /// The connection is over, or what came is not to be believed: connect anew and read all.
    pub async fn hear(&mut self) -> Result<Heard, TmuxError> {
        match &mut self.to {
            To::Own(attached) => attached.hear().await,
            To::Other(apart) => apart.hear().await,
        }
    }
}

fn refused(why: &str) -> TmuxError {
    TmuxError::Refused(why.to_owned())
}
