//! Panics end the process, in whichever thread: in development builds too, where they unwind.

/// Ends the process after the usual message of a panic.
pub(crate) fn abort() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}
