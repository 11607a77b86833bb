//! One round of looks at many sessions. One whose file system or terminal does not answer is alone with that: the others
//! go on, and it is looked at again once that look has come to an end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pool::Agent;
use pool::activity::Look;
use protocol::Tag;
use tmux::PaneRef;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use crate::host::clock;
use crate::sense::screen::{Found, Watched};
use crate::sense::subject::Subject;

/// Where nothing came for so long, what is out is not waited for in this round.
const STALL: Duration = Duration::from_millis(500);

/// Threads that read, at most: one as long as files answer, and one more for each that does not.
const READERS: usize = 64;

/// Terminals that are looked at at a time.
const GLANCES: usize = 8;

/// Reads what a session's files say now.
pub(crate) type Read = fn(&Subject, &mut Watched);

type Looked = (Subject, Watched);

type Queue = Arc<Mutex<VecDeque<Looked>>>;

/// What came to an end.
enum Came {
    Read(Looked),
    Glanced(Looked),
}

/// Round after round.
pub(crate) struct Rounds<G> {
    read: Read,
    glance: G,
    /// What is remembered of those that are not out.
    known: BTreeMap<Tag, Watched>,
    /// Those whose look has not come to an end in its own round.
    out: BTreeSet<Tag>,
    came: mpsc::UnboundedReceiver<Came>,
    sender: mpsc::UnboundedSender<Came>,
    readers: Arc<Semaphore>,
    glances: Arc<Semaphore>,
}

impl<G, F> Rounds<G>
where
    G: Fn(Arc<Agent>, PaneRef) -> F,
    F: Future<Output = Option<Look>> + Send + 'static,
{
    /// `glance` tells how a terminal looks; none where that cannot be told.
    pub(crate) fn new(read: Read, glance: G) -> Self {
        let (sender, came) = mpsc::unbounded_channel();
        let (readers, glances) = (Arc::new(Semaphore::new(READERS)), Arc::new(Semaphore::new(GLANCES)));
        Self { read, glance, known: BTreeMap::new(), out: BTreeSet::new(), came, sender, readers, glances }
    }

    /// Looks at all of them but those that are out.
    pub(crate) async fn look(&mut self, subjects: Vec<Subject>) -> Vec<(Subject, Found)> {
        while let Ok(came) = self.came.try_recv() {
            self.late(came);
        }
        let there: BTreeSet<Tag> = subjects.iter().map(|subject| subject.tag).collect();
        self.known.retain(|tag, _| there.contains(tag));
        let mut queue: VecDeque<Looked> = VecDeque::with_capacity(subjects.len());
        for subject in subjects.into_iter().filter(|subject| !self.out.contains(&subject.tag)) {
            let watched = self.known.remove(&subject.tag).unwrap_or_default();
            queue.push_back((subject, watched));
        }
        let mut awaited: BTreeSet<Tag> = queue.iter().map(|(subject, _)| subject.tag).collect();
        let mut found = Vec::with_capacity(queue.len());
        let queue = Arc::new(Mutex::new(queue));
        let mut on = self.reader(&queue);
        while on && !awaited.is_empty() {
            match timeout(STALL, self.came.recv()).await {
                Ok(Some(Came::Read((subject, watched)))) if awaited.contains(&subject.tag) => {
                    let now = clock::now();
                    match subject.pane.filter(|_| watched.wants_glance(&subject, now)) {
                        Some(pane) => self.glance_at(pane, (subject, watched)),
                        None => found.push(self.keep((subject, watched), &mut awaited)),
                    }
                }
                Ok(Some(Came::Glanced(looked))) if awaited.contains(&looked.0.tag) => {
                    found.push(self.keep(looked, &mut awaited));
                }
                Ok(came) => came.into_iter().for_each(|came| self.late(came)),
                // Another takes over what the one that hangs has left.
                Err(_) => on = !lock(&queue).is_empty() && self.reader(&queue),
            }
        }
        // Where no reader is free any more, with what was known before.
        let unread: Vec<Looked> = lock(&queue).drain(..).collect();
        found.extend(unread.into_iter().map(|looked| self.keep(looked, &mut awaited)));
        self.out.extend(awaited);
        found
    }

    fn keep(&mut self, (subject, watched): Looked, awaited: &mut BTreeSet<Tag>) -> (Subject, Found) {
        awaited.remove(&subject.tag);
        let found = watched.found();
        self.known.insert(subject.tag, watched);
        (subject, found)
    }

    /// What was found counts from the next round on.
    fn late(&mut self, came: Came) {
        let (Came::Read((subject, watched)) | Came::Glanced((subject, watched))) = came;
        self.out.remove(&subject.tag);
        self.known.insert(subject.tag, watched);
    }

    /// One more thread reads what is left. Whether one was free.
    fn reader(&self, queue: &Queue) -> bool {
        let Ok(place) = Arc::clone(&self.readers).try_acquire_owned() else { return false };
        let (queue, sender, read) = (Arc::clone(queue), self.sender.clone(), self.read);
        tokio::task::spawn_blocking(move || {
            let next = || lock(&queue).pop_front();
            while let Some((subject, mut watched)) = next() {
                read(&subject, &mut watched);
                // Nobody listens any more when the daemon ends.
                drop(sender.send(Came::Read((subject, watched))));
            }
            drop(place);
        });
        true
    }

    fn glance_at(&self, pane: PaneRef, (subject, mut watched): Looked) {
        let look = (self.glance)(Arc::clone(&subject.agent), pane);
        let (glances, sender) = (Arc::clone(&self.glances), self.sender.clone());
        tokio::spawn(async move {
            let place = glances.acquire().await;
            let began = clock::now();
            if let Some(look) = look.await {
                watched.glanced(look, began);
            }
            drop(place);
            drop(sender.send(Came::Glanced((subject, watched))));
        });
    }
}

fn lock(queue: &Queue) -> MutexGuard<'_, VecDeque<Looked>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicU32, Ordering};

    use agents::Adapter;
    use agents::screen::Composer;
    use protocol::{PaneId, SessionId, Timestamp};
    use tmux::ServerRef;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// An agent that may show something at any time.
    fn subject(number: u8, log: &Path) -> Subject {
        let (tag, agent) = (Tag([number; 16]), Agent { adapter: Adapter::Claude, ..Agent::default() });
        let server = ServerRef { pid: 1, started_at: 1 };
        Subject {
            id: SessionId(number.into()),
            tag,
            pane: Some(PaneRef { server, pane: PaneId(number.into()), tag }),
            agent: Arc::new(agent),
            started_at: Timestamp(0),
            start_limit: Timestamp(0),
            known: Default::default(),
            notes: Default::default(),
            hooked: false,
            attached: false,
            unconfirmed: None,
            shell: None,
            log: log.to_owned(),
            record: None,
        }
    }

    fn numbers(found: &[(Subject, Found)]) -> Vec<u64> {
        let mut numbers: Vec<u64> = found.iter().map(|(subject, _)| subject.id.0).collect();
        numbers.sort();
        numbers
    }

    fn look() -> Look {
        Look { at: clock::now(), composer: Composer::Empty, dialog: None, works: None, background: None }
    }

    /// A pipe, at whose other end nobody is. In the end it becomes a file.
    struct Pipe(PathBuf);

    impl Drop for Pipe {
        fn drop(&mut self) {
            let other_end = OpenOptions::new().read(true).write(true).open(&self.0);
            drop((fs::remove_file(&self.0), fs::write(&self.0, "")));
            drop(other_end);
        }
    }

    /// Looks again until all of so many are there.
    async fn await_all<G, F>(rounds: &mut Rounds<G>, subjects: impl Fn() -> Vec<Subject>)
    where
        G: Fn(Arc<Agent>, PaneRef) -> F,
        F: Future<Output = Option<Look>> + Send + 'static,
    {
        let all = async { while rounds.look(subjects()).await.len() < subjects().len() {} };
        timeout(PATIENCE, all).await.expect("it is looked at again");
    }

    /// Waits until so many threads read: one that has sent what it read may not have ended yet.
    async fn busy<G>(rounds: &Rounds<G>, count: usize) {
        let free = || rounds.readers.available_permits();
        let all = async {
            while free() + count != READERS {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let came = timeout(PATIENCE, all).await;
        assert!(came.is_ok(), "{} threads read", READERS - free());
    }

    #[tokio::test]
    async fn a_file_that_does_not_answer_keeps_no_other_session_from_being_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, pipe) = (dir.path().join("plain"), Pipe(dir.path().join("pipe")));
        fs::write(&plain, "").unwrap();
        nix::unistd::mkfifo(&pipe.0, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let path = pipe.0.clone();
        let subjects = || (0..20).map(|n| subject(n, if n % 9 == 3 { &path } else { &plain })).collect();
        // To open a pipe takes until its other end is open.
        let mut rounds = Rounds::new(|subject, _| drop(fs::read(&subject.log)), async |_, _| Some(look()));
        let others: Vec<u64> = (0..20).filter(|n| n % 9 != 3).collect();
        for _ in 0..3 {
            assert_eq!(numbers(&rounds.look(subjects()).await), others);
        }
        // A thread for each that hangs.
        busy(&rounds, 2).await;
        drop(pipe);
        await_all(&mut rounds, subjects).await;
        busy(&rounds, 0).await;
    }

    #[tokio::test]
    async fn a_terminal_that_does_not_answer_keeps_no_other_from_being_looked_at_and_a_failed_look_is_repeated()
     {
        let (fails, stalls) = (Arc::new(AtomicU32::new(2)), Arc::new(Semaphore::new(0)));
        let (failing, stalling) = (Arc::clone(&fails), Arc::clone(&stalls));
        let glance = move |_, pane: PaneRef| {
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
        let mut rounds = Rounds::new(|_, _| {}, glance);
        let subjects = || (0..30).map(|n| subject(n, Path::new("/"))).collect::<Vec<_>>();
        for left in [1, 0, 0] {
            let found = rounds.look(subjects()).await;
            assert_eq!(numbers(&found), (0..30).filter(|n| *n != 1).collect::<Vec<_>>());
            assert_eq!(fails.load(Ordering::SeqCst), left);
        }
        assert!(rounds.known.values().all(|watched| watched.found().look.is_some()));
        stalls.add_permits(1);
        await_all(&mut rounds, subjects).await;
    }
}
