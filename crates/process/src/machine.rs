//! What room the machine has for more sessions.

use std::path::Path;

#[cfg_attr(target_os = "linux", path = "machine/linux.rs")]
#[cfg_attr(target_os = "macos", path = "machine/macos.rs")]
mod system;

/// Bytes that programs may take without others being swapped out, where the system tells.
#[must_use]
pub fn available_memory() -> Option<u64> {
    system::available_memory()
}

/// Terminals in use, and how many there may be, where the system tells.
#[must_use]
pub fn terminals() -> Option<(u64, u64)> {
    system::terminals()
}

/// Bytes on the disk of this path that this user may use, where the system tells.
#[must_use]
pub fn free_disk(path: &Path) -> Option<u64> {
    let system = nix::sys::statvfs::statvfs(path).ok()?;
    #[expect(clippy::useless_conversion, reason = "of another width on macOS")]
    Some(u64::from(system.blocks_available()).saturating_mul(u64::from(system.fragment_size())))
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn there_is_some_memory_and_a_new_terminal_counts() {
        assert!(available_memory().unwrap() > 1 << 20);
        let (before, most) = terminals().unwrap();
        assert!(before < most);
        let many: Vec<_> = (0..8).map(|_| nix::pty::openpty(None, None).unwrap()).collect();
        // Others come and go meanwhile; hardly eight of them.
        assert!(terminals().unwrap().0 > before, "{before}");
        drop(many);
    }
}
