//! Runs a target on its corpus and on mutated inputs.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::coverage::Seen;
use crate::growth;
use crate::memory::most_used;
use crate::mutate::{Random, mutated, words};

/// The seed without settings.
const SEED: u64 = 0x7001;

/// Most inputs that are kept because they covered something new.
const KEPT_MAX: usize = 20_000;

/// Something that reads what comes from outside.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// Inputs of real shapes.
    pub(crate) corpus: Vec<Vec<u8>>,
    /// Number of mutated inputs without settings.
    pub(crate) inputs: usize,
    /// Maximum length of an input in bytes.
    pub(crate) longest: usize,
    /// Maximum memory: a constant, and a multiple of the input's length.
    pub(crate) memory: (usize, usize),
    /// Reads an input.
    pub(crate) read: fn(&[u8]),
}

/// Runs a target, as the settings say.
#[track_caller]
pub(crate) fn run(target: Target) {
    assert!(!target.corpus.is_empty(), "{} has no corpus", target.name);
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seconds = number("POOL_FUZZ_SECONDS");
    let seed = number("POOL_FUZZ_SEED").or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        seconds.map(|_| now.as_secs())
    });
    let seed = seed.unwrap_or(SEED);
    let began = Instant::now();
    let mut corpus = target.corpus.clone();
    let (words, mut random, mut seen) = (words(&corpus), Random(seed), Seen::default());
    let (mut count, mut most) = (0, 0);
    let goes_on = |count: usize| match seconds {
        Some(seconds) => began.elapsed() < Duration::from_secs(seconds),
        None => count < target.corpus.len() + target.inputs,
    };
    while goes_on(count) {
        let input = match target.corpus.get(count) {
            Some(input) => input.clone(),
            None => mutated(&mut random, &corpus, &words, target.longest),
        };
        seen.take();
        most = most.max(check(&target, &input, seed));
        let is_known = count < target.corpus.len();
        if seen.take() && !is_known && corpus.len() < KEPT_MAX {
            corpus.push(input);
        }
        count += 1;
    }
    if seconds.is_some() {
        let edges = if Seen::is_guided() { format!(", {} edges", seen.edges()) } else { String::new() };
        let memory = most >> 10;
        tell(&format!("{}: {count} inputs from seed {seed}{edges}, most memory {memory} KiB", target.name));
        growth::check(&target, &corpus, &mut random);
        tell(&format!("counted: {count} inputs of {}", target.name));
    }
}

/// Writes a line past the test runner's capture; failing to write harms nothing.
pub(crate) fn tell(line: &str) {
    drop(writeln!(std::io::stderr(), "{line}"));
}

/// Reads an input. Returns the memory that it took.
#[track_caller]
fn check(target: &Target, input: &[u8], seed: u64) -> usize {
    let mut most = 0;
    let read = catch_unwind(AssertUnwindSafe(|| most = most_used(|| (target.read)(input))));
    let (constant, factor) = target.memory;
    if read.is_err() {
        panic!("{} panics on {}, found from seed {seed}", target.name, kept(target, input));
    }
    let bound = constant + factor * input.len();
    assert!(most <= bound, "{} takes {most} bytes, not {bound}, for {}", target.name, kept(target, input));
    most
}

/// Writes an input to a file, to be added to the corpus. Returns its path.
pub(crate) fn kept(target: &Target, input: &[u8]) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{}-{}", target.name, input.len()));
    std::fs::write(&path, input).unwrap();
    path.display().to_string()
}
