//! Resource limits of the calling process.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open files to `cap`, or to the hard limit if that is lower; never lowers it.
/// Returns the resulting limit.
pub fn raise_open_files(cap: u64) -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let wanted = hard.min(cap).min(ceiling());
    if wanted <= soft {
        return Ok(soft);
    }
    setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)?;
    Ok(wanted)
}

/// Returns the system's maximum: macOS refuses a soft limit above `OPEN_MAX` even if the hard limit is
/// infinite.
fn ceiling() -> u64 {
    if cfg!(target_os = "macos") { 10_240 } else { u64::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_only_ever_raises() {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(raise_open_files(1).unwrap(), soft);
        let raised = raise_open_files(soft + 1).unwrap();
        assert_eq!(raised, (soft + 1).min(hard).max(soft));
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (raised, hard));
    }
}
