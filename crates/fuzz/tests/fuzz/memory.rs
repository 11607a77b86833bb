//! Memory in use by a thread, and its maximum.
#![expect(unsafe_code, reason = "an allocator has no safe form")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counting the bytes of each thread.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static USED: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// Counts an allocation, or with a negative number its end.
fn count(bytes: isize) {
    // A thread that ends has no counter any more.
    let counted = USED.try_with(|used| {
        used.set(used.get() + bytes);
        used.get()
    });
    let _ended = counted.map(|now| MOST.try_with(|most| most.set(most.get().max(now))));
}

// SAFETY: every call is passed on unchanged, and counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Runs `work`, and returns the most bytes that it had in use at a time.
pub(crate) fn most_used(work: impl FnOnce()) -> usize {
    let before = USED.get();
    MOST.set(before);
    work();
    (MOST.get() - before).max(0).cast_unsigned()
}
