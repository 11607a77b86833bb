//! macOS: what `proc_pidinfo` tells of a task. Shared pages are not counted in shares.

use protocol::ids::ProcId;

use super::Share;
use crate::platform;

/// `None` where this very process has ended, or is another user's.
pub(super) fn share(id: ProcId) -> Option<Share> {
    let (memory, cpu) = platform::memory_and_cpu(id).ok()??;
    Some(Share { memory, shared_out: false, cpu_us: u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX) })
}
