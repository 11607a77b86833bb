//! Linux: `/proc/PID/smaps_rollup`, or `statm` where that is denied, and `stat`.

use std::fs;

use protocol::ids::ProcId;

use super::Share;
use crate::{platform, proc};

/// `None` where this very process has ended, or is another user's whom nothing is told of.
pub(super) fn share(id: ProcId) -> Option<Share> {
    let (memory, shared_out) = memory(id.pid)?;
    // After the rest: as the number is still that process's, all of it was about this one.
    let ticks = platform::with_stat(id.pid, |bytes| {
        let stat = proc::parse_stat(bytes)?;
        Some(
            (stat.start == id.start && !matches!(stat.state, b'Z' | b'X'))
                .then(|| stat.cpu.saturating_add(stat.cpu_waited)),
        )
    });
    let cpu = platform::duration(ticks.ok()???);
    Some(Share { memory, shared_out, cpu_us: u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX) })
}

fn memory(pid: u32) -> Option<(u64, bool)> {
    let shares =
        fs::read(format!("/proc/{pid}/smaps_rollup")).ok().and_then(|text| proc::parse_kib(&text, "Pss"));
    if let Some(shares) = shares {
        return Some((shares * 1024, true));
    }
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    // One that is ending has none, to share or not.
    Some(proc::parse_kib(&status, "VmRSS").map_or((0, true), |kib| (kib * 1024, false)))
}
