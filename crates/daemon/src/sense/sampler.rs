//! Samples many sessions in rounds. A session whose files or terminal do not answer delays no other one, and
//! is sampled again once its pending sample has ended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pool::Agent;
use pool::agent::ScreenReading;
use process::runtime::containment::contain;
use protocol::Tag;
use tmux::PaneRef;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use world::World;

use crate::sense::sample_target::SampleTarget;
use crate::sense::session_sample::{Sample, SampleState};

/// Time without a result after which a round stops waiting for the pending samples.
const STALL: Duration = Duration::from_millis(500);

/// Maximum number of reading threads: one while files answer, and one more for each that does not.
const READERS_MAX: usize = 64;

/// Maximum number of terminals read at a time.
const SCREEN_READS_MAX: usize = 8;

/// Reads a session's files.
type ReadFiles = Arc<dyn Fn(&SampleTarget, &mut SampleState) + Send + Sync>;

type Sampled = (SampleTarget, SampleState);

type Queue = Arc<Mutex<VecDeque<Sampled>>>;

/// A finished part of a sample.
enum Finished {
    Files(Sampled),
    Screen(Sampled),
}

/// Samples sessions, round after round.
pub(crate) struct Sampler<G> {
    world: World,
    read_files: ReadFiles,
    read_screen: G,
    /// The states of the sessions whose samples are not pending.
    states: BTreeMap<Tag, SampleState>,
    /// Sessions whose samples did not end within their own round.
    pending: BTreeSet<Tag>,
    results: mpsc::UnboundedReceiver<Finished>,
    sender: mpsc::UnboundedSender<Finished>,
    readers: Arc<Semaphore>,
    screen_reads: Arc<Semaphore>,
}

impl<G, F> Sampler<G>
where
    G: Fn(Arc<Agent>, PaneRef) -> F,
    F: Future<Output = Option<ScreenReading>> + Send + 'static,
{
    /// Creates a sampler. `read_screen` reads and interprets a terminal; `None` if that fails.
    pub(crate) fn new(
        world: World,
        read_files: impl Fn(&SampleTarget, &mut SampleState) + Send + Sync + 'static,
        read_screen: G,
    ) -> Self {
        let (sender, results) = mpsc::unbounded_channel();
        Self {
            world,
            read_files: Arc::new(read_files),
            read_screen,
            states: BTreeMap::new(),
            pending: BTreeSet::new(),
            results,
            sender,
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            screen_reads: Arc::new(Semaphore::new(SCREEN_READS_MAX)),
        }
    }

    /// Forgets the states of all incarnations but these.
    pub(crate) fn forget_others(&mut self, present: BTreeSet<Tag>) {
        self.states.retain(|tag, _| present.contains(tag));
    }

    /// Samples the targets whose last sample is not pending.
    pub(crate) async fn sample(&mut self, targets: Vec<SampleTarget>) -> Vec<(SampleTarget, Sample)> {
        while let Ok(finished) = self.results.try_recv() {
            self.keep_late(finished);
        }
        let mut queue: VecDeque<Sampled> = VecDeque::with_capacity(targets.len());
        for target in targets.into_iter().filter(|target| !self.pending.contains(&target.tag)) {
            let state = self.states.remove(&target.tag).unwrap_or_default();
            queue.push_back((target, state));
        }
        let mut awaited: BTreeSet<Tag> = queue.iter().map(|(target, _)| target.tag).collect();
        let mut samples = Vec::with_capacity(queue.len());
        let queue = Arc::new(Mutex::new(queue));
        let mut goes_on = self.start_reader(&queue);
        while goes_on && !awaited.is_empty() {
            match timeout(STALL, self.results.recv()).await {
                Ok(Some(Finished::Files((target, state)))) if awaited.contains(&target.tag) => {
                    let now = self.world.clock.now();
                    match target.pane.filter(|_| state.wants_screen(&target, now)) {
                        Some(pane) => self.start_screen_read(pane, (target, state)),
                        None => samples.push(self.finish((target, state), &mut awaited)),
                    }
                }
                Ok(Some(Finished::Screen(sampled))) if awaited.contains(&sampled.0.tag) => {
                    samples.push(self.finish(sampled, &mut awaited));
                }
                Ok(finished) => finished.into_iter().for_each(|finished| self.keep_late(finished)),
                // Another thread takes over the sessions that the hanging thread has not sampled.
                Err(_) => goes_on = !lock(&queue).is_empty() && self.start_reader(&queue),
            }
        }
        // If no thread was free, the sessions that are left are not sampled in this round.
        for (target, state) in lock(&queue).drain(..) {
            awaited.remove(&target.tag);
            self.states.insert(target.tag, state);
        }
        self.pending.extend(awaited);
        samples
    }

    /// Stores the state of a finished sample, and returns its result.
    fn finish(&mut self, (target, state): Sampled, awaited: &mut BTreeSet<Tag>) -> (SampleTarget, Sample) {
        awaited.remove(&target.tag);
        let sample = state.sample();
        self.states.insert(target.tag, state);
        (target, sample)
    }

    /// Keeps a late result for the next round.
    fn keep_late(&mut self, finished: Finished) {
        let (Finished::Files((target, state)) | Finished::Screen((target, state))) = finished;
        self.pending.remove(&target.tag);
        self.states.insert(target.tag, state);
    }

    /// Starts one more thread that reads the queue. Returns false if the maximum is reached.
    fn start_reader(&self, queue: &Queue) -> bool {
        let Ok(permit) = Arc::clone(&self.readers).try_acquire_owned() else { return false };
        let (queue, sender, read_files) =
            (Arc::clone(queue), self.sender.clone(), Arc::clone(&self.read_files));
        self.world.tasks.block(Box::new(move || {
            let next = || lock(&queue).pop_front();
            while let Some((target, mut state)) = next() {
                // A session that cannot be read keeps the rest of its state, and is tried again.
                contain(|| read_files(&target, &mut state));
                // The receiver is gone when the daemon ends.
                drop(sender.send(Finished::Files((target, state))));
            }
            drop(permit);
        }));
        true
    }

    fn start_screen_read(&self, pane: PaneRef, (target, mut state): Sampled) {
        let read = (self.read_screen)(Arc::clone(&target.agent), pane);
        let (screen_reads, sender) = (Arc::clone(&self.screen_reads), self.sender.clone());
        let clock = Arc::clone(&self.world.clock);
        self.world.spawn("screen", async move {
            let permit = screen_reads.acquire().await;
            let began = clock.now();
            if let Some(screen) = read.await {
                state.set_screen(screen, began);
            }
            drop(permit);
            drop(sender.send(Finished::Screen((target, state))));
        });
    }
}

fn lock(queue: &Queue) -> MutexGuard<'_, VecDeque<Sampled>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicU32, Ordering};

    use agents::Adapter;
    use agents::screen::Composer;
    use protocol::{PaneId, SessionId};
    use tmux::ServerRef;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// An agent whose screen is read in each round.
    fn target(number: u8, log: &Path) -> SampleTarget {
        let (tag, agent) = (Tag([number; 16]), Agent { adapter: Adapter::Claude, ..Agent::default() });
        let server = ServerRef { pid: 1, started_at: 1 };
        SampleTarget {
            pane: Some(PaneRef { server, pane: PaneId(number.into()), tag }),
            agent: Arc::new(agent),
            ..SampleTarget::plain((SessionId(number.into()), tag), log)
        }
    }

    fn numbers(found: &[(SampleTarget, Sample)]) -> Vec<u64> {
        let mut numbers: Vec<u64> = found.iter().map(|(target, _)| target.id.0).collect();
        numbers.sort();
        numbers
    }

    fn look() -> ScreenReading {
        ScreenReading { composer: Composer::Empty, ..ScreenReading::default() }
    }

    /// A pipe without a peer; becomes a file when dropped.
    struct Pipe(PathBuf);

    impl Drop for Pipe {
        fn drop(&mut self) {
            let other_end = OpenOptions::new().read(true).write(true).open(&self.0);
            drop((fs::remove_file(&self.0), fs::write(&self.0, "")));
            drop(other_end);
        }
    }

    /// Samples until a round includes all targets.
    async fn await_all<G, F>(sampler: &mut Sampler<G>, targets: impl Fn() -> Vec<SampleTarget>)
    where
        G: Fn(Arc<Agent>, PaneRef) -> F,
        F: Future<Output = Option<ScreenReading>> + Send + 'static,
    {
        let all = async { while sampler.sample(targets()).await.len() < targets().len() {} };
        timeout(PATIENCE, all).await.expect("a pending sample is repeated");
    }

    /// Waits until this many threads read: one that has sent its results may not have ended yet.
    async fn busy<G>(sampler: &Sampler<G>, count: usize) {
        let free = || sampler.readers.available_permits();
        let all = async {
            while free() + count != READERS_MAX {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let came = timeout(PATIENCE, all).await;
        assert!(came.is_ok(), "{} threads read", READERS_MAX - free());
    }

    #[tokio::test]
    async fn a_file_that_does_not_answer_delays_no_other_session() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, pipe) = (dir.path().join("plain"), Pipe(dir.path().join("pipe")));
        fs::write(&plain, "").unwrap();
        nix::unistd::mkfifo(&pipe.0, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let path = pipe.0.clone();
        let targets = || (0..20).map(|n| target(n, if n % 9 == 3 { &path } else { &plain })).collect();
        // Opening a pipe blocks until its other end is open.
        let mut sampler =
            Sampler::new(World::system(), |target, _| drop(fs::read(&target.log)), async |_, _| Some(look()));
        let others: Vec<u64> = (0..20).filter(|n| n % 9 != 3).collect();
        for _ in 0..3 {
            assert_eq!(numbers(&sampler.sample(targets()).await), others);
        }
        // Each session that hangs holds one thread.
        busy(&sampler, 2).await;
        drop(pipe);
        await_all(&mut sampler, targets).await;
        busy(&sampler, 0).await;
    }

    #[tokio::test]
    async fn a_terminal_that_does_not_answer_delays_no_other_and_a_failed_read_is_repeated() {
        let (fails, stalls) = (Arc::new(AtomicU32::new(2)), Arc::new(Semaphore::new(0)));
        let (failing, stalling) = (Arc::clone(&fails), Arc::clone(&stalls));
        let read_screen = move |_, pane: PaneRef| {
            let (fails, stalls) = (Arc::clone(&failing), Arc::clone(&stalling));
            async move {
                match pane.pane.0 {
                    1 => drop(stalls.acquire().await),
                    2 if fails
                        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                        .is_ok() =>
                    {
                        return None;
                    }
                    _ => {}
                }
                Some(look())
            }
        };
        let mut sampler = Sampler::new(World::system(), |_, _| {}, read_screen);
        let targets = || (0..30).map(|n| target(n, Path::new("/"))).collect::<Vec<_>>();
        for left in [1, 0, 0] {
            let found = sampler.sample(targets()).await;
            assert_eq!(numbers(&found), (0..30).filter(|n| *n != 1).collect::<Vec<_>>());
            assert_eq!(fails.load(Ordering::SeqCst), left);
        }
        assert!(sampler.states.values().all(|state| state.sample().screen.is_some()));
        stalls.add_permits(1);
        await_all(&mut sampler, targets).await;
    }
}
