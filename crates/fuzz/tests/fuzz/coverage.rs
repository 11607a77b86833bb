//! Edges of the tested code that an input covers, in a build with LLVM's counters (`scripts/soak --only fuzz`
//! sets the flags, which are those of stable Rust). Without them nothing is covered.
#![expect(unsafe_code, reason = "the compiler calls these functions, and gives pointers to its counters")]

use std::sync::Mutex;

/// A part of the program with its counters, one byte for each edge: address and number.
static PARTS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// Called by each part of an instrumented program at its start.
// SAFETY: nothing else has this name.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, end: *mut u8) {
    let length = (end as usize).saturating_sub(start as usize);
    PARTS.lock().unwrap().push((start as usize, length));
}

/// The compiler also calls this one, with facts that are not needed.
// SAFETY: nothing else has this name.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_pcs_init(_: *const usize, _: *const usize) {}

/// The edges seen so far, each with the numbers of times (1, 2, 3, 4 to 7, …) as bits.
#[derive(Debug, Default)]
pub(crate) struct Seen(Vec<u8>);

impl Seen {
    /// True in an instrumented build.
    pub(crate) fn is_guided() -> bool {
        !PARTS.lock().unwrap().is_empty()
    }

    /// Number of edges seen.
    pub(crate) fn edges(&self) -> usize {
        self.0.iter().filter(|bits| **bits != 0).count()
    }

    /// Takes the edges covered since the last call. Returns true if some were new. With other threads at work
    /// their edges count, too: each target runs alone then.
    pub(crate) fn take(&mut self) -> bool {
        let parts = PARTS.lock().unwrap();
        self.0.resize(parts.iter().map(|(_, length)| length).sum(), 0);
        let (mut is_new, mut at) = (false, 0);
        for (start, length) in parts.iter() {
            // SAFETY: the compiler's own static array; a torn count by another thread harms nothing.
            let counters = unsafe { std::slice::from_raw_parts_mut(*start as *mut u8, *length) };
            // Most are zero, and whole blocks are faster to skip.
            for block in counters.chunks_mut(64) {
                if block.iter().any(|counter| *counter != 0) {
                    for (counter, seen) in
                        block.iter_mut().zip(&mut self.0[at..]).filter(|(counter, _)| **counter != 0)
                    {
                        let bit = 1 << (7 - counter.leading_zeros());
                        is_new |= *seen & bit == 0;
                        *seen |= bit;
                        *counter = 0;
                    }
                }
                at += block.len();
            }
        }
        is_new
    }
}
