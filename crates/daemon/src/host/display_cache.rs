//! A cache of what listings show of many sessions and has to be read from files: the ends of their logs, and the
//! colours of their repositories. It is kept between requests, and a file is read again only if it may have changed. A
//! file system that does not answer holds up the thread that reads it, and no other.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::SessionId;
use protocol::logs::CURRENT;
use protocol::reply::{REPLAY_CHARS, Theme};

use crate::host::theme;

/// Time after which the colours of a directory are read again.
const THEME_AGE_MAX: Duration = Duration::from_secs(60);

/// Number of sessions and of directories above which all are forgotten: most are gone.
const ENTRIES_MAX: usize = 10_000;

/// A session's log, and the rows and columns of its terminal.
pub(crate) struct LogOf {
    pub(crate) session: SessionId,
    pub(crate) dir: PathBuf,
    pub(crate) size: (u16, u16),
}

/// The version of a log's end as text: the inode and the length of the newest file, and the size of the terminal.
type LogState = (Option<(u64, u64)>, (u16, u16));

/// The colours of a directory, and when their last read began.
struct CachedTheme {
    theme: Option<Theme>,
    began: Duration,
    is_being_read: bool,
}

/// The texts and colours last read.
#[derive(Default)]
pub(crate) struct DisplayCache {
    replays: Mutex<BTreeMap<SessionId, (LogState, String)>>,
    themes: Mutex<BTreeMap<PathBuf, CachedTheme>>,
}

impl DisplayCache {
    /// Reads the ends of those logs that have changed. Blocks.
    pub(crate) fn read_replays(&self, logs: &[LogOf]) {
        for LogOf { session, dir, size } in logs {
            let file = std::fs::metadata(dir.join(CURRENT)).ok().map(|meta| (meta.ino(), meta.len()));
            let state = (file, *size);
            if lock(&self.replays).get(session).is_some_and(|(known, _)| *known == state) {
                continue;
            }
            // A log that cannot be read is tried again next time.
            let Ok(text) = logs::replay(dir, *size, REPLAY_CHARS) else { continue };
            let mut replays = lock(&self.replays);
            bound(&mut replays);
            replays.insert(*session, (state, text));
        }
    }

    /// Returns the end of a session's log, as last read.
    pub(crate) fn replay(&self, session: SessionId) -> Option<String> {
        lock(&self.replays).get(&session).map(|(_, text)| text.clone())
    }

    /// Reads the colours of those directories that were not read for a while. Blocks.
    pub(crate) fn read_themes(&self, dirs: &[PathBuf], now: Duration) {
        for dir in dirs.iter().filter(|dir| self.begin_theme(dir, now)) {
            let theme = theme::of(dir);
            let read = CachedTheme { theme: Some(theme), began: now, is_being_read: false };
            lock(&self.themes).insert(dir.clone(), read);
        }
    }

    /// Returns true if the colours of a directory are to be read by the caller.
    fn begin_theme(&self, dir: &Path, now: Duration) -> bool {
        let mut themes = lock(&self.themes);
        bound(&mut themes);
        let none = || CachedTheme { theme: None, began: Duration::ZERO, is_being_read: false };
        let known = themes.entry(dir.to_owned()).or_insert_with(none);
        let fresh = known.theme.is_some() && now.saturating_sub(known.began) < THEME_AGE_MAX;
        !fresh && !std::mem::replace(&mut known.is_being_read, true)
    }

    /// Returns the colours of the repository of a directory, as last read.
    pub(crate) fn theme(&self, dir: &Path) -> Option<Theme> {
        lock(&self.themes).get(dir)?.theme.clone()
    }
}

fn bound<K: Ord, V>(entries: &mut BTreeMap<K, V>) {
    if entries.len() >= ENTRIES_MAX {
        entries.clear();
    }
}

fn lock<T>(entries: &Mutex<T>) -> MutexGuard<'_, T> {
    entries.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const COLOURS: &str =
        r##"{"palette":{"body":"#111111","outline":"#222222","accent":"#333333","shirt":"#444444"}}"##;

    #[test]
    fn a_log_is_read_again_once_it_has_changed() {
        let (dir, cache) = (tempfile::tempdir().unwrap(), DisplayCache::default());
        let read = |size| {
            cache.read_replays(&[LogOf { session: SessionId(1), dir: dir.path().to_owned(), size }]);
            cache.replay(SessionId(1)).unwrap()
        };
        assert_eq!(cache.replay(SessionId(1)), None);
        assert_eq!(read((24, 80)), "");
        fs::write(dir.path().join(CURRENT), "one\r\n").unwrap();
        assert_eq!(read((24, 80)), "one\n");
        // The file is the same and as long as before, so it is not read again: the cached text is shown.
        fs::write(dir.path().join(CURRENT), "two\r\n").unwrap();
        assert_eq!(read((24, 80)), "one\n");
        assert_eq!(read((24, 81)), "two\n");
    }

    #[test]
    fn colours_are_read_once_a_minute_and_by_one_thread() {
        let (dir, cache) = (tempfile::tempdir().unwrap(), DisplayCache::default());
        let path = dir.path().to_owned();
        let read = |seconds| {
            cache.read_themes(std::slice::from_ref(&path), Duration::from_secs(seconds));
            cache.theme(&path).unwrap().own
        };
        assert!(!read(1));
        fs::create_dir(path.join(".swimmers")).unwrap();
        fs::write(path.join(".swimmers/colors.json"), COLOURS).unwrap();
        assert!(!read(60));
        assert!(read(62));
        assert!(cache.begin_theme(&path, Duration::from_secs(1000)), "its time is over");
        assert!(!cache.begin_theme(&path, Duration::from_secs(2000)), "somebody reads it");
    }
}
