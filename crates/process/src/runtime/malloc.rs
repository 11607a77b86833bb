//! Memory use of the C library's allocator.

/// Makes all threads share one malloc arena. Otherwise many short-lived threads leave many half-empty arenas,
/// which make up most of the memory of a program like the reaper. No effect with a C library other than
/// glibc.
#[cfg_attr(
    all(target_os = "linux", target_env = "gnu"),
    expect(unsafe_code, reason = "mallopt has no safe wrapper")
)]
pub fn use_single_arena() {
    // SAFETY: it takes and returns plain integers, and may be called at any time.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
