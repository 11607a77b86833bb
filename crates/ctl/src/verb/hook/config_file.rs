//! A configuration file of another program: read as a whole, backed up beside itself, and replaced
//! atomically. Symbolic links to it, its owner and its mode are kept.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::atomic_file;

/// The suffix of the backup.
const BACKUP: &str = ".before-tmux-pool";

/// The content of the file; `None` if it does not exist.
pub(super) fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces the content `before` by `after`, or removes the file. With `keep` the old content is backed up,
/// unless there is a backup already; returns the path of a new backup.
///
/// # Errors
/// The content has changed meanwhile, or the system refuses. The file is then left as it was.
pub(super) fn replace(
    path: &Path,
    before: Option<&str>,
    after: Option<&str>,
    keep: bool,
) -> io::Result<Option<PathBuf>> {
    let real = atomic_file::behind_links(path)?;
    if let Some(dir) = real.parent() {
        fs::create_dir_all(dir)?;
    }
    let backup = match before {
        Some(text) if keep => back_up(path, &real, text)?,
        _ => None,
    };
    let fresh = after.map(|text| prepare(&real, &real, text)).transpose()?;
    if read(path)?.as_deref() != before {
        return Err(io::Error::other("it was changed by another program at this moment; try again"));
    }
    match fresh {
        Some(fresh) => atomic_file::commit(fresh, &real)?,
        None => {
            fs::remove_file(&real)?;
            atomic_file::sync_parent(&real)?;
        }
    }
    Ok(backup)
}

/// The path of the backup.
pub(super) fn backup(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(BACKUP);
    name.into()
}

/// Writes the backup, unless there is one: the oldest is the one without any of our hooks.
fn back_up(path: &Path, real: &Path, text: &str) -> io::Result<Option<PathBuf>> {
    let backup = backup(path);
    match prepare(&backup, real, text)?.persist_noclobber(&backup) {
        Ok(_) => Ok(Some(backup)),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Writes a new file for `path`, with the owner and the mode of the file `like`, if that exists.
fn prepare(path: &Path, like: &Path, text: &str) -> io::Result<NamedTempFile> {
    let like = fs::metadata(like).ok();
    // Private until it has the mode of the other file.
    let mut fresh = atomic_file::create(path, if like.is_some() { 0o600 } else { 0o666 })?;
    if let Some(like) = like {
        let (file, own) = (fresh.as_file(), fresh.as_file().metadata()?);
        if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
            fchown(file, Some(like.uid()), Some(like.gid()))?;
        }
        file.set_permissions(PermissionsExt::from_mode(like.mode() & 0o7777))?;
    }
    fresh.write_all(text.as_bytes())?;
    fresh.as_file().sync_all()?;
    Ok(fresh)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(dir: &Path) -> Vec<std::ffi::OsString> {
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_keeps_its_mode_its_links_and_a_backup() {
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
    fn a_missing_file_is_created_and_removed() {
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
    fn a_concurrent_change_is_not_lost() {
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
