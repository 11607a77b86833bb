//! macOS: the task figures of `proc_pidinfo`, in which shared pages count in full.

use protocol::ProcId;

use super::Share;
use crate::platform;

/// Nothing is told of a process that does not answer.
pub(super) fn unanswered_share(_pid: u32) -> Option<Share> {
    None
}

/// Reads the usage of this process; `None` if it has ended or belongs to another user.
pub(super) fn share(id: ProcId) -> Option<Share> {
    let (memory, cpu) = platform::memory_and_cpu(id).ok()??;
    Some(Share { memory, proportional: false, cpu_us: u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX) })
}
