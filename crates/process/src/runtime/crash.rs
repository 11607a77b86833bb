//! Crash points: named places at which a test can abort the process.

/// Aborts the process if `POOL_CRASH_AT` is `name`, or `name:N` and this is the N-th call. Only in builds
/// with debug assertions.
pub fn point(name: &str) {
    #[cfg(debug_assertions)]
    if is_due(name) {
        tracing::error!(name, "crash point");
        std::process::abort();
    }
    #[cfg(not(debug_assertions))]
    let _ = name;
}

#[cfg(debug_assertions)]
fn is_due(name: &str) -> bool {
    use std::sync::atomic::{AtomicU64, Ordering};

    static TIMES: AtomicU64 = AtomicU64::new(0);
    let Ok(at) = std::env::var("POOL_CRASH_AT") else { return false };
    let (wanted, n) = at.split_once(':').unwrap_or((&at, "1"));
    wanted == name && TIMES.fetch_add(1, Ordering::Relaxed) + 1 == n.parse().unwrap_or(1)
}
