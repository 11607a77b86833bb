//! The connection that stays: what it hears, what it reads, and that nobody notices it.

mod ends;
mod hears;
mod reads;
mod storm;

use std::collections::BTreeMap;

use protocol::ids::TmuxSessionId;
use protocol::tmux::{Means, TmuxSession};
use tmux::live::{Ask, Heard, Live, Part, Read};
use tmux::{Created, Listing, TmuxError};

use crate::support::{PATIENCE, Rig};

/// The pool's own server, with one session.
async fn own() -> (Rig, Created) {
    let mut rig = Rig::new();
    rig.device.own = true;
    let created = rig.start("a", "exec sleep 1000").await;
    (rig, created)
}

/// Somebody's own server, with one session.
async fn other() -> (Rig, Created) {
    let rig = Rig::new();
    let created = rig.start("a", "exec sleep 1000").await;
    (rig, created)
}

async fn open(rig: &Rig) -> Live {
    Live::open(&rig.device, Means::Native).await.unwrap()
}

/// What comes next that `wanted` takes.
async fn hear<T>(live: &mut Live, mut wanted: impl FnMut(Heard) -> Option<T>) -> T {
    let heard = async {
        loop {
            if let Some(found) = wanted(live.hear().await.unwrap()) {
                return found;
            }
        }
    };
    tokio::time::timeout(PATIENCE, heard).await.unwrap()
}

async fn read(live: &mut Live, ask: Ask) -> Read {
    live.ask(ask);
    hear(live, |heard| match heard {
        Heard::Read(of, read) => {
            assert_eq!(of, ask);
            Some(read)
        }
        Heard::Notice(_) => None,
    })
    .await
}

async fn whole(live: &mut Live) -> Listing {
    match read(live, Ask::All).await {
        Read::All(listing) => listing,
        other => panic!("{other:?}"),
    }
}

async fn sessions(live: &mut Live) -> BTreeMap<TmuxSessionId, TmuxSession> {
    match read(live, Ask::Sessions).await {
        Read::Sessions(sessions) => sessions,
        other => panic!("{other:?}"),
    }
}

async fn part(live: &mut Live, ask: Ask) -> Option<Part> {
    match read(live, ask).await {
        Read::Part(part) => part,
        other => panic!("{other:?}"),
    }
}

/// How the connection ends, in time.
async fn ended(live: &mut Live) -> TmuxError {
    let end = async {
        loop {
            if let Err(error) = live.hear().await {
                return error;
            }
        }
    };
    tokio::time::timeout(PATIENCE, end).await.unwrap()
}
