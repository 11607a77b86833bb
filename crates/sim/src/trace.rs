//! The trace of a run: a hash of each decision, and a story for people.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// The trace of a run; clones share it.
#[derive(Clone)]
pub(crate) struct Trace(Arc<Mutex<Inner>>);

struct Inner {
    began: Instant,
    hash: u64,
    polls: u64,
    /// Tells every line as it happens.
    is_verbose: bool,
    story: Vec<String>,
}

impl Trace {
    /// Begins a trace.
    pub(crate) fn new(is_verbose: bool) -> Self {
        let began = Instant::now();
        Self(Arc::new(Mutex::new(Inner { began, hash: 0, polls: 0, is_verbose, story: Vec::new() })))
    }

    /// Notes that a task was polled.
    pub(crate) fn note(&self, name: &str) {
        let mut inner = self.inner();
        inner.polls += 1;
        let at = inner.began.elapsed().as_micros() as u64;
        inner.mix(name.as_bytes(), at);
    }

    /// Adds a line to the story.
    pub(crate) fn tell(&self, line: impl FnOnce() -> String) {
        let mut inner = self.inner();
        let at = inner.began.elapsed();
        let line = format!("{:>9.3}  {}", at.as_secs_f64(), line());
        inner.mix(line.as_bytes(), 0);
        if inner.is_verbose {
            eprintln!("{line}");
        }
        inner.story.push(line);
    }

    /// Returns the hash of everything so far.
    pub(crate) fn hash(&self) -> u64 {
        self.inner().hash
    }

    /// Returns the number of polls so far.
    pub(crate) fn polls(&self) -> u64 {
        self.inner().polls
    }

    /// Returns the last lines of the story.
    pub(crate) fn last(&self, lines: usize) -> Vec<String> {
        let inner = self.inner();
        inner.story[inner.story.len().saturating_sub(lines)..].to_vec()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn mix(&mut self, bytes: &[u8], number: u64) {
        for part in bytes.iter().map(|byte| u64::from(*byte)).chain([number]) {
            self.hash = (self.hash ^ part).wrapping_mul(0x0100_0000_01b3).rotate_left(7);
        }
    }
}
