//! Free capacity of the machine: memory, terminals, disk.

use std::path::Path;

use nix::sys::statvfs::{FsFlags, statvfs};

#[cfg_attr(target_os = "linux", path = "machine/linux.rs")]
#[cfg_attr(target_os = "macos", path = "machine/macos.rs")]
mod system;

/// Returns the bytes available to programs without swapping; `None` if the system does not report it.
pub fn available_memory() -> Option<u64> {
    system::available_memory()
}

/// Returns the bytes of memory; `None` if the system does not report it.
pub fn total_memory() -> Option<u64> {
    system::total_memory()
}

/// Returns the share of the last 10 s in which some program waited for memory, in hundredths of a percent;
/// `None` if the system does not report it.
pub fn memory_pressure() -> Option<u32> {
    system::memory_pressure()
}

/// Returns the number of pseudo-terminals in use and their maximum; `None` if the system does not report it.
pub fn terminals() -> Option<(u64, u64)> {
    system::terminals()
}

/// Returns the bytes on the file system of this path that are available to this user; `None` if it cannot be
/// read.
pub fn free_disk(path: &Path) -> Option<u64> {
    let system = statvfs(path).ok()?;
    #[expect(clippy::useless_conversion, reason = "u32 on macOS")]
    Some(u64::from(system.blocks_available()).saturating_mul(u64::from(system.fragment_size())))
}

/// Returns the inodes on the file system of this path that are available to this user: each file takes one. `None` if
/// they cannot be read, or the file system does not count them.
pub fn free_inodes(path: &Path) -> Option<u64> {
    let system = statvfs(path).ok()?;
    #[expect(clippy::useless_conversion, reason = "u32 on macOS")]
    let (all, available) = (u64::from(system.files()), u64::from(system.files_available()));
    (all > 0).then_some(available)
}

/// True if the file system of this path is mounted read-only, or has become so after an error; false if it cannot be
/// read.
pub fn is_read_only(path: &Path) -> bool {
    statvfs(path).is_ok_and(|system| system.flags().contains(FsFlags::ST_RDONLY))
}

/// Returns the bytes in use on the file system of this path, and the bytes that this user could use in all, as
/// `df` counts them; `None` if it cannot be read.
pub fn disk_use(path: &Path) -> Option<(u64, u64)> {
    let system = statvfs(path).ok()?;
    #[expect(clippy::useless_conversion, reason = "u32 on macOS")]
    let bytes = |blocks| u64::from(blocks).saturating_mul(u64::from(system.fragment_size()));
    let used = bytes(system.blocks()).saturating_sub(bytes(system.blocks_free()));
    Some((used, used.saturating_add(bytes(system.blocks_available()))))
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn there_is_some_memory_and_a_new_terminal_counts() {
        assert!(available_memory().unwrap() > 1 << 20);
        assert!(available_memory().unwrap() < total_memory().unwrap());
        let (used, total) = disk_use(Path::new("/")).unwrap();
        assert!(used <= total && total > 0);
        assert_ne!(free_inodes(Path::new("/")), Some(0));
        assert_eq!(free_inodes(Path::new("/proc")), None, "it counts none");
        let (before, most) = terminals().unwrap();
        assert!(before < most);
        let many: Vec<_> = (0..8).map(|_| nix::pty::openpty(None, None).unwrap()).collect();
        // Other programs may close some at the same time, but hardly eight.
        assert!(terminals().unwrap().0 > before, "{before}");
        drop(many);
    }
}
