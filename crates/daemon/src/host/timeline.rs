//! Whose database this is. What was given out once (epochs, tokens, ids of sessions and messages) is known to workers,
//! panes and directories, and must not be given out a second time; what a copy of a database says of processes is true of
//! the original's. So beside the database lies a file that no backup has, and where the two do not fit the pool begins
//! another timeline: numbers above all that were given out, and sessions without a running program.

use std::path::Path;

use pool::Pool;
use protocol::paths::Paths;
use protocol::policy::{Budget, RestartPolicy};
use protocol::session::Reason;
use protocol::{Event, Lifecycle, OsBytes, Session, SessionId};
use serde::{Deserialize, Serialize};
use store::Timeline;

use crate::host::files;

/// The name of the file, in the state directory.
const NAME: &str = "timeline";

/// The longest such file, in bytes.
const MAX: u64 = 4096;

/// How many sessions' ids are set aside at a time: the file is not written for each.
const SESSIONS: u64 = 1000;

/// The same of events' numbers, which messages have as their ids.
const EVENTS: u64 = 1_000_000;

/// By how much an epoch grows at the most where another timeline begins: epochs stay far below 2^32, the most that a mark
/// of a claim can hold.
const EPOCHS: u64 = 1 << 16;

/// The file: what was given out, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Known {
    /// The timeline's number.
    id: u64,
    /// The epoch of the last start.
    epoch: u64,
    /// The last start has written its epoch into the database, too.
    begun: bool,
    /// The number of the last event at the last end, where that was in order.
    ended_at: Option<u64>,
    /// No session has an id from here on.
    sessions: u64,
    /// No event has a number from here on.
    events: u64,
    place: Place,
}

/// Where a state directory is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    path: OsBytes,
    /// Device numbers may change with each start of the machine.
    boot: String,
    device: u64,
    inode: u64,
}

impl Place {
    fn of(state: &Path, boot: &str) -> std::io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        let found = std::fs::metadata(state)?;
        let path = state.to_owned().into();
        Ok(Self { path, boot: boot.to_owned(), device: found.dev(), inode: found.ino() })
    }

    /// Whether it is the same directory: one that was moved is, one that was copied is not.
    fn is(&self, other: &Self) -> bool {
        let same_path = self.path == other.path;
        let same_device = self.device == other.device || self.boot != other.boot && same_path;
        self.inode == other.inode && same_device
    }
}

/// What becomes of the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It goes on.
    Same,
    /// It is the first start that knows of timelines.
    First,
    /// Another one begins, and why.
    Other(&'static str),
}

/// Whether the database, at this epoch and event, is the one that the file is about.
pub(crate) fn judge(
    database: Timeline,
    (epoch, seq): (u64, u64),
    known: Option<&Known>,
    place: &Place,
) -> Verdict {
    let Some(known) = known else {
        return match database {
            Timeline { copied: true, .. } => Verdict::Other("it is made of a backup or an export"),
            Timeline { id: Some(_), .. } => Verdict::Other("it is a copy of another pool's database"),
            Timeline { id: None, .. } => Verdict::First,
        };
    };
    // The last start may have ended between the file and the database.
    let behind = epoch < known.epoch && (known.begun || epoch + 1 < known.epoch);
    match database {
        Timeline { copied: true, .. } => Verdict::Other("it is made of a backup or an export"),
        Timeline { id, .. } if id.is_some_and(|id| id != known.id) => {
            Verdict::Other("its database is another pool's")
        }
        Timeline { id: None, .. } if known.begun => Verdict::Other("its database was replaced"),
        _ if behind => Verdict::Other("its database is older than its last start"),
        _ if known.ended_at.is_some_and(|ended| known.begun && seq < ended) => {
            Verdict::Other("its database is older than its last end")
        }
        _ if !known.place.is(place) => Verdict::Other("its state directory is a copy"),
        _ => Verdict::Same,
    }
}

/// A start of the pool, as far as its timeline goes.
pub(crate) struct Start {
    pub(crate) verdict: Verdict,
    pub(crate) known: Known,
    /// The number before that of the first event.
    pub(crate) seq: u64,
}

/// Looks whose database it is, and writes down what this start gives out, before it does.
pub(crate) fn begin(paths: &Paths, pool: &Pool, database: Timeline, boot: &str) -> std::io::Result<Start> {
    let known = read(&paths.state);
    let place = Place::of(&paths.state, boot)?;
    let (epoch, seq) = (pool.epoch().0, pool.seq().0);
    let verdict = judge(database, (epoch, seq), known.as_ref(), &place);
    let highest = known.as_ref().map_or(epoch, |known| known.epoch.max(epoch));
    let reserved = known.as_ref().map_or(0, |known| known.sessions);
    let seen = highest_session(paths) + 1;
    let random = random()?;
    let (id, epoch, seq, next) = match verdict {
        Verdict::Other(_) => {
            let next = pool.next_session().max(reserved).max(seen);
            let given_out = known.as_ref().map_or(0, |known| known.events);
            (random, highest + 1 + random % EPOCHS, seq.max(given_out), next)
        }
        Verdict::Same | Verdict::First => {
            let id = database.id.or(known.as_ref().map(|known| known.id)).unwrap_or(random);
            (id, highest + 1, seq, pool.next_session().max(seen))
        }
    };
    let (sessions, events) = (next + SESSIONS, seq + EVENTS);
    let known = Known { id, epoch, begun: false, ended_at: None, sessions, events, place };
    write(&paths.state, &known)?;
    Ok(Start { verdict, known, seq })
}

impl Known {
    /// The epoch of this start.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The number of the timeline.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The id of the next session, at the least.
    pub(crate) fn next_session(&self) -> u64 {
        self.sessions.saturating_sub(SESSIONS)
    }
}

/// The start is in the database as well.
pub(crate) fn begun(paths: &Paths, known: &Known) -> std::io::Result<()> {
    write(&paths.state, &Known { begun: true, ..known.clone() })
}

/// An end in order, after this event.
pub(crate) fn ended(paths: &Paths, seq: u64) {
    let Some(known) = read(&paths.state) else { return };
    if let Err(error) = write(&paths.state, &Known { ended_at: Some(seq), ..known }) {
        tracing::warn!(%error, "where the pool ended is not written down");
    }
}

/// Sets more numbers aside where few are left: of sessions from `next` on, of events from `seq`.
pub(crate) fn reserve(state: &Path, (next, seq): (u64, u64)) {
    let short = |known: &Known| next + SESSIONS / 2 > known.sessions || seq + EVENTS / 2 > known.events;
    let Some(known) = read(state).filter(short) else { return };
    let (sessions, events) = (next + SESSIONS, seq + EVENTS);
    if let Err(error) = write(state, &Known { sessions, events, ..known }) {
        tracing::warn!(%error, "which numbers were given out is not written down");
    }
}

fn read(state: &Path) -> Option<Known> {
    let text = files::read_small(&state.join(NAME), MAX).ok()?;
    serde_json::from_slice(&text).ok()
}

fn write(state: &Path, known: &Known) -> std::io::Result<()> {
    let path = state.join(NAME);
    files::replace(&path, &serde_json::to_vec(known)?)?;
    // On disk before anything that it speaks of.
    std::fs::File::open(&path)?.sync_all()?;
    std::fs::File::open(state)?.sync_all()
}

fn random() -> std::io::Result<u64> {
    let tag = crate::host::clock::tag()?;
    Ok(u64::from_le_bytes(tag.0[..8].try_into().unwrap_or_default()) >> 1)
}

/// The highest id of which there is a directory or an archive.
fn highest_session(paths: &Paths) -> u64 {
    let mut highest = 0;
    for dir in [&paths.sessions, &paths.meta(), &paths.archives()] {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| name.split('-').next()?.parse::<SessionId>().ok());
            highest = highest.max(id.map_or(0, |id| id.0));
        }
    }
    highest
}

/// What another timeline begins with: whatever ran is another pool's, and nothing is started by itself.
pub(crate) fn events(pool: &Pool, paths: &Paths) -> Vec<Event> {
    let mut events = vec![Event::TmuxServerChanged { server: None }];
    events.extend(pool.sessions().map(|session| Event::SessionCreated(Box::new(untied(session, paths)))));
    events
}

/// A session as it is without what ran, below this state directory.
fn untied(session: &Session, paths: &Paths) -> Session {
    let mut session = session.clone();
    if session.lifecycle.holds_slot() {
        (session.lifecycle, session.reason, session.exit) = (Lifecycle::Lost, Some(Reason::ServerGone), None);
    }
    rebase(&mut session, paths);
    // Else a copy would start what the original runs: by its policy, or to work a prompt.
    let by_itself = session.policy.restart != RestartPolicy::No || session.lifecycle == Lifecycle::Parked;
    session.budget = Budget { exhausted: by_itself, ..Budget::default() };
    Session { incarnation: None, lock: None, attached_clients: 0, current_command: None, ..session }
}

/// Its directory is the one below this state directory.
fn rebase(session: &mut Session, paths: &Paths) {
    let dir = paths.session(session.id);
    let inside = session.spec.cwd.as_path().strip_prefix(session.dir.as_path()).ok();
    if let Some(cwd) = inside.map(|inside| dir.join(inside)) {
        session.spec.cwd = cwd.into();
    }
    session.dir = dir.into();
}

/// Sessions whose directory is not below this state directory any more: it was moved.
pub(crate) fn moved(pool: &Pool, paths: &Paths) -> Vec<Event> {
    let away = pool.sessions().filter(|session| session.dir.as_path() != paths.session(session.id));
    let rebased = away.map(|session| {
        let mut session = session.clone();
        rebase(&mut session, paths);
        Event::SessionCreated(Box::new(session))
    });
    rebased.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(inode: u64) -> Place {
        Place { path: "/state".into(), boot: "b".to_owned(), device: 1, inode }
    }

    fn known() -> Known {
        Known {
            id: 7,
            epoch: 5,
            begun: true,
            ended_at: Some(100),
            sessions: 1010,
            events: 1_000_100,
            place: place(3),
        }
    }

    #[test]
    fn a_database_that_its_file_knows_goes_on_and_every_other_is_another_timeline() {
        let mine = Timeline { id: Some(7), copied: false };
        let same = |database, at, known: Option<Known>, place| {
            judge(database, at, known.as_ref(), &place) == Verdict::Same
        };
        assert!(same(mine, (5, 100), Some(known()), place(3)));
        assert!(same(mine, (5, 90), Some(Known { ended_at: None, ..known() }), place(3)), "it was killed");
        let cut_off = Known { epoch: 6, begun: false, ..known() };
        assert!(same(mine, (5, 100), Some(cut_off), place(3)), "a start ended between file and database");
        let moved = Place { path: "/moved".into(), ..place(3) };
        assert!(same(mine, (5, 100), Some(known()), moved), "a directory that was moved");
        let rebooted = Place { boot: "c".to_owned(), device: 9, ..place(3) };
        assert!(same(mine, (5, 100), Some(known()), rebooted));

        assert!(!same(Timeline { copied: true, ..mine }, (5, 100), Some(known()), place(3)), "a backup");
        assert!(!same(mine, (5, 100), None, place(3)), "a database that was copied without its file");
        assert!(!same(Timeline { id: Some(8), ..mine }, (5, 100), Some(known()), place(3)));
        assert!(!same(Timeline { id: None, ..mine }, (0, 0), Some(known()), place(3)), "a fresh one");
        assert!(!same(mine, (4, 100), Some(known()), place(3)), "one of before the last start");
        assert!(!same(mine, (5, 99), Some(known()), place(3)), "one of before the last end");
        assert!(!same(mine, (5, 100), Some(known()), place(4)), "a copy of the whole directory");
        assert_eq!(judge(Timeline::default(), (5, 100), None, &place(3)), Verdict::First, "an upgrade");
    }
}
