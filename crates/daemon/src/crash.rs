//! Named points at which a test can end the process as a crash would.

/// Aborts here if `POOL_CRASH_AT` names this point. Only in builds with debug assertions.
pub(crate) fn point(name: &str) {
    #[cfg(debug_assertions)]
    if std::env::var("POOL_CRASH_AT").is_ok_and(|at| at == name) {
        tracing::error!(name, "crash point");
        std::process::abort();
    }
    #[cfg(not(debug_assertions))]
    let _ = name;
}
