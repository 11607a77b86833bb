//! Linux: `/proc/meminfo`, `/proc/pressure/memory` and `/proc/sys/kernel/pty`.

use std::fs;

use crate::platform::proc;

pub(super) fn available_memory() -> Option<u64> {
    Some(proc::parse_kib(&fs::read("/proc/meminfo").ok()?, "MemAvailable")? * 1024)
}

pub(super) fn total_memory() -> Option<u64> {
    Some(proc::parse_kib(&fs::read("/proc/meminfo").ok()?, "MemTotal")? * 1024)
}

/// Kernels without pressure stall information do not have the file, or refuse to read it.
pub(super) fn memory_pressure() -> Option<u32> {
    proc::parse_pressure(&fs::read("/proc/pressure/memory").ok()?)
}

pub(super) fn terminals() -> Option<(u64, u64)> {
    let figure =
        |name: &str| fs::read_to_string(format!("/proc/sys/kernel/pty/{name}")).ok()?.trim().parse().ok();
    Some((figure("nr")?, figure("max")?))
}
