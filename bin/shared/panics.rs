//! Panics end the process, in whichever thread, except those of contained work.

use process::runtime::containment::is_contained;

/// From now on, a panic ends the process after its usual message, unless it is contained.
pub(crate) fn set_abort_hook() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        if !is_contained() {
            std::process::abort();
        }
    }));
}
