//! macOS: `host_statistics64`, as `vm_stat` shows it.
#![expect(unsafe_code, reason = "the statistics have no safe wrapper")]

use std::mem;

/// Returns the free and inactive memory: an estimate, because some inactive pages must be written to disk
/// first.
#[expect(deprecated, reason = "libc's suggested replacement crate is not worth one function")]
pub(super) fn available_memory() -> Option<u64> {
    // SAFETY: integers, for which zeros are a value.
    let mut found: libc::vm_statistics64 = unsafe { mem::zeroed() };
    let mut count = libc::HOST_VM_INFO64_COUNT;
    let buffer = (&raw mut found).cast::<libc::integer_t>();
    // SAFETY: the structure is `count` integers long and outlives the call.
    let done = unsafe {
        libc::host_statistics64(libc::mach_host_self(), libc::HOST_VM_INFO64, buffer, &raw mut count)
    };
    // SAFETY: sysconf has no preconditions.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    (done == libc::KERN_SUCCESS)
        .then(|| (u64::from(found.free_count) + u64::from(found.inactive_count)) * page)
}

pub(super) fn total_memory() -> Option<u64> {
    // SAFETY: sysconf has no preconditions.
    let (pages, page) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).ok()?.checked_mul(u64::try_from(page).ok()?)
}

/// Not reported on macOS.
pub(super) fn memory_pressure() -> Option<u32> {
    None
}

/// Not reported on macOS.
pub(super) fn terminals() -> Option<(u64, u64)> {
    None
}
