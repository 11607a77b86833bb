//! Files that are replaced atomically: written under a hidden name beside the old one, then renamed over it.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

/// Maximal length of a chain of symbolic links.
const LINKS_MAX: usize = 40;

/// The file at the end of the symbolic links, which need not exist.
pub(crate) fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("/")).join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// Creates the new file for `path`, with this mode. Dropped before it is renamed, it is removed.
pub(crate) fn create(path: &Path, mode: u32) -> io::Result<NamedTempFile> {
    let (Some(dir), Some(_)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidFilename.into());
    };
    let mut builder = Builder::new();
    builder.prefix(".poolctl.").suffix(".new").permissions(Permissions::from_mode(mode));
    builder.tempfile_in(dir).map_err(|error| without_path(&error))
}

/// The error without the hidden name of the new file, which `tempfile` adds.
fn without_path(error: &io::Error) -> io::Error {
    let text = error.to_string();
    io::Error::new(error.kind(), text.split(" at path ").next().unwrap_or(&text))
}

/// Renames the new file to `path`, and returns once its content and its name are on disk.
pub(crate) fn commit(file: NamedTempFile, path: &Path) -> io::Result<()> {
    file.as_file().sync_all()?;
    file.persist(path)?;
    sync_parent(path)
}

/// Waits until the entries of the directory of `path` are on disk.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

/// Replaces a file by one with this content, without waiting for the disk.
pub(crate) fn replace(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let mut file = create(path, mode)?;
    file.write_all(content)?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_or_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        replace(&path, 0o600, b"one").unwrap();
        let mut dropped = create(&path, 0o600).unwrap();
        dropped.write_all(b"two").unwrap();
        drop(dropped);
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        let mut committed = create(&path, 0o600).unwrap();
        committed.write_all(b"two").unwrap();
        commit(committed, &path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(create(Path::new("/"), 0o600).is_err());
        let error = create(&dir.path().join("none/file"), 0o600).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(!error.to_string().contains(".poolctl."), "{error}");
    }
}
