//! Work whose panic ends only the work itself, because it reads what others wrote and decides nothing. Any other panic
//! ends the process. In builds with debug assertions this work's panics end the process too, so that tests find them.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static IS_CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Runs work on this thread; `None` if it panics. What the work was changing may then be half done.
pub fn contain<T>(work: impl FnOnce() -> T) -> Option<T> {
    if cfg!(debug_assertions) { Some(work()) } else { contained(work) }
}

fn contained<T>(work: impl FnOnce() -> T) -> Option<T> {
    let before = IS_CONTAINED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_CONTAINED.set(before);
    result.ok()
}

/// True while this thread runs such work. The panic hook of a program that ends by a panic asks this.
pub fn is_contained() -> bool {
    IS_CONTAINED.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_the_work_alone() {
        let nested = || (contained(|| [0; 1][std::hint::black_box(1)]), is_contained());
        assert_eq!(contained(nested), Some((None, true)));
        assert!(!is_contained());
    }
}
