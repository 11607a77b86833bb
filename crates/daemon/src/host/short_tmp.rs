//! A short name for the sessions' directories of temporary files, where the state directory lies so deep that programs
//! could not make a socket in them.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{fs, io};

use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use protocol::SessionId;
use protocol::paths::{Paths, prepare_dir};

use crate::host::digest::digest;

/// The longest directory, in bytes, in which programs can make a socket: its path has 107 at most, and Python's
/// `multiprocessing`, say, adds 32.
const LONGEST: usize = 107 - 32 - 1;

/// The directory of a session's temporary files, under its short name where its own is too long. Each call makes
/// that name again where it was removed, and keeps it from being removed for its age.
pub(crate) fn dir(paths: &Paths, id: SessionId) -> PathBuf {
    let own = paths.session(id).join("tmp");
    if own.as_os_str().len() <= LONGEST {
        return own;
    }
    match link(&root(), &paths.sessions) {
        Ok(link) => link.join(id.to_string()).join("tmp"),
        Err(error) => {
            tracing::warn!(%error, path = %own.display(), "no short name for the directory of temporary files");
            own
        }
    }
}

/// The directory of this user's short names. Nobody else can write in it, and others cannot take its name away.
fn root() -> PathBuf {
    PathBuf::from(format!("/tmp/tmux-pool-{}", nix::unistd::geteuid()))
}

/// A symbolic link in `root` to this directory, and no more links there to what is gone.
fn link(root: &Path, sessions: &Path) -> io::Result<PathBuf> {
    prepare_dir(root).map_err(io::Error::other)?;
    let link = root.join(format!("{:016x}", digest(sessions.as_os_str().as_bytes())));
    if fs::read_link(&link).is_ok_and(|to| to == sessions) {
        // What cleans /tmp goes by age.
        utimensat(
            nix::fcntl::AT_FDCWD,
            &link,
            &TimeSpec::UTIME_NOW,
            &TimeSpec::UTIME_NOW,
            UtimensatFlags::NoFollowSymlink,
        )?;
        return Ok(link);
    }
    forget_dangling(root);
    let new = root.join(format!("new.{}", std::process::id()));
    drop(fs::remove_file(&new));
    symlink(sessions, &new)?;
    fs::rename(&new, &link)?;
    Ok(link)
}

/// Removes the links of pools whose state directory is gone.
fn forget_dangling(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let path = entry.path();
        if fs::read_link(&path).is_ok()
            && fs::metadata(&path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
        {
            drop(fs::remove_file(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_short_name_leads_to_the_directory_and_comes_back_when_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (root, sessions) = (dir.path().join("short"), dir.path().join("sessions"));
        fs::create_dir(&sessions).unwrap();
        let gone = dir.path().join("gone");
        let dangling = link(&root, &gone).unwrap();
        let short = link(&root, &sessions).unwrap();
        assert_eq!(fs::canonicalize(&short).unwrap(), fs::canonicalize(&sessions).unwrap());
        assert!(fs::symlink_metadata(&dangling).is_err(), "a link of a pool that is gone goes with the next");
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(link(&root, &sessions).unwrap(), short, "the same name, for programs that have it");
        fs::remove_file(&short).unwrap();
        symlink("/", &short).unwrap();
        assert_eq!(
            fs::read_link(link(&root, &sessions).unwrap()).unwrap(),
            sessions,
            "and it leads there again"
        );
    }

    #[test]
    fn a_directory_that_others_can_write_in_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(link(dir.path(), Path::new("/sessions")).is_err());
    }
}
