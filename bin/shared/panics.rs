//! Panics end the process, in whichever thread: in development builds too, where they unwind.

/// From now on, a panic ends the process after its usual message.
pub(crate) fn set_abort_hook() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}
