//! Removes session directories. It works by descriptors alone, so that nothing outside can be removed,
//! whatever a program left there.

use std::ffi::{CStr, CString};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use nix::sys::stat::{FchmodatFlags, Mode, fchmod, fchmodat, fstat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use protocol::SessionId;

use crate::host::dir_tree::{Dir, FileKind, Walk, allocated, kind, name_path, present, shown};

/// The pool's own directories in a session's directory, beside `work/`.
const POOL_DIRS: [&CStr; 3] = [c"tmp", c"logs", c"hooks"];
const WORK: &CStr = c"work";

/// The result of a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Removed {
    /// Bytes freed on disk.
    pub(crate) bytes: u64,
}

/// A directory of a session that has no record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnrecordedDir {
    pub(crate) id: SessionId,
    pub(crate) path: PathBuf,
    /// True if it holds work or anything else that only a purge removes, or cannot be read.
    pub(crate) needs_purge: bool,
}

/// Removes a deleted session's directory. Unless `purge` is set, `work/` and everything that the pool did not
/// create stay, except an empty `work/`. A missing directory is no error.
///
/// # Errors
///
/// The first entry that could not be removed, with its path and the number of further failures.
pub(crate) fn remove_session_dir(sessions: &Path, id: SessionId, purge: bool) -> io::Result<Removed> {
    remove(sessions, id, if purge { Extent::All } else { Extent::Unused }, &mut |_| ())
}

/// Removes the pool's own files from a session's directory, in which another session works.
///
/// # Errors
/// As [`remove_session_dir`].
pub(crate) fn remove_pool_files(sessions: &Path, id: SessionId) -> io::Result<Removed> {
    remove(sessions, id, Extent::PoolFiles, &mut |_| ())
}

/// The extent of the removal of a session's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Everything.
    All,
    /// The pool's own files, and an empty `work/`.
    Unused,
    /// The pool's own files.
    PoolFiles,
}

fn remove(
    sessions: &Path,
    id: SessionId,
    extent: Extent,
    after_pass: &mut dyn FnMut(&Walk),
) -> io::Result<Removed> {
    let path = sessions.join(id.to_string());
    let name = c_name(id)?;
    let named = |error| named(&path, &error);
    let Some(top) = present(Dir::open(sessions)).map_err(named)? else { return Ok(Removed::default()) };
    let Some(dir) = present(open_to_empty(&top, &name)).map_err(named)? else {
        return Ok(Removed::default());
    };
    let mut removal = Removal { bytes: 0, first: None, failures: 0, after_pass };
    if extent == Extent::All {
        removal.tree(&top, sessions, &name);
    } else {
        for part in POOL_DIRS {
            removal.tree(&dir, &path, part);
        }
    }
    if extent == Extent::Unused {
        removal.if_empty(&dir, &path, WORK);
        removal.if_empty(&top, sessions, &name);
    }
    match removal.first {
        None => Ok(Removed { bytes: removal.bytes }),
        Some(error) if removal.failures == 1 => Err(error),
        Some(error) => {
            Err(io::Error::new(error.kind(), format!("{error}, and {} more", removal.failures - 1)))
        }
    }
}

/// Returns the session directories that `keep` does not know. `keep` is asked after a directory was found, so
/// a record that is created before its directory is never missed.
pub(crate) fn unrecorded_dirs(
    sessions: &Path,
    keep: &dyn Fn(SessionId) -> bool,
) -> io::Result<Vec<UnrecordedDir>> {
    let Some(top) = present(Dir::open(sessions)).map_err(|error| named(sessions, &error))? else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for name in top.names()? {
        let name = name?;
        let Some(id) = name.to_str().ok().and_then(|name| name.parse().ok()) else { continue };
        let needs_purge = match top.open_dir(&name) {
            Ok(dir) => holds_work(&dir).unwrap_or(true),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
            Err(_) => true,
        };
        if !keep(id) {
            found.push(UnrecordedDir { id, path: sessions.join(id.to_string()), needs_purge });
        }
    }
    found.sort_by_key(|leftover| leftover.id);
    Ok(found)
}

/// True if a directory holds something that only a purge removes.
fn holds_work(dir: &Dir) -> io::Result<bool> {
    for name in dir.names()? {
        let name = name?;
        let more = if name.as_c_str() == WORK {
            dir.open_dir(WORK)?.names()?.next().is_some()
        } else {
            !POOL_DIRS.contains(&name.as_c_str())
        };
        if more {
            return Ok(true);
        }
    }
    Ok(false)
}

fn c_name(id: SessionId) -> io::Result<CString> {
    Ok(CString::new(id.to_string())?)
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", shown(path)))
}

/// Opens a directory that is to be emptied, and grants its owner, this user, the permissions needed.
fn open_to_empty(from: &Dir, name: &CStr) -> io::Result<Dir> {
    let all = Mode::S_IRWXU;
    let folder = match from.open_dir(name) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied && same_device(from, name)? => {
            // Only the owner of the directory may change its mode. If a link has taken its place, nothing that the link
            // names is changed.
            fchmodat(from, name, all, FchmodatFlags::NoFollowSymlink)?;
            from.open_dir(name)?
        }
        other => other?,
    };
    if !Mode::from_bits_truncate(fstat(&folder)?.st_mode).contains(all) {
        // If this fails, the removal of its entries fails and is reported.
        _ = fchmod(&folder, all);
    }
    Ok(folder)
}

fn same_device(from: &Dir, name: &CStr) -> io::Result<bool> {
    Ok(from.stat(name)?.st_dev == fstat(from)?.st_dev)
}

/// Subdirectories of one directory remembered at a time.
const BATCH: usize = 256;

/// Maximum passes over a directory into which another process keeps writing.
const PASSES_MAX: u8 = 8;

/// A directory that is being emptied.
#[derive(Default)]
struct Level {
    /// Its subdirectories that are removed next.
    dirs: Vec<CString>,
    /// Passes that reached the end of the directory.
    passes: u8,
    /// True if an entry could not be removed.
    failed: bool,
}

/// Notes that an entry of the innermost directory could not be removed.
fn mark_failed(levels: &mut [Level]) {
    if let Some(level) = levels.last_mut() {
        level.failed = true;
    }
}

struct Removal<'a> {
    bytes: u64,
    first: Option<io::Error>,
    failures: u64,
    /// Called after each pass over a directory.
    after_pass: &'a mut dyn FnMut(&Walk),
}

impl Removal<'_> {
    /// Removes an entry of a directory, with everything below it.
    fn tree(&mut self, from: &Dir, path: &Path, name: &CStr) {
        let mut walk = match from.try_clone() {
            Ok(from) => Walk::new(from, path.to_owned()),
            Err(error) => return self.fail(path, &error),
        };
        let mut top = Level::default();
        self.entry(&walk, name.to_owned(), &mut top);
        let mut levels = vec![top];
        while let Some(level) = levels.last_mut() {
            if let Some(name) = level.dirs.pop() {
                self.enter(&mut walk, &mut levels, name, 0);
            } else if !self.leave(&mut walk, &mut levels) {
                return;
            }
        }
    }

    /// Enters a directory and makes a pass over it.
    fn enter(&mut self, walk: &mut Walk, levels: &mut Vec<Level>, name: CString, passes: u8) {
        match present(open_to_empty(&walk.here, &name)) {
            Ok(None) => {}
            Ok(Some(dir)) => {
                walk.descend(name, dir);
                levels.push(self.pass(walk, passes));
            }
            Err(error) => {
                self.fail(&walk.path_of(&name), &error);
                mark_failed(levels);
            }
        }
    }

    /// Makes a pass over a directory: removes everything but subdirectories, which it remembers.
    fn pass(&mut self, walk: &Walk, passes: u8) -> Level {
        let mut level = Level { passes, ..Level::default() };
        let names = walk.here.names().map_err(|error| self.fail(&walk.path(), &error));
        let Ok(names) = names else { return Level { failed: true, ..level } };
        for name in names {
            match name {
                Ok(name) => self.entry(walk, name, &mut level),
                Err(error) => {
                    level.failed = true;
                    self.fail(&walk.path(), &error);
                    return level;
                }
            }
            if level.dirs.len() == BATCH {
                return level;
            }
        }
        level.passes += 1;
        (self.after_pass)(walk);
        level
    }

    /// Removes an entry, or remembers it if it is a directory.
    fn entry(&mut self, walk: &Walk, name: CString, level: &mut Level) {
        let removed = walk.here.stat(&name).and_then(|stat| {
            if kind(&stat) == FileKind::Dir {
                return Ok(true);
            }
            unlinkat(&walk.here, name.as_c_str(), UnlinkatFlags::NoRemoveDir)?;
            // Only the last of its names frees the space.
            self.bytes += if stat.st_nlink == 1 { allocated(&stat) } else { 0 };
            Ok(false)
        });
        match present(removed) {
            Ok(Some(true)) => level.dirs.push(name),
            Ok(_) => {}
            Err(error) => {
                level.failed = true;
                self.fail(&walk.path_of(&name), &error);
            }
        }
    }

    /// Leaves a directory and removes it if it is empty. False at the top, or if the walk cannot continue.
    fn leave(&mut self, walk: &mut Walk, levels: &mut Vec<Level>) -> bool {
        let Some(level) = levels.pop() else { return false };
        let name = match walk.ascend() {
            Ok(Some(name)) => name,
            Ok(None) => return false,
            Err(error) => {
                self.fail(&walk.path(), &error);
                return false;
            }
        };
        if level.failed {
            mark_failed(levels);
            return true;
        }
        match self.rmdir(&walk.here, &name) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty && level.passes < PASSES_MAX => {
                self.enter(walk, levels, name, level.passes);
            }
            Err(error) => {
                self.fail(&walk.path_of(&name), &error);
                mark_failed(levels);
            }
        }
        true
    }

    fn rmdir(&mut self, from: &Dir, name: &CStr) -> io::Result<()> {
        let bytes = from.stat(name).map_or(0, |stat| allocated(&stat));
        if present(unlinkat(from, name, UnlinkatFlags::RemoveDir).map_err(io::Error::from))?.is_some() {
            self.bytes += bytes;
        }
        Ok(())
    }

    /// Removes a directory if it is empty.
    fn if_empty(&mut self, from: &Dir, path: &Path, name: &CStr) {
        // POSIX allows EEXIST in place of ENOTEMPTY. A mount point is busy: it belongs to the user and stays.
        use ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotADirectory, ResourceBusy};
        let Err(error) = self.rmdir(from, name) else { return };
        if ![AlreadyExists, DirectoryNotEmpty, NotADirectory, ResourceBusy].contains(&error.kind()) {
            self.fail(&path.join(name_path(name)), &error);
        }
    }

    fn fail(&mut self, path: &Path, error: &io::Error) {
        self.failures += 1;
        self.first.get_or_insert_with(|| named(path, error));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::time::Duration;

    use tokio::time::Instant;

    use tempfile::TempDir;

    use super::*;
    use crate::host::archive::tests::{Mount, as_nobody, deep};
    use crate::host::disk_usage::disk_usage;

    const ID: SessionId = SessionId(5);

    /// A directory of sessions, one session in it, and a directory outside that must survive.
    fn dirs() -> (TempDir, PathBuf, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let [sessions, outside] = ["sessions", "outside"].map(|name| dir.path().join(name));
        let session = sessions.join("sess_5");
        for part in ["work", "logs", "tmp"] {
            fs::create_dir_all(session.join(part)).unwrap();
        }
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("precious"), "x").unwrap();
        (dir, sessions, session, outside)
    }

    fn names(error: &io::Error, path: &Path) {
        assert!(error.to_string().starts_with(&format!("{}: ", path.display())), "{error}");
    }

    #[test]
    fn work_stays_unless_purged_or_empty() {
        let (_dir, sessions, session, _) = dirs();
        for file in ["work/kept", "logs/output.log", "tmp/x", "hooks"] {
            fs::write(session.join(file), vec![1; 10_000]).unwrap();
        }
        let until = Instant::now() + Duration::from_secs(60);
        let before = disk_usage(&session, until).unwrap();
        let first = remove_session_dir(&sessions, ID, false).unwrap();
        let left: Vec<_> = fs::read_dir(&session).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["work"]);
        assert!(session.join("work/kept").exists());
        assert_eq!(first.bytes, before - disk_usage(&session, until).unwrap());
        let second = remove_session_dir(&sessions, ID, true).unwrap();
        assert!(!session.exists());
        assert_eq!(first.bytes + second.bytes, before, "the freed bytes are the used ones");
        assert_eq!(remove_session_dir(&sessions, ID, true).unwrap(), Removed::default());
        fs::create_dir_all(session.join("work")).unwrap();
        remove_session_dir(&sessions, ID, false).unwrap();
        assert!(!session.exists(), "an empty work/ is no work");
        assert_eq!(remove_session_dir(&sessions.join("none"), ID, true).unwrap(), Removed::default());
    }

    #[test]
    fn g11_what_links_point_to_stays() {
        for purge in [true, false] {
            let (_dir, sessions, session, outside) = dirs();
            fs::remove_dir(session.join("tmp")).unwrap();
            symlink(&outside, session.join("tmp")).unwrap();
            symlink("..", session.join("logs/up")).unwrap();
            symlink(outside.join("precious"), session.join("logs/file")).unwrap();
            symlink(&outside, session.join("hooks")).unwrap();
            symlink(&outside, session.join("work/dir")).unwrap();
            remove_session_dir(&sessions, ID, purge).unwrap();
            assert!(outside.join("precious").exists());
            assert_eq!(session.exists(), !purge);
        }
    }

    #[test]
    fn g11_a_link_in_place_of_the_directory_is_refused() {
        for purge in [true, false] {
            let (dir, sessions, session, outside) = dirs();
            fs::remove_dir_all(&session).unwrap();
            fs::create_dir(outside.join("logs")).unwrap();
            symlink(&outside, &session).unwrap();
            names(&remove_session_dir(&sessions, ID, purge).unwrap_err(), &session);
            assert!(
                session.is_symlink() && outside.join("precious").exists() && outside.join("logs").exists()
            );
            // The same for the directory of all sessions.
            let link = dir.path().join("link");
            symlink(&sessions, &link).unwrap();
            fs::remove_file(&session).unwrap();
            fs::create_dir_all(session.join("logs")).unwrap();
            remove_session_dir(&link, ID, purge).unwrap_err();
            assert!(session.join("logs").exists());
        }
    }

    #[test]
    fn mounts_stay_and_are_named() {
        let (_dir, sessions, session, outside) = dirs();
        let tmpfs = Mount::new(&session.join("logs/tmpfs"), "1m");
        // A bind mount is on the same device: only the mount point tells.
        let bound = Mount::bind(&outside, &session.join("work/bound"));
        let (Some(tmpfs), Some(bound)) = (tmpfs, bound) else { return };
        fs::write(tmpfs.path.join("file"), "x").unwrap();
        fs::write(session.join("logs/output.log"), "x").unwrap();
        let error = remove_session_dir(&sessions, ID, true).unwrap_err();
        assert!(
            error.to_string().contains("another file system") && error.to_string().ends_with("and 1 more"),
            "{error}"
        );
        assert!(bound.path.join("precious").exists() && tmpfs.path.join("file").exists());
        assert!(
            !session.join("logs/output.log").exists() && !session.join("tmp").exists(),
            "the rest is removed"
        );
        names(&remove_session_dir(&sessions, ID, false).unwrap_err(), &tmpfs.path);
        drop(tmpfs);
        remove_session_dir(&sessions, ID, false).unwrap();
        names(&remove_session_dir(&sessions, ID, true).unwrap_err(), &bound.path);
        drop(bound);
        remove_session_dir(&sessions, ID, true).unwrap();
        assert!(outside.join("precious").exists() && !session.exists());
        fs::create_dir_all(&session).unwrap();
        let Some(mount) = Mount::bind(&outside, &session) else { return };
        names(&remove_session_dir(&sessions, ID, true).unwrap_err(), &mount.path);
        assert!(outside.join("precious").exists());
    }

    #[test]
    fn directories_that_forbid_everything_go_too() {
        let (dir, sessions, session, outside) = dirs();
        let closed = session.join("work/closed");
        fs::create_dir_all(closed.join("inner")).unwrap();
        fs::write(closed.join("inner/file"), "x").unwrap();
        let forbidden =
            |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        as_nobody(dir.path(), || {
            let logs = session.join("logs");
            for (path, mode) in [
                (closed.join("inner"), 0o500),
                (closed, 0),
                (logs, 0),
                (session.clone(), 0),
                (outside.clone(), 0),
            ] {
                forbidden(&path, mode);
            }
            remove_session_dir(&sessions, ID, true).unwrap();
            assert!(!session.exists());
            assert_eq!(outside.metadata().unwrap().mode() & 0o777, 0);
        });
        // A directory of another user cannot be opened up.
        fs::create_dir_all(session.join("work/theirs")).unwrap();
        fs::write(session.join("work/theirs/file"), "x").unwrap();
        forbidden(&session.join("work/theirs"), 0);
        as_nobody(&session, || {
            std::os::unix::fs::chown(&session, None, None).unwrap();
        });
        std::os::unix::fs::chown(session.join("work/theirs"), Some(0), Some(0)).unwrap();
        as_nobody(&outside, || {
            names(&remove_session_dir(&sessions, ID, true).unwrap_err(), &session.join("work/theirs"));
        });
    }

    #[test]
    fn no_depth_and_no_width_is_too_much() {
        let (_dir, sessions, session, _) = dirs();
        // More levels than descriptors, as a rule, and a path longer than PATH_MAX.
        deep(&session.join("work"), "directory", 1100);
        let wide = session.join("tmp/wide");
        for n in 0..2 * BATCH + 1 {
            fs::create_dir_all(wide.join(n.to_string())).unwrap();
            fs::write(wide.join(format!("{n}/x")), "").unwrap();
        }
        remove_session_dir(&sessions, ID, true).unwrap();
        assert!(!session.exists());
    }

    #[test]
    fn names_of_any_bytes_go() {
        let (_dir, sessions, session, _) = dirs();
        // macOS has no names that are not UTF-8.
        let odd = if cfg!(target_os = "linux") { &b"\xff\xfe"[..] } else { b"odd" };
        for name in [odd, b"new\nline", b" ", b"-rf", b"...", b"*"] {
            let dir = session.join("tmp").join(std::ffi::OsStr::from_bytes(name));
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join(std::ffi::OsStr::from_bytes(name)), "").unwrap();
        }
        remove_session_dir(&sessions, ID, false).unwrap();
        assert!(!session.exists());
    }

    #[test]
    fn what_appears_meanwhile_goes_unless_it_never_ends() {
        let (_dir, sessions, session, _) = dirs();
        let mut count = 0;
        let mut add = |walk: &Walk| {
            let path = walk.path();
            if path.ends_with("logs/busy") {
                count += 1;
                if count < 4 {
                    fs::create_dir_all(path.join(format!("{count}/inner"))).unwrap();
                }
            }
        };
        fs::create_dir(session.join("logs/busy")).unwrap();
        remove(&sessions, ID, Extent::All, &mut add).unwrap();
        assert!(!session.exists() && count == 4);
        fs::create_dir_all(session.join("logs/busy")).unwrap();
        let mut for_ever = |walk: &Walk| {
            count += 1;
            fs::write(walk.path().join(count.to_string()), "").unwrap();
        };
        let error = remove(&sessions, ID, Extent::Unused, &mut for_ever).unwrap_err();
        names(&error, &session.join("logs/busy"));
        assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty);
    }

    #[test]
    fn a_directory_that_is_moved_away_meanwhile_leads_nowhere() {
        let (_dir, sessions, session, outside) = dirs();
        deep(&session.join("tmp"), "d", 50);
        // Deep enough that the way back is `..`, which leads to the precious file in the new place.
        let at: PathBuf = std::iter::repeat_n("d", 45).collect();
        let mut depth = 0;
        let mut moving = |_: &Walk| {
            depth += 1;
            if depth == 51 {
                fs::rename(session.join("tmp").join(&at), outside.join("moved")).unwrap();
            }
        };
        let error = remove(&sessions, ID, Extent::All, &mut moving).unwrap_err();
        assert!(error.to_string().contains("moved away meanwhile"), "{error}");
        assert!(outside.join("precious").exists());
        remove_session_dir(&sessions, ID, true).unwrap();
        assert!(!session.exists());
    }

    #[test]
    fn a_file_with_other_names_gives_no_room_back() {
        let (_dir, sessions, session, outside) = dirs();
        fs::write(session.join("tmp/a"), vec![1; 1 << 20]).unwrap();
        fs::hard_link(session.join("tmp/a"), session.join("tmp/b")).unwrap();
        fs::write(session.join("tmp/c"), vec![1; 1 << 20]).unwrap();
        fs::hard_link(session.join("tmp/c"), outside.join("c")).unwrap();
        let bytes = remove_session_dir(&sessions, ID, true).unwrap().bytes;
        assert!((1 << 20..2 << 20).contains(&bytes), "{bytes}");
    }

    #[test]
    fn leftovers_are_told_from_work() {
        let (_dir, sessions, session, outside) = dirs();
        for (name, inside) in [
            ("sess_1", "work/mine"),
            ("sess_2", "logs/x"),
            ("sess_3", "work"),
            ("sess_4", "other"),
            ("sess_06", ""),
            ("else", ""),
        ] {
            fs::create_dir_all(sessions.join(name).join(inside)).unwrap();
        }
        symlink(&outside, sessions.join("sess_7")).unwrap();
        fs::write(sessions.join("sess_8"), "").unwrap();
        fs::create_dir(sessions.join("sess_9")).unwrap();
        symlink(&outside, sessions.join("sess_9/work")).unwrap();
        let found = unrecorded_dirs(&sessions, &|id| id == ID).unwrap();
        let found: Vec<_> = found.iter().map(|left| (left.id.0, left.needs_purge)).collect();
        assert_eq!(found, [(1, true), (2, false), (3, false), (4, true), (9, true)]);
        let all = unrecorded_dirs(&sessions, &|_| false).unwrap();
        assert!(all.contains(&UnrecordedDir { id: ID, path: session, needs_purge: false }));
        for left in all.iter().filter(|left| !left.needs_purge) {
            remove_session_dir(&sessions, left.id, false).unwrap();
            assert!(!left.path.exists(), "without work no purge is needed");
        }
        assert_eq!(unrecorded_dirs(&sessions.join("none"), &|_| false).unwrap(), []);
    }
}
