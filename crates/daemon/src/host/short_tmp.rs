//! Short paths for the sessions' directories of temporary files, for state directories so deep that a socket
//! path below them would exceed the limit of the system.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{fs, io};

use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use protocol::paths::prepare_dir;
use protocol::{Paths, SessionId, digest};

/// Maximum length in bytes of a directory in which programs can create a socket: the socket's path has 107
/// bytes at most, and Python's `multiprocessing`, for instance, appends 32.
const DIR_LEN_MAX: usize = 107 - 32 - 1;

/// Returns the directory of a session's temporary files, through its short name if its own path is too long.
/// Each call recreates a removed short name, and renews its time so that cleaners of `/tmp` keep it.
pub(crate) fn session_tmp(paths: &Paths, id: SessionId) -> PathBuf {
    let own = paths.session(id).join("tmp");
    if own.as_os_str().len() <= DIR_LEN_MAX {
        return own;
    }
    match link(&root(), &paths.sessions) {
        Ok(link) => link.join(id.to_string()).join("tmp"),
        Err(error) => {
            let path = own.display();
            tracing::warn!(%error, %path, "no short name for the directory of temporary files");
            own
        }
    }
}

/// The directory of this user's short names, in which nobody else can write. The sticky bit of `/tmp`
/// protects its name.
fn root() -> PathBuf {
    PathBuf::from(format!("/tmp/tmux-pool-{}", nix::unistd::geteuid()))
}

/// Returns a symbolic link in `root` to the directory of sessions. When it creates one, it removes dangling
/// links.
fn link(root: &Path, sessions: &Path) -> io::Result<PathBuf> {
    prepare_dir(root).map_err(io::Error::other)?;
    let link = root.join(format!("{:016x}", digest(sessions.as_os_str().as_bytes())));
    if fs::read_link(&link).is_ok_and(|to| to == sessions) {
        // Cleaners of /tmp go by age.
        utimensat(
            nix::fcntl::AT_FDCWD,
            &link,
            &TimeSpec::UTIME_NOW,
            &TimeSpec::UTIME_NOW,
            UtimensatFlags::NoFollowSymlink,
        )?;
        return Ok(link);
    }
    remove_dangling(root);
    let new = root.join(format!("new.{}", std::process::id()));
    drop(fs::remove_file(&new));
    symlink(sessions, &new)?;
    fs::rename(&new, &link)?;
    Ok(link)
}

/// Removes the links of pools whose state directory no longer exists.
fn remove_dangling(root: &Path) {
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
