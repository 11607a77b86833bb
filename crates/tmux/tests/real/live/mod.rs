//! The lasting connection: its notifications, its reads, and its invisibility.

mod ends;
mod notices;
mod reads;
mod storm;

use std::collections::BTreeMap;

use protocol::TmuxSessionId;
use protocol::tmux::{TmuxSession, TmuxTransport};
use tmux::live::{Live, LiveEvent, Reading, Scope, SessionPart};
use tmux::{Created, Listing, TmuxError};

use crate::support::{PATIENCE, Rig};

/// Returns the pool's own server, with one session.
async fn own() -> (Rig, Created) {
    let mut rig = Rig::new();
    rig.device.own = true;
    let created = rig.start("a", "exec sleep 1000").await;
    (rig, created)
}

/// Returns a user's own server, with one session.
async fn other() -> (Rig, Created) {
    let rig = Rig::new();
    let created = rig.start("a", "exec sleep 1000").await;
    (rig, created)
}

async fn open(rig: &Rig) -> Live {
    Live::open(&rig.device, TmuxTransport::Native).await.unwrap()
}

/// Returns the next event that `wanted` accepts.
async fn next_matching<T>(live: &mut Live, mut wanted: impl FnMut(LiveEvent) -> Option<T>) -> T {
    let heard = async {
        loop {
            if let Some(found) = wanted(live.next().await.unwrap()) {
                return found;
            }
        }
    };
    tokio::time::timeout(PATIENCE, heard).await.unwrap()
}

async fn read(live: &mut Live, ask: Scope) -> Reading {
    live.request(ask);
    next_matching(live, |heard| match heard {
        LiveEvent::Read(of, read) => {
            assert_eq!(of, ask);
            Some(read)
        }
        LiveEvent::Notice(_) => None,
    })
    .await
}

async fn whole(live: &mut Live) -> Listing {
    match read(live, Scope::All).await {
        Reading::All(listing) => listing,
        other => panic!("{other:?}"),
    }
}

async fn sessions(live: &mut Live) -> BTreeMap<TmuxSessionId, TmuxSession> {
    match read(live, Scope::Sessions).await {
        Reading::Sessions(sessions) => sessions,
        other => panic!("{other:?}"),
    }
}

async fn part(live: &mut Live, ask: Scope) -> Option<SessionPart> {
    match read(live, ask).await {
        Reading::Part(part) => part,
        other => panic!("{other:?}"),
    }
}

/// Returns the error that ends the connection, in time.
async fn ended(live: &mut Live) -> TmuxError {
    let end = async {
        loop {
            if let Err(error) = live.next().await {
                return error;
            }
        }
    };
    tokio::time::timeout(PATIENCE, end).await.unwrap()
}
