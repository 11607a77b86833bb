//! Named points at which a test can end the process as a crash would.

/// Aborts here if `POOL_CRASH_AT` names this point; with `NAME:N`, where it comes to it for the N-th time. Only
/// in builds with debug assertions.
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
