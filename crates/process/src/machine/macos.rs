//! macOS: `host_statistics64`, as `vm_stat` shows it.
#![expect(unsafe_code, reason = "the statistics have no safe wrapper")]

use std::mem;

/// What is free, and what was not used lately and can be taken: best effort, for nobody knows how much of
/// that must be written to disk before.
#[expect(deprecated, reason = "the crate that libc points to is not worth one function")]
pub(super) fn available_memory() -> Option<u64> {
    // SAFETY: integers, for which zeros are a value.
    let mut found: libc::vm_statistics64 = unsafe { mem::zeroed() };
    let mut count = libc::HOST_VM_INFO64_COUNT;
    let place = (&raw mut found).cast::<libc::integer_t>();
    // SAFETY: the structure is `count` integers long and lives over the call.
    let done = unsafe {
        libc::host_statistics64(libc::mach_host_self(), libc::HOST_VM_INFO64, place, &raw mut count)
    };
    // SAFETY: sysconf has no preconditions.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    (done == libc::KERN_SUCCESS)
        .then(|| (u64::from(found.free_count) + u64::from(found.inactive_count)) * page)
}

/// Not told.
pub(super) fn terminals() -> Option<(u64, u64)> {
    None
}
