//! Processor time and memory of a process.

use std::time::Duration;

use anyhow::{Context, Result};
use protocol::ProcId;

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Memory {
    /// Resident now.
    pub(crate) resident: u64,
    /// Peak resident size.
    pub(crate) peak: u64,
}

/// Returns the processor time used so far by all threads, including those that ended.
pub(crate) fn cpu(id: ProcId) -> Result<Duration> {
    let vitals =
        process::inspect::resources::resources(id)?.with_context(|| format!("process {id} has ended"))?;
    Ok(precise(id.pid).unwrap_or(vitals.cpu))
}

/// Reads the process's clock, which counts nanoseconds.
#[cfg(target_os = "linux")]
fn precise(pid: u32) -> Option<Duration> {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).ok()?);
    Some(nix::time::ClockId::pid_cpu_clock_id(pid).ok()?.now().ok()?.into())
}

#[cfg(not(target_os = "linux"))]
fn precise(_pid: u32) -> Option<Duration> {
    None
}

/// Returns its memory; `None` where the system does not tell.
pub(crate) fn memory(id: ProcId) -> Option<Memory> {
    parse(&std::fs::read_to_string(format!("/proc/{}/status", id.pid)).ok()?)
}

/// Returns the memory shared with no other process, in bytes; `None` where the system does not tell.
pub(crate) fn own_memory(id: ProcId) -> Option<u64> {
    let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", id.pid)).ok()?;
    let own = rollup.lines().filter(|line| line.starts_with("Private_"));
    own.map(|line| Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)).sum()
}

fn parse(status: &str) -> Option<Memory> {
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim_start_matches(':').trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kib * 1024)
    };
    Some(Memory { resident: bytes("VmRSS")?, peak: bytes("VmHWM")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_status_file() {
        let text = "Name:\tx\nVmHWM:\t    3072 kB\nVmRSS:\t    2048 kB\n";
        assert_eq!(parse(text), Some(Memory { resident: 2 << 20, peak: 3 << 20 }));
        assert_eq!(parse("Name:\tx\n"), None);
    }

    #[test]
    fn time_passes_while_one_computes() {
        let me = process::identity::me().unwrap();
        let before = cpu(me).unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while cpu(me).unwrap() == before {
            assert!(std::time::Instant::now() < deadline);
        }
    }
}
