//! Locates the control group of a process, and the group's directory.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Suffix that the kernel appends to the path of a removed group.
const DELETED: &[u8] = b" (deleted)";

/// Returns the version 2 group of a process, relative to the root of the hierarchy that the caller sees.
pub(super) fn group_of(pid: u32) -> io::Result<PathBuf> {
    let text = fs::read(format!("/proc/{pid}/cgroup"))?;
    parse_group(&text).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Parses a `cgroup` file; version 2 is the line of hierarchy 0.
fn parse_group(text: &[u8]) -> Option<PathBuf> {
    let path = text.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"0::"))?;
    Some(PathBuf::from(OsString::from_vec(path.strip_suffix(DELETED).unwrap_or(path).to_vec())))
}

pub(super) fn directory(group: &Path) -> io::Result<PathBuf> {
    let mounts = fs::read("/proc/self/mountinfo")?;
    let found = mounts.split(|b| *b == b'\n').filter_map(parse_mount).find_map(|(root, mount_point)| {
        let below = group.strip_prefix(&root).ok()?;
        Some(if below.as_os_str().is_empty() { mount_point } else { mount_point.join(below) })
    });
    found.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Parses a line of `mountinfo` (`proc_pid_mountinfo(5)`): root group and mount point of a `cgroup2` mount.
fn parse_mount(line: &[u8]) -> Option<(PathBuf, PathBuf)> {
    let mut words = line.split(|b| *b == b' ');
    let (root, mount_point) = (words.nth(3)?, words.next()?);
    let kind = words.skip_while(|word| *word != b"-").nth(1)?;
    (kind == b"cgroup2").then(|| (unescape(root), unescape(mount_point)))
}

/// Decodes `\` and three octal digits, the encoding of blanks, line ends and backslashes.
fn unescape(word: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, more)) = rest.split_first() {
        let octal =
            more.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[3..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// True if the group's manager has delegated it: it says so in an attribute, or the group is that of the
/// pool's own unit, which has `Delegate=yes` although older managers set no attribute.
pub(super) fn is_delegated(directory: &Path) -> bool {
    let unit = directory.file_name().is_some_and(|name| name.as_bytes().starts_with(b"tmux-pool-tmux@"));
    unit || ["user.delegate", "trusted.delegate"].iter().any(|name| {
        let mut value = [0; 2];
        matches!(rustix::fs::getxattr(directory, *name, &mut value[..]), Ok(1) if value[0] == b'1')
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_group_is_on_the_line_of_hierarchy_0() {
        let group = |text: &str| parse_group(text.as_bytes());
        assert_eq!(group("4:memory:/a\n0::/user.slice/x y\n"), Some("/user.slice/x y".into()));
        assert_eq!(group("0::/gone (deleted)\n"), Some("/gone".into()));
        assert_eq!(group("4:memory:/a\n"), None);
    }

    #[test]
    fn a_mount_has_a_root_and_a_place() {
        let mount = |line: &str| parse_mount(line.as_bytes());
        let found = Some(("/".into(), "/sys/fs/cgroup".into()));
        assert_eq!(mount("41 31 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw"), found);
        let found = Some(("/a b".into(), "/mnt\\x".into()));
        assert_eq!(mount(r"41 31 0:38 /a\040b /mnt\134x rw shared:4 master:1 - cgroup2 none rw"), found);
        assert_eq!(mount("41 31 0:38 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids"), None);
        assert_eq!(mount(""), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            drop((parse_group(&bytes), parse_mount(&bytes), unescape(&bytes)));
        }
    }
}
