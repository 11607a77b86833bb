//! Linux: `/proc/PID/net/unix` lists the listening sockets, `/proc/PID/fd` the sockets of a process.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::platform;

/// Paths of the listening sockets, by inode.
pub(super) type SocketPaths = HashMap<u64, PathBuf>;

/// Flag of a listening socket (`__SO_ACCEPTCON`).
const ACCEPTCON: u32 = 1 << 16;

pub(super) fn listening_sockets(pid: u32) -> io::Result<SocketPaths> {
    let table = platform::read_file(pid, "net/unix")?.unwrap_or_default();
    Ok(table.split(|b| *b == b'\n').filter_map(parse).collect())
}

/// Parses a line `Num: RefCount Protocol Flags Type St Inode Path`. An abstract name, without a file, begins
/// with `@`.
fn parse(line: &[u8]) -> Option<(u64, PathBuf)> {
    let mut fields = line.splitn(2, |b| *b == b':').nth(1)?.trim_ascii_start();
    let mut next = || {
        let end = fields.iter().position(|b| *b == b' ')?;
        let (field, rest) = fields.split_at(end);
        // The numbers are padded; the path is preceded by exactly one blank.
        fields = rest;
        while fields.get(1) == Some(&b' ') {
            fields = &fields[1..];
        }
        fields = &fields[1..];
        std::str::from_utf8(field).ok()
    };
    let (_, _, flags, _, _, inode) = (next()?, next()?, next()?, next()?, next()?, next()?);
    let listens = u32::from_str_radix(flags, 16).ok()? & ACCEPTCON != 0;
    let named = listens && !fields.is_empty() && !fields.starts_with(b"@");
    named.then(|| Some((inode.parse().ok()?, PathBuf::from(OsStr::from_bytes(fields)))))?
}

/// Returns the paths of those sockets of which the process has a descriptor.
pub(super) fn paths_of(sockets: &SocketPaths, pid: u32) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(format!("/proc/{pid}/fd")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let links = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    Ok(links.filter_map(|link| sockets.get(&inode(link.as_os_str().as_bytes())?).cloned()).collect())
}

fn inode(link: &[u8]) -> Option<u64> {
    let digits = link.strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_listens_and_has_a_file() {
        let line = |text: &str| parse(text.as_bytes());
        let named = |path: &str| Some((77, PathBuf::from(path)));
        let start = "0000000000000000: 00000002 00000000";
        assert_eq!(line(&format!("{start} 00010000 0001 01    77 /a b")), named("/a b"));
        assert_eq!(line(&format!("{start} 00010000 0001 01 77 /a")), named("/a"));
        assert_eq!(line(&format!("{start} 00000000 0001 03    77 /a")), None, "it is connected");
        assert_eq!(line(&format!("{start} 00010000 0001 01    77 @/a")), None, "it has no file");
        assert_eq!(line(&format!("{start} 00010000 0001 01    77")), None);
        assert_eq!(line("Num       RefCount Protocol Flags    Type St Inode Path"), None);
        assert_eq!(line(""), None);
        assert_eq!((inode(b"socket:[77]"), inode(b"pipe:[77]"), inode(b"socket:[")), (Some(77), None, None));
    }
}
