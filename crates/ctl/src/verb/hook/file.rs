//! A configuration file that is somebody else's: read whole, kept as it was beside itself, and replaced at once,
//! behind whatever link leads to it and with the owner and the mode it has.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// What a copy of the file as it was is called: this after its name.
const BACKUP: &str = ".before-tmux-pool";
/// How many links may lead from one to the next.
const LINKS_MAX: usize = 40;

/// What the file holds; `None` where there is none.
///
/// # Errors
/// It cannot be read, or is no text.
pub(super) fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes the file hold this instead of what it held, or removes it. With `keep` a copy of what it held is left beside
/// it, unless there is one already; the path of a new one.
///
/// # Errors
/// It holds something else by now, or the system refuses. Then it is as it was.
pub(super) fn replace(
    path: &Path,
    before: Option<&str>,
    after: Option<&str>,
    keep: bool,
) -> io::Result<Option<PathBuf>> {
    let real = behind_links(path)?;
    if let Some(dir) = real.parent() {
        fs::create_dir_all(dir)?;
    }
    let backup = match before {
        Some(text) if keep => back_up(path, &real, text)?,
        _ => None,
    };
    let fresh = after.map(|text| prepare(&real, text)).transpose()?;
    let replaced = if read(path)?.as_deref() == before {
        match &fresh {
            Some(fresh) => fs::rename(fresh, &real),
            None => fs::remove_file(&real),
        }
    } else {
        Err(io::Error::other("somebody else changed it at this moment; try again"))
    };
    if let (Err(_), Some(fresh)) = (&replaced, &fresh) {
        drop(fs::remove_file(fresh));
    }
    replaced.and_then(|()| sync_dir(&real)).map(|()| backup)
}

/// The file that is meant, which need not exist.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("/")).join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// Where a copy of the file as it was is left.
pub(super) fn backup(path: &Path) -> PathBuf {
    with_suffix(path, BACKUP)
}

/// Leaves a copy beside the path, unless there is one: the oldest is the one without any of ours.
fn back_up(path: &Path, real: &Path, text: &str) -> io::Result<Option<PathBuf>> {
    let backup = backup(path);
    match write_like(real, &backup, text) {
        Ok(()) => Ok(Some(backup)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(error),
    }
}

/// The text in a file beside the one that it is to become.
fn prepare(real: &Path, text: &str) -> io::Result<PathBuf> {
    let fresh = with_suffix(real, &format!(".new-{}", std::process::id()));
    write_like(real, &fresh, text).map(|()| fresh)
}

/// A new file with the owner and the mode of another, where that exists.
fn write_like(like: &Path, path: &Path, text: &str) -> io::Result<()> {
    let like = fs::metadata(like).ok();
    // Until it has the other's mode nobody else may read it.
    let mode = if like.is_some() { 0o600 } else { 0o666 };
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    let written = fill(&file, like.as_ref(), text);
    if written.is_err() {
        drop(fs::remove_file(path));
    }
    written
}

fn fill(mut file: &File, like: Option<&fs::Metadata>, text: &str) -> io::Result<()> {
    if let Some(like) = like {
        let own = file.metadata()?;
        if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
            fchown(file, Some(like.uid()), Some(like.gid()))?;
        }
        file.set_permissions(PermissionsExt::from_mode(like.mode() & 0o7777))?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn sync_dir(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(dir: &Path) -> Vec<OsString> {
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_keeps_its_mode_and_the_links_to_it_and_what_it_held() {
        let dir = tempfile::tempdir().unwrap();
        let (link, dots) = (dir.path().join("settings.json"), dir.path().join("dots"));
        fs::create_dir(&dots).unwrap();
        let real = dots.join("mine.json");
        symlink("dots/mine.json", &link).unwrap();
        fs::write(&real, "old").unwrap();
        fs::set_permissions(&real, PermissionsExt::from_mode(0o640)).unwrap();
        let backup = dir.path().join("settings.json.before-tmux-pool");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;

        assert_eq!(replace(&link, Some("old"), Some("new"), true).unwrap(), Some(backup.clone()));
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("dots/mine.json"));
        assert_eq!((fs::read_to_string(&real).unwrap().as_str(), mode(&real)), ("new", 0o640));
        assert_eq!((fs::read_to_string(&backup).unwrap().as_str(), mode(&backup)), ("old", 0o640));

        assert_eq!(replace(&link, Some("new"), Some("newer"), true).unwrap(), None);
        assert_eq!(fs::read_to_string(&backup).unwrap(), "old");
        assert_eq!(names(&dots), ["mine.json"]);
    }

    #[test]
    fn a_file_that_is_none_is_made_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/hooks.json");
        assert_eq!(read(&path).unwrap(), None);
        assert_eq!(replace(&path, None, Some("new"), true).unwrap(), None);
        assert_eq!(read(&path).unwrap().as_deref(), Some("new"));
        assert_eq!(replace(&path, Some("new"), None, false).unwrap(), None);
        assert_eq!(names(path.parent().unwrap()), [""; 0]);

        let dangling = dir.path().join("dangling");
        symlink("a/later.json", &dangling).unwrap();
        replace(&dangling, None, Some("new"), true).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("a/later.json")).unwrap(), "new");
        assert!(dangling.is_symlink());
    }

    #[test]
    fn what_somebody_else_wrote_meanwhile_is_not_lost() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("settings.json");
        fs::write(&path, "theirs").unwrap();
        replace(&path, Some("old"), Some("new"), false).unwrap_err();
        replace(&path, None, Some("new"), false).unwrap_err();
        replace(&path, Some("old"), None, false).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
        assert_eq!(names(dir.path()), ["settings.json"]);
    }

    #[test]
    fn links_in_a_ring_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ring");
        symlink("ring", &path).unwrap();
        read(&path).unwrap_err();
        replace(&path, None, Some("new"), false).unwrap_err();
    }
}
