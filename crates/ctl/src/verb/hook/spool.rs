//! Reports that `poold` reads later: one file each in the session's directory, named so that their order is that of
//! their times, and no more of them than it can take in at once.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use protocol::hook::{Hook, SPOOL_VERSION, Signal, Spooled};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The most files; one more makes room first.
const FILES_MAX: usize = 1000;
/// How many are removed then, so that most reports find room as it is.
const ROOM: usize = 100;
/// Signals that only say that the agent works.
const LIGHT: [&str; 2] = ["working", "tool_used"];

/// Leaves a report. Nobody waits for an answer to it any more.
///
/// # Errors
/// There is no such place, or it cannot be written.
pub(super) fn leave(dir: Option<&Path>, mut hook: Hook) -> io::Result<()> {
    let dir = dir
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no place to leave a report (POOL_HOOKS)"))?;
    if let Signal::Permission { wait_ms, .. } = &mut hook.signal {
        *wait_ms = 0;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => make_room(dir)?,
    }
    let name = format!("{:016}-{:016x}.json", hook.at.0, hook.id);
    let fresh = dir.join(format!(".{name}"));
    let json = serde_json::to_vec(&Spooled { version: SPOOL_VERSION, hook })?;
    let written = create(&fresh)
        .and_then(|mut file| file.write_all(&json))
        .and_then(|()| fs::rename(&fresh, dir.join(name)));
    if written.is_err() {
        // What is half written is of no use to anybody.
        drop(fs::remove_file(&fresh));
    }
    written
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Removes the oldest where there are too many: those first that only say that the agent works, and those that
/// were never finished.
fn make_room(dir: &Path) -> io::Result<()> {
    let mut files =
        fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
    if files.len() < FILES_MAX {
        return Ok(());
    }
    let excess = files.len() - FILES_MAX + ROOM;
    files.sort_by_cached_key(|path| (!is_light(path), stamp(path)));
    for path in files.iter().take(excess) {
        // Another hook, or poold itself, may have been faster.
        drop(fs::remove_file(path));
    }
    Ok(())
}

/// The name without the dot of a file that is being written.
fn stamp(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.trim_start_matches('.').to_owned()
}

/// A file as far as it tells how much its loss matters.
#[derive(Deserialize)]
struct Glance {
    hook: Said,
}

#[derive(Deserialize)]
struct Said {
    signal: Word,
}

/// A signal as JSON: a word, or an object with the word as its only key.
#[derive(Deserialize)]
#[serde(untagged)]
enum Word {
    Alone(String),
    With(BTreeMap<String, IgnoredAny>),
}

/// Whether its loss matters least; what cannot be read says nothing.
fn is_light(path: &Path) -> bool {
    let glance = fs::read(path).ok().and_then(|json| serde_json::from_slice::<Glance>(&json).ok());
    glance.is_none_or(|glance| match glance.hook.signal {
        Word::Alone(word) => LIGHT.contains(&word.as_str()),
        Word::With(object) => object.keys().any(|word| LIGHT.contains(&word.as_str())),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use protocol::hook::ToolUse;
    use protocol::{SessionId, Tag, Timestamp};

    use super::*;

    fn hook(at: u64, signal: Signal) -> Hook {
        Hook {
            session: SessionId(1),
            tag: Tag([7; 16]),
            id: 0xab,
            at: Timestamp(at),
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

    fn working() -> Signal {
        Signal::Working { what: None, skill: None }
    }

    fn used() -> Signal {
        let text = String::new;
        let used =
            ToolUse { id: None, tool: text(), input: text(), response: text(), failed: false, cwd: None };
        Signal::ToolUsed(Box::new(used))
    }

    #[test]
    fn a_report_is_a_file_of_its_own_that_only_we_read() {
        let state = tempfile::tempdir().unwrap();
        let dir = state.path().join("hooks");
        let asked = Signal::Permission { tool: "Bash".into(), text: "ls".into(), wait_ms: 60_000 };
        leave(Some(&dir), hook(1_700_000_000_000, asked)).unwrap();
        assert_eq!(names(&dir), ["0001700000000000-00000000000000ab.json"]);
        let file = dir.join("0001700000000000-00000000000000ab.json");
        let spooled: Spooled = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert_eq!(spooled.version, SPOOL_VERSION);
        assert_eq!(
            spooled.hook.signal,
            Signal::Permission { tool: "Bash".into(), text: "ls".into(), wait_ms: 0 }
        );
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&file)), (0o700, 0o600));
    }

    #[test]
    fn there_is_a_place_for_it_only_in_a_directory_that_exists() {
        let state = tempfile::tempdir().unwrap();
        assert!(leave(Some(&state.path().join("gone/hooks")), hook(1, Signal::Interrupted)).is_err());
        assert!(leave(None, hook(1, Signal::Interrupted)).is_err());
        assert_eq!(names(state.path()), [""; 0]);
    }

    #[test]
    fn what_only_says_that_it_works_makes_room() {
        let state = tempfile::tempdir().unwrap();
        let dir = state.path();
        for at in 0..FILES_MAX as u64 {
            let signal = match at {
                200..230 => working(),
                230..250 => used(),
                _ => Signal::Interrupted,
            };
            let json =
                serde_json::to_vec(&Spooled { version: SPOOL_VERSION, hook: hook(at, signal) }).unwrap();
            fs::write(dir.join(format!("{at:016}-ab.json")), json).unwrap();
        }
        leave(Some(dir), hook(5000, Signal::Interrupted)).unwrap();
        let left: Vec<u64> = names(dir).iter().map(|name| name[..16].parse().unwrap()).collect();
        // The fifty that say little, then the fifty oldest of the rest.
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
        make_room(dir).unwrap();
        let left = names(dir);
        assert_eq!((left.len(), left[0].as_str()), (FILES_MAX - ROOM, "0000000000000099-ab.json"));
    }
}
