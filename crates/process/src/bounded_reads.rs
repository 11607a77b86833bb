//! Reads of processes, each within a time limit. `/proc` does not answer for a process while that process executes a
//! program on a file system that hangs, or maps a file there. Others must not have to wait for that.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Time for the read of one process, which usually takes some microseconds.
const LIMIT: Duration = Duration::from_secs(2);

/// The processes whose files in `/proc` do not answer. Meanwhile no further read of these is started.
pub(crate) static UNANSWERED: Unanswered = Unanswered::new();

/// The processes of which a read has not returned yet.
#[derive(Debug, Default)]
pub struct Unanswered(Mutex<BTreeMap<u32, Arc<AtomicBool>>>);

impl Unanswered {
    /// Returns an empty set.
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// True while a read of the process with this pid has not returned.
    pub fn contains(&self, pid: u32) -> bool {
        let mut reads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if reads.get(&pid).is_some_and(|has_returned| has_returned.load(Ordering::Acquire)) {
            reads.remove(&pid);
        }
        reads.contains_key(&pid)
    }

    /// Reads these processes one after the other, and passes each result to `take`: `None` for a process that does not
    /// answer, which is not read again until it does.
    pub fn read_each<R: Send + 'static>(
        &self,
        pids: &[u32],
        read: impl Fn(u32) -> R + Clone + Send + 'static,
        take: impl FnMut(u32, Option<R>),
    ) {
        self.read_each_within(LIMIT, pids, read, take);
    }

    fn read_each_within<R: Send + 'static>(
        &self,
        limit: Duration,
        pids: &[u32],
        read: impl Fn(u32) -> R + Clone + Send + 'static,
        mut take: impl FnMut(u32, Option<R>),
    ) {
        let (unanswered, mut rest): (Vec<u32>, Vec<u32>) = pids.iter().partition(|pid| self.contains(**pid));
        unanswered.into_iter().for_each(|pid| take(pid, None));
        while !rest.is_empty() {
            // If no thread can be started, for lack of memory or because of a limit, the reads have no time limit.
            let Ok((results, returned)) = start(rest.clone(), read.clone()) else {
                return rest.into_iter().for_each(|pid| take(pid, Some(read(pid))));
            };
            let mut done = 0;
            for pid in &rest {
                done += 1;
                match results.recv_timeout(limit) {
                    Ok(result) => take(*pid, Some(result)),
                    Err(error) => {
                        if error == RecvTimeoutError::Timeout {
                            let mut reads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                            reads.insert(*pid, returned);
                        }
                        take(*pid, None);
                        break;
                    }
                }
            }
            rest.drain(..done);
        }
    }
}

/// Starts to read these processes in another thread, which ends after the first read for whose result nobody waits any
/// more. Returns the receiver of the results, and a flag that becomes true when the thread ends.
fn start<R: Send + 'static>(
    pids: Vec<u32>,
    read: impl Fn(u32) -> R + Send + 'static,
) -> io::Result<(mpsc::Receiver<R>, Arc<AtomicBool>)> {
    let (sender, results) = mpsc::channel();
    let returned = Arc::new(AtomicBool::new(false));
    let at_end = Arc::clone(&returned);
    let read_all = move || {
        drop(pids.into_iter().try_for_each(|pid| sender.send(read(pid))));
        at_end.store(true, Ordering::Release);
    };
    drop(thread::Builder::new().name("reads".to_owned()).spawn(read_all)?);
    Ok((results, returned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::wait_until;

    #[test]
    fn a_process_that_does_not_answer_delays_the_others_once_and_is_read_again_when_it_does() {
        let (unanswered, gate) = (Unanswered::new(), Arc::new(AtomicBool::new(false)));
        let opened = Arc::clone(&gate);
        let read = move |pid: u32| {
            while pid == 3 && !opened.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(1));
            }
            pid * 10
        };
        let found = |limit: Duration| {
            let mut found = Vec::new();
            unanswered.read_each_within(limit, &[5, 3, 4, 1], read.clone(), |pid, result| {
                found.push((pid, result));
            });
            found
        };
        let short = Duration::from_millis(200);
        assert_eq!(found(short), [(5, Some(50)), (3, None), (4, Some(40)), (1, Some(10))]);
        assert!(unanswered.contains(3) && !unanswered.contains(4));
        let never = Duration::from_secs(1000);
        assert_eq!(found(never), [(3, None), (5, Some(50)), (4, Some(40)), (1, Some(10))]);
        gate.store(true, Ordering::SeqCst);
        wait_until("it answers", || !unanswered.contains(3));
        assert_eq!(found(never), [(5, Some(50)), (3, Some(30)), (4, Some(40)), (1, Some(10))]);
    }

    #[test]
    fn a_read_that_panics_is_no_answer_and_hides_no_other() {
        let unanswered = Unanswered::new();
        let read = |pid: u32| {
            assert_ne!(pid, 2, "expected by this test");
            pid
        };
        let mut found = Vec::new();
        unanswered.read_each(&[1, 2, 3], read, |pid, result| found.push((pid, result)));
        assert_eq!(found, [(1, Some(1)), (2, None), (3, Some(3))]);
        assert!(!unanswered.contains(2));
    }
}
