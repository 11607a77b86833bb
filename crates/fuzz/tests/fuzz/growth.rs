//! The time that an input takes, against its length.

use std::time::{Duration, Instant};

use crate::engine::{Target, kept, tell};
use crate::mutate::Random;

/// Time below which a measurement says nothing.
const LEAST: Duration = Duration::from_millis(20);

/// The factor by which the input grows, and the one by which the time may grow: linear, with room for caches and for
/// other programs. Quadratic growth would be 16.
const LONGER: usize = 4;
const SLOWER: u32 = 10;

/// Number of inputs that are measured.
const MEASURED: usize = 60;

/// Repeats inputs of the corpus, and parts of them, to growing lengths.
///
/// # Panics
/// The time grows faster than the length.
pub(crate) fn check(target: &Target, corpus: &[Vec<u8>], random: &mut Random) {
    let mut slowest = (Duration::ZERO, 0);
    for n in 0..MEASURED {
        let whole = &corpus[if n < target.corpus.len() { n } else { random.below(corpus.len()) }];
        let start = random.below(whole.len() + 1);
        let end = whole.len().min(start + 1 + random.below(64));
        // Every second time a part alone, as in a line that never ends.
        let (head, part) =
            if n % 2 == 0 { (&whole[..0], &whole[..]) } else { (&whole[..start], &whole[start..end]) };
        if part.is_empty() {
            continue;
        }
        let of_length = |length: usize| -> Vec<u8> {
            head.iter().chain(part.iter().cycle()).copied().take(length).collect()
        };
        let mut length = 1 << 10;
        let mut before = time(target, &of_length(length));
        while length * LONGER <= target.longest {
            length *= LONGER;
            let input = of_length(length);
            let now = time(target, &input);
            let is_slower = now > LEAST && now > before.max(LEAST / SLOWER) * SLOWER;
            // Measured again: the machine may have done something else.
            let is_slower =
                is_slower && time(target, &input) > time(target, &of_length(length / LONGER)) * SLOWER;
            assert!(
                !is_slower,
                "{}: {} bytes take {now:?}, a quarter of them {before:?}: {}",
                target.name,
                length,
                kept(target, &input)
            );
            slowest = slowest.max((now, length));
            before = now;
        }
    }
    let (time, length) = (slowest.0, slowest.1 >> 10);
    tell(&format!("{}: the slowest of {MEASURED} took {time:?} for {length} KiB", target.name));
}

fn time(target: &Target, input: &[u8]) -> Duration {
    let once = || {
        let began = Instant::now();
        (target.read)(input);
        began.elapsed()
    };
    once().min(once())
}
