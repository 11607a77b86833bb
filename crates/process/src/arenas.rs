//! How much memory the C library keeps for threads.

/// Has all threads share one arena: many short-lived threads leave many half-empty ones, which is most of what a
/// program like the reaper holds. Does nothing where the C library is another one.
#[cfg_attr(
    all(target_os = "linux", target_env = "gnu"),
    expect(unsafe_code, reason = "the C library has no other way to be told")
)]
pub fn share_one() {
    // SAFETY: it takes and returns plain integers, and may be called at any time.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
