//! Reports that `poold` reads later: a file each in the session's directory, in the order of their writing by
//! name, and at most as many as `poold` can process at once.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use protocol::Timestamp;
use protocol::hook::{Hook, HookEvent, SPOOL_VERSION, SpooledHook};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::atomic_file;

/// Maximal number of files; before one more, old ones are removed.
const FILES_MAX: usize = 1000;
/// Number of files that are removed then, so that most reports need not remove any.
const REMOVED_AT_ONCE: usize = 100;
/// Limit of the times in names, which have 16 digits.
const TIME_MAX: u64 = 9_999_999_999_999_999;
/// Events that only say that the agent works.
const MINOR: [&str; 2] = ["working", "tool_used"];

/// Writes a report. A permission in it is not waited for any more.
pub(super) fn write(dir: Option<&Path>, mut hook: Hook) -> io::Result<()> {
    let dir = dir.ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, "no spool directory for the report (POOL_HOOKS is not set)")
    })?;
    if let HookEvent::Permission { wait_ms, .. } = &mut hook.signal {
        *wait_ms = 0;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let files = files(dir)?;
    hook.at = after_all(&files, hook.at);
    remove_excess(files);
    let name = format!("{:016}-{:016x}.json", hook.at.0, hook.id);
    let json = serde_json::to_vec(&SpooledHook { version: SPOOL_VERSION, hook })?;
    atomic_file::replace(&dir.join(name), 0o600, &json)
}

fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect()
}

/// Returns a time after those of all files, so that the order of reports survives a clock that is set back between two
/// of them.
fn after_all(files: &[PathBuf], at: Timestamp) -> Timestamp {
    let time = |path: &PathBuf| stamp(path).split('-').next()?.parse::<u64>().ok();
    let newest = files.iter().filter_map(time).filter(|time| *time < TIME_MAX).max();
    Timestamp(newest.map_or(at.0, |newest| at.0.max(newest + 1)))
}

/// Removes the oldest files if there are too many, first those of minor events and those that were never
/// finished.
fn remove_excess(mut files: Vec<PathBuf>) {
    if files.len() < FILES_MAX {
        return;
    }
    let excess = files.len() - FILES_MAX + REMOVED_AT_ONCE;
    files.sort_by_cached_key(|path| (!is_minor(path), stamp(path)));
    for path in files.iter().take(excess) {
        // Another hook, or poold itself, may have removed it already.
        drop(fs::remove_file(path));
    }
}

/// The name, without the dot in front of the name of a file that is being written.
fn stamp(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.trim_start_matches('.').to_owned()
}

/// The part of a file that names its event.
#[derive(Deserialize)]
struct SpooledEvent {
    hook: EventOnly,
}

#[derive(Deserialize)]
struct EventOnly {
    signal: EventName,
}

/// An event as JSON: its name, or an object with the name as its only key.
#[derive(Deserialize)]
#[serde(untagged)]
enum EventName {
    Alone(String),
    With(BTreeMap<String, IgnoredAny>),
}

/// True if the event is minor, or the file cannot be parsed.
fn is_minor(path: &Path) -> bool {
    let event = fs::read(path).ok().and_then(|json| serde_json::from_slice::<SpooledEvent>(&json).ok());
    event.is_none_or(|event| match event.hook.signal {
        EventName::Alone(word) => MINOR.contains(&word.as_str()),
        EventName::With(object) => object.keys().any(|word| MINOR.contains(&word.as_str())),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use protocol::hook::ToolUse;
    use protocol::{SessionId, Tag};

    use super::*;

    fn hook(at: u64, signal: HookEvent) -> Hook {
        Hook {
            session: SessionId(1),
            tag: Tag([7; 16]),
            id: 0xab,
            at: Timestamp(at),
            awake: None,
            agent: "claude".into(),
            conversation: None,
            transcript: None,
            signal,
        }
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn working() -> HookEvent {
        HookEvent::Working { what: None, skill: None }
    }

    fn used() -> HookEvent {
        let text = String::new;
        let used =
            ToolUse { id: None, tool: text(), input: text(), response: text(), failed: false, cwd: None };
        HookEvent::ToolUsed(Box::new(used))
    }

    #[test]
    fn a_report_is_a_file_of_its_own_that_only_we_read() {
        let state = tempfile::tempdir().unwrap();
        let dir = state.path().join("hooks");
        let asked = HookEvent::Permission { tool: "Bash".into(), text: "ls".into(), wait_ms: 60_000 };
        write(Some(&dir), hook(1_700_000_000_000, asked)).unwrap();
        assert_eq!(names(&dir), ["0001700000000000-00000000000000ab.json"]);
        let file = dir.join("0001700000000000-00000000000000ab.json");
        let spooled: SpooledHook = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert_eq!(spooled.version, SPOOL_VERSION);
        assert_eq!(
            spooled.hook.signal,
            HookEvent::Permission { tool: "Bash".into(), text: "ls".into(), wait_ms: 0 }
        );
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&file)), (0o700, 0o600));
    }

    #[test]
    fn there_is_a_place_for_it_only_in_a_directory_that_exists() {
        let state = tempfile::tempdir().unwrap();
        assert!(write(Some(&state.path().join("gone/hooks")), hook(1, HookEvent::Interrupted)).is_err());
        assert!(write(None, hook(1, HookEvent::Interrupted)).is_err());
        assert_eq!(names(state.path()), [""; 0]);
    }

    #[test]
    fn reports_stay_in_order_when_the_clock_is_set_back() {
        let state = tempfile::tempdir().unwrap();
        for (at, signal) in [(5000, working()), (1000, HookEvent::Interrupted), (9000, working())] {
            write(Some(state.path()), hook(at, signal)).unwrap();
        }
        let times = [5000, 5001, 9000].map(|at: u64| format!("{at:016}-00000000000000ab.json"));
        assert_eq!(names(state.path()), times);
        let file = fs::read(state.path().join(&times[1])).unwrap();
        let second: SpooledHook = serde_json::from_slice(&file).unwrap();
        assert_eq!((second.hook.at, second.hook.signal), (Timestamp(5001), HookEvent::Interrupted));
    }

    #[test]
    fn the_oldest_minor_events_are_removed_first() {
        let state = tempfile::tempdir().unwrap();
        let dir = state.path();
        for at in 0..FILES_MAX as u64 {
            let signal = match at {
                200..230 => working(),
                230..250 => used(),
                _ => HookEvent::Interrupted,
            };
            let json =
                serde_json::to_vec(&SpooledHook { version: SPOOL_VERSION, hook: hook(at, signal) }).unwrap();
            fs::write(dir.join(format!("{at:016}-ab.json")), json).unwrap();
        }
        write(Some(dir), hook(5000, HookEvent::Interrupted)).unwrap();
        let left: Vec<u64> = names(dir).iter().map(|name| name[..16].parse().unwrap()).collect();
        // Removed: the fifty minor ones, then the fifty oldest of the rest.
        let expected: Vec<u64> = (50..200).chain(250..FILES_MAX as u64).chain([5000]).collect();
        assert_eq!(left, expected);
    }

    #[test]
    fn what_was_never_finished_goes_first() {
        let state = tempfile::tempdir().unwrap();
        let dir = state.path();
        for at in 0..FILES_MAX as u64 {
            let (dot, json) = if at == 999 {
                (".", &b"{\"ver"[..])
            } else {
                ("", &b"{\"hook\":{\"signal\":\"interrupted\"}}"[..])
            };
            fs::write(dir.join(format!("{dot}{at:016}-ab.json")), json).unwrap();
        }
        remove_excess(files(dir).unwrap());
        let left = names(dir);
        assert_eq!((left.len(), left[0].as_str()), (FILES_MAX - REMOVED_AT_ONCE, "0000000000000099-ab.json"));
    }
}
