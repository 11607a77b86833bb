//! The timeline of a pool: detects that the database is a copy. Workers, panes and directories know the pool's epochs,
//! tokens, and ids of sessions and messages, so none of these numbers may be given out twice; and the processes on
//! record in a copy belong to the original pool. A file beside the database, which no backup contains, names the
//! timeline. If the two do not match, the pool starts a new timeline: numbers above all that were given out, and
//! sessions without a running program.

use std::path::Path;

use pool::Pool;
use protocol::policy::{Budget, RestartPolicy};
use protocol::session::Origin;
use protocol::{Event, Lifecycle, OsBytes, Paths, Reason, Session, SessionId, Timestamp};
use serde::{Deserialize, Serialize};
use store::Timeline;

use world::random::Random;

use crate::host::error::DaemonError;
use crate::host::two_slot_file;

/// Name of the timeline file in the state directory.
const NAME: &str = "timeline";

/// Session ids reserved at a time, so that the file is not written for each session.
const SESSION_RESERVE: u64 = 1000;

/// Event numbers reserved at a time; messages have them as their ids.
const EVENT_RESERVE: u64 = 1_000_000;

/// Maximum step of the epoch at the start of a new timeline. Epochs stay far below 2^32, the maximum that the
/// marker of a claim can hold.
const EPOCH_STEP_MAX: u64 = 1 << 16;

/// Contents of the timeline file: the numbers given out, and the identity of the state directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TimelineFile {
    /// Random number of the timeline.
    id: u64,
    /// The epoch of the last start, which may have ended before it committed that.
    epoch: u64,
    /// The last epoch that is known to be in the database; 0 before the first, and in a file of a build that
    /// did not record it.
    #[serde(default)]
    committed: u64,
    /// Number of the last event when the daemon last ended cleanly; `None` after a crash.
    ended_at: Option<u64>,
    /// Every session id given out is below this.
    sessions: u64,
    /// Every event number given out is below this.
    events: u64,
    place: StateDirId,
}

/// The identity of a state directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StateDirId {
    path: OsBytes,
    /// Boot id of the machine: device numbers may change with each boot, and some with each mount.
    boot: String,
    device: u64,
    inode: u64,
}

impl StateDirId {
    fn read(state: &Path, boot: &str) -> std::io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        let found = std::fs::metadata(state)?;
        let path = state.to_owned().into();
        Ok(Self { path, boot: boot.to_owned(), device: found.dev(), inode: found.ino() })
    }

    /// True if both are the same directory: a moved one is, a copied one is not.
    fn is_same(&self, other: &Self) -> bool {
        let same_path = self.path == other.path;
        let may_differ = self.boot != other.boot || [self, other].iter().all(|one| is_of_mount(one.device));
        self.inode == other.inode && (self.device == other.device || may_differ && same_path)
    }
}

/// True for a device number that changes with each mount: that of a file system without a device of its own (overlay,
/// NFS, FUSE, btrfs), and any on macOS.
fn is_of_mount(device: u64) -> bool {
    #[cfg(target_os = "linux")]
    return nix::sys::stat::major(device) == 0;
    #[cfg(not(target_os = "linux"))]
    return device > 0;
}

/// The relation between the database and the timeline file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Continuity {
    /// The database continues its timeline.
    Same,
    /// No timeline file or number exists yet: the first start.
    First,
    /// The state directory had a database, and this one is new.
    Missing,
    /// A new timeline has to begin, with the reason.
    Other(&'static str),
}

/// Compares the database, at this epoch and event number, with the timeline file.
fn check(
    database: Timeline,
    (epoch, seq): (u64, u64),
    file: Option<&TimelineFile>,
    place: &StateDirId,
) -> Continuity {
    let Some(file) = file else {
        return match database {
            Timeline { copied: true, .. } => Continuity::Other("it was made from a backup or an export"),
            Timeline { id: Some(_), .. } => Continuity::Other("it is a copy of another pool's database"),
            Timeline { id: None, .. } => Continuity::First,
        };
    };
    match database {
        Timeline { copied: true, .. } => Continuity::Other("it was made from a backup or an export"),
        Timeline { id, .. } if id.is_some_and(|id| id != file.id) => {
            Continuity::Other("its database is another pool's")
        }
        Timeline { id: None, .. } if file.committed > 0 => Continuity::Missing,
        // The epoch in the file may be ahead by any number: each start may have crashed between writing the file and
        // its commit.
        _ if epoch < file.committed => Continuity::Other("its database is older than its last start"),
        _ if file.ended_at.is_some_and(|ended| seq < ended) => {
            Continuity::Other("its database is older than its last end")
        }
        _ if !file.place.is_same(place) => Continuity::Other("its state directory is a copy"),
        _ => Continuity::Same,
    }
}

/// The timeline with which a start continues.
pub(crate) struct TimelineStart {
    pub(crate) continuity: Continuity,
    pub(crate) file: TimelineFile,
    /// Number of the event before the first one of this start.
    pub(crate) seq: u64,
}

/// Checks the database, and records the numbers of this start in the file before they are used. A file that exists and
/// cannot be read is an error: taken as missing, it would make the pool believe to be a copy.
///
/// # Errors
/// The state directory, or the file in it, cannot be read or written.
pub(crate) fn start(
    paths: &Paths,
    pool: &Pool,
    (database, boot): (Timeline, &str),
    random: &dyn Random,
) -> Result<TimelineStart, DaemonError> {
    let failed = |error| DaemonError::io(&paths.state, error);
    let file = read(&paths.state)?;
    let place = StateDirId::read(&paths.state, boot).map_err(failed)?;
    let (epoch, seq) = (pool.epoch().0, pool.seq().0);
    let continuity = check(database, (epoch, seq), file.as_ref(), &place);
    let highest = file.as_ref().map_or(epoch, |file| file.epoch.max(epoch));
    let reserved = file.as_ref().map_or(0, |file| file.sessions);
    let seen = highest_session(paths) + 1;
    let random = random_number(random).map_err(failed)?;
    let (id, epoch, seq, next) = match continuity {
        Continuity::Missing | Continuity::Other(_) => {
            let next = pool.next_session().max(reserved).max(seen);
            let given_out = file.as_ref().map_or(0, |file| file.events);
            (random, highest + 1 + random % EPOCH_STEP_MAX, seq.max(given_out), next)
        }
        Continuity::Same | Continuity::First => {
            let id = database.id.or(file.as_ref().map(|file| file.id)).unwrap_or(random);
            (id, highest + 1, seq, pool.next_session().max(seen))
        }
    };
    let (sessions, events) = (next + SESSION_RESERVE, seq + EVENT_RESERVE);
    let committed = file.as_ref().map_or(0, |file| file.committed);
    let is_same = continuity == Continuity::Same;
    let ended_at = file.filter(|_| is_same).and_then(|file| file.ended_at);
    let file = TimelineFile { id, epoch, committed, ended_at, sessions, events, place };
    write(&paths.state, &file)?;
    Ok(TimelineStart { continuity, file, seq })
}

impl TimelineFile {
    /// Returns the epoch of this start.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the number of the timeline.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Returns the minimum id of the next session.
    pub(crate) fn next_session(&self) -> u64 {
        self.sessions.saturating_sub(SESSION_RESERVE)
    }
}

/// Records that the start is committed to the database. Returns what the file says then, from which it is written anew
/// if somebody removes it: without it, the next start would take the database for a copy.
pub(crate) fn mark_started(paths: &Paths, file: &TimelineFile) -> Result<TimelineFile, DaemonError> {
    let started = TimelineFile { committed: file.epoch, ended_at: None, ..file.clone() };
    write(&paths.state, &started)?;
    Ok(started)
}

/// The numbers that are given out: the next session id, and the last event number.
pub(crate) type GivenOut = (u64, u64);

/// Records that the daemon, which `started` so, ended cleanly after these numbers. Errors are only logged.
pub(crate) fn mark_ended(state: &Path, started: &TimelineFile, given_out: GivenOut) {
    let ended = read(state).and_then(|file| {
        let file = with_reserves(file, started, given_out);
        write(state, &TimelineFile { ended_at: Some(given_out.1), ..file })
    });
    if let Err(error) = ended {
        tracing::warn!(%error, "the clean end of the pool is not recorded");
    }
}

/// Reserves more numbers once half of a reserve is used, or the file of a daemon that `started` so is gone. Errors are
/// only logged.
pub(crate) fn reserve_ids(state: &Path, started: &TimelineFile, given_out: GivenOut) {
    let reserved = read(state).and_then(|file| {
        let wanted = with_reserves(file.clone(), started, given_out);
        if file.as_ref() == Some(&wanted) { Ok(()) } else { write(state, &wanted) }
    });
    if let Err(error) = reserved {
        tracing::warn!(%error, "the reserved numbers are not recorded");
    }
}

/// Returns what the file says, or, if it is gone, what it said when the daemon `started`, with at least half of each
/// reserve above the numbers that are given out.
fn with_reserves(file: Option<TimelineFile>, started: &TimelineFile, (next, seq): GivenOut) -> TimelineFile {
    let is_enough = |file: &TimelineFile| {
        next + SESSION_RESERVE / 2 <= file.sessions && seq + EVENT_RESERVE / 2 <= file.events
    };
    let (sessions, events) = (next + SESSION_RESERVE, seq + EVENT_RESERVE);
    match file {
        Some(file) if is_enough(&file) => file,
        file => TimelineFile { sessions, events, ..file.unwrap_or_else(|| started.clone()) },
    }
}

/// Reads the file; `None` if there is none.
fn read(state: &Path) -> Result<Option<TimelineFile>, DaemonError> {
    let path = state.join(NAME);
    let parse = |text: Vec<u8>| serde_json::from_slice(&text).map_err(std::io::Error::from);
    let file = two_slot_file::read(&path).and_then(|text| text.map(parse).transpose());
    file.map_err(|error| {
        let path = path.display();
        DaemonError::Other(format!(
            "{path}: {error}; if this cannot be mended, remove the file: the pool then takes its database for a copy, \
             and what runs is lost to it"
        ))
    })
}

/// Writes the file. It reaches the disk before any number in it is used.
fn write(state: &Path, file: &TimelineFile) -> Result<(), DaemonError> {
    let path = state.join(NAME);
    let text = serde_json::to_vec(file).map_err(std::io::Error::from);
    text.and_then(|text| two_slot_file::write(&path, &text)).map_err(|error| DaemonError::io(&path, error))
}

fn random_number(random: &dyn Random) -> std::io::Result<u64> {
    let tag = random.tag()?;
    Ok(u64::from_le_bytes(tag.0[..8].try_into().unwrap_or_default()) >> 1)
}

/// Returns the highest session id that has a directory or an archive.
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

/// Returns the events that start a new timeline: all sessions without their incarnations, which belong to
/// another pool, and none that would start by itself; messages in flight without their workers.
pub(crate) fn fork_events(pool: &Pool, paths: &Paths, database: Timeline, now: Timestamp) -> Vec<Event> {
    let origin = if database.imported { Origin::Imported } else { Origin::Restored };
    let forked = pool.sessions().map(|session| without_incarnation(session, paths, origin));
    let mut events = vec![Event::TmuxServerChanged { server: None }];
    events.extend(forked.map(|session| Event::SessionCreated(Box::new(session))));
    events.extend(pool::queue::forget_workers(pool, now));
    events
}

/// Returns a session without its incarnation, below this state directory.
fn without_incarnation(session: &Session, paths: &Paths, origin: Origin) -> Session {
    let mut session = session.clone();
    if session.lifecycle.holds_slot() || pool::session::is_restarting(&session) {
        (session.lifecycle, session.reason, session.exit) =
            (Lifecycle::Lost, Some(Reason::DatabaseReplaced), None);
    }
    rebase(&mut session, paths);
    // Otherwise the copy would start what the original runs: by restart policy, or for a queued prompt.
    let by_itself = session.policy.restart != RestartPolicy::No || session.lifecycle == Lifecycle::Parked;
    session.budget = Budget { exhausted: by_itself, ..Budget::default() };
    let drain_deadline = None;
    Session {
        incarnation: None,
        lock: None,
        drain_deadline,
        origin,
        attached_clients: 0,
        current_command: None,
        ..session
    }
}

/// Sets a session's directory to the one below this state directory.
fn rebase(session: &mut Session, paths: &Paths) {
    let dir = paths.session(session.id);
    let inside = session.spec.cwd.as_path().strip_prefix(session.dir.as_path()).ok();
    if let Some(cwd) = inside.map(|inside| dir.join(inside)) {
        session.spec.cwd = cwd.into();
    }
    session.dir = dir.into();
}

/// Returns the events that update the directories of sessions after the state directory was moved.
pub(crate) fn relocation_events(pool: &Pool, paths: &Paths) -> Vec<Event> {
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

    fn place(inode: u64) -> StateDirId {
        StateDirId { path: "/state".into(), boot: "b".to_owned(), device: 1, inode }
    }

    fn file() -> TimelineFile {
        TimelineFile {
            id: 7,
            epoch: 5,
            committed: 5,
            ended_at: Some(100),
            sessions: 1010,
            events: 1_000_100,
            place: place(3),
        }
    }

    #[test]
    fn only_the_database_of_its_file_continues_the_timeline() {
        let mine = Timeline { id: Some(7), copied: false, imported: false };
        let same = |database, at, file: Option<TimelineFile>, place| {
            check(database, at, file.as_ref(), &place) == Continuity::Same
        };
        assert!(same(mine, (5, 100), Some(file()), place(3)));
        assert!(
            same(mine, (5, 90), Some(TimelineFile { ended_at: None, ..file() }), place(3)),
            "it was killed"
        );
        for epoch in [6, 7, 8] {
            let cut_off = TimelineFile { epoch, ..file() };
            let why = "starts that ended between file and database, in a row";
            assert!(same(mine, (5, 100), Some(cut_off), place(3)), "{why}");
        }
        let moved = StateDirId { path: "/moved".into(), ..place(3) };
        assert!(same(mine, (5, 100), Some(file()), moved), "a directory that was moved");
        let rebooted = StateDirId { boot: "c".to_owned(), device: 9, ..place(3) };
        assert!(same(mine, (5, 100), Some(file()), rebooted));
        let remounted = |device| same(mine, (5, 100), Some(file()), StateDirId { device, ..place(3) });
        assert!(remounted(2), "its file system was mounted again");
        // A disk partition, 8:1.
        assert_eq!(remounted(0x801), !cfg!(target_os = "linux"));

        assert!(!same(Timeline { copied: true, ..mine }, (5, 100), Some(file()), place(3)), "a backup");
        assert!(!same(mine, (5, 100), None, place(3)), "a database that was copied without its file");
        assert!(!same(Timeline { id: Some(8), ..mine }, (5, 100), Some(file()), place(3)));
        assert!(!same(Timeline { id: None, ..mine }, (0, 0), Some(file()), place(3)), "a fresh one");
        assert!(!same(mine, (4, 100), Some(file()), place(3)), "one of before the last start");
        assert!(!same(mine, (5, 99), Some(file()), place(3)), "one of before the last end");
        assert!(!same(mine, (5, 100), Some(file()), place(4)), "a copy of the whole directory");
        assert_eq!(check(Timeline::default(), (5, 100), None, &place(3)), Continuity::First, "an upgrade");
    }

    #[test]
    fn a_file_of_a_build_without_the_committed_epoch_continues_the_timeline() {
        let state = tempfile::tempdir().unwrap();
        let mut older = serde_json::to_value(file()).unwrap();
        assert!(older.as_object_mut().unwrap().remove("committed").is_some());
        std::fs::write(state.path().join(NAME), older.to_string()).unwrap();
        let read = read(state.path()).unwrap().unwrap();
        assert_eq!(read, TimelineFile { committed: 0, ..file() });
        let mine = Timeline { id: Some(7), copied: false, imported: false };
        assert_eq!(check(mine, (5, 100), Some(&read), &place(3)), Continuity::Same);
        assert_ne!(check(mine, (5, 99), Some(&read), &place(3)), Continuity::Same, "older than its last end");
    }

    #[test]
    fn a_file_that_is_gone_is_written_again() {
        let state = tempfile::tempdir().unwrap();
        let started = TimelineFile { ended_at: None, ..file() };
        reserve_ids(state.path(), &started, (20, 200));
        let (sessions, events) = (20 + SESSION_RESERVE, 200 + EVENT_RESERVE);
        let reserved = TimelineFile { sessions, events, ..started.clone() };
        assert_eq!(read(state.path()).unwrap(), Some(reserved));
        // Gone at the end, after more sessions than were reserved at the start.
        let state = tempfile::tempdir().unwrap();
        mark_ended(state.path(), &started, (5000, 200));
        let sessions = 5000 + SESSION_RESERVE;
        let ended = TimelineFile { sessions, events, ended_at: Some(200), ..started };
        assert_eq!(read(state.path()).unwrap(), Some(ended));
    }
}
