//! Linux: `/proc/PID/smaps_rollup`, or `status` if that is denied, and `stat`.

use std::fs;

use protocol::ProcId;

use super::Share;
use crate::info::State;
use crate::platform::{self, proc};

/// Reads the usage of this process; `None` if it has ended or is not readable.
pub(super) fn share(id: ProcId) -> Option<Share> {
    let (memory, proportional) = memory(id.pid)?;
    // Last: the pid is still this process's, so everything read before was about it.
    let ticks = platform::with_stat(id.pid, |bytes| {
        let stat = proc::parse_stat(bytes)?;
        let runs = !matches!(platform::state(&stat), None | Some(State::Zombie));
        Some((stat.start == id.start && runs).then(|| stat.cpu.saturating_add(stat.cpu_waited)))
    });
    let cpu = platform::duration(ticks.ok()???);
    Some(Share { memory, proportional, cpu_us: u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX) })
}

/// Reads the memory in bytes, and true if shared pages are counted proportionally.
fn memory(pid: u32) -> Option<(u64, bool)> {
    let pss =
        fs::read(format!("/proc/{pid}/smaps_rollup")).ok().and_then(|text| proc::parse_kib(&text, "Pss"));
    if let Some(pss) = pss {
        return Some((pss * 1024, true));
    }
    resident(pid)
}

/// Reads the resident memory in bytes. `None` for a process that is exiting, and for a main thread that has ended
/// before the other threads, which still have memory.
fn resident(pid: u32) -> Option<(u64, bool)> {
    let of = |pid: u32| {
        let status = fs::read(format!("/proc/{pid}/status")).ok()?;
        Some(proc::parse_kib(&status, "VmRSS"))
    };
    let kib = of(pid)?.or_else(|| of(platform::other_thread(pid)?)?);
    Some(kib.map_or((0, true), |kib| (kib * 1024, false)))
}

/// Reads what is told of a process that does not answer.
pub(super) fn unanswered_share(pid: u32) -> Option<Share> {
    let (memory, proportional) = resident(pid)?;
    Some(Share { memory, proportional, cpu_us: 0 })
}
