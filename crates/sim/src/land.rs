//! Everything that outlives the daemons of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use protocol::hook::SPOOL_DIR;
use protocol::{OpId, Paths, Tag};
use tokio::time::sleep;
use world::clock::Clock;
use world::tasks::Tasks;

use crate::climate::Climate;
use crate::judge::Judge;
use crate::plan::Plan;
use crate::rng::Rng;
use crate::trace::Trace;
use crate::world::clock::SimClock;
use crate::world::conversations::Conversations;
use crate::world::disk::Medium;
use crate::world::life::Life;
use crate::world::machine::Machine;
use crate::world::net::Net;
use crate::world::tmux::SimTmux;

/// Difference from which on a file's time is taken for one of the real clock, which is years ahead of the simulated
/// one.
const REAL_CLOCK: Duration = Duration::from_secs(100 * 24 * 3600);

/// Ends of the names of files in the run directory that nobody syncs.
const UNSYNCED: [&str; 3] = [".taken", ".started", ".started.tmp"];

/// The machine of a run with all that is on it.
#[derive(Clone)]
pub(crate) struct Land(Arc<Parts>);

/// The parts of the machine.
pub(crate) struct Parts {
    pub(crate) seed: u64,
    pub(crate) plan: Plan,
    pub(crate) climate: Climate,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) machine: Machine,
    pub(crate) net: Net,
    pub(crate) tmux: SimTmux,
    pub(crate) medium: Medium,
    pub(crate) conversations: Conversations,
    pub(crate) paths: Paths,
    pub(crate) trace: Trace,
    pub(crate) judge: Judge,
    /// The tasks of the world: programs, people, workers.
    pub(crate) life: Life,
    pub(crate) heals: Mutex<bool>,
    /// The helpers of the daemon that are away.
    pub(crate) away: Mutex<BTreeSet<&'static str>>,
    pub(crate) next: Mutex<u64>,
}

impl std::ops::Deref for Land {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl Land {
    pub(crate) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// Returns a stream of random numbers.
    pub(crate) fn rng(&self, name: &str) -> Rng {
        Rng::stream(self.seed, name)
    }

    /// Returns a number that is unique in the run.
    pub(crate) fn unique(&self) -> u64 {
        let mut next = lock(&self.next);
        *next += 1;
        *next
    }

    /// Returns how many unique numbers were given out.
    pub(crate) fn operations(&self) -> u64 {
        *lock(&self.next)
    }

    /// Returns a new operation id.
    pub(crate) fn operation(&self) -> OpId {
        OpId::Random(u128::from(self.unique()).to_le_bytes())
    }

    /// Sets the times of logs that were written by the real clock, as by `clear`, to the simulated time.
    pub(crate) fn date_logs(&self) {
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(self.clock.now().0);
        let Ok(sessions) = std::fs::read_dir(&self.paths.sessions) else { return };
        for session in sessions.flatten() {
            let log = session.path().join("logs").join(protocol::logs::CURRENT);
            let modified = std::fs::metadata(&log).and_then(|found| found.modified());
            if modified.is_ok_and(|at| at > now + REAL_CLOCK)
                && let Ok(file) = std::fs::File::options().append(true).open(&log)
            {
                drop(file.set_modified(now));
            }
        }
    }

    /// Returns the names of the files in the run directory that belong to incarnations, with their tags.
    pub(crate) fn run_files(&self) -> BTreeMap<String, Tag> {
        let files = std::fs::read_dir(&self.paths.run).into_iter().flatten().flatten();
        let names = files.filter_map(|entry| entry.file_name().into_string().ok());
        let tagged = names.filter_map(|name| Some((name.clone(), name.split_once('.')?.0.parse().ok()?)));
        tagged.collect()
    }

    /// Cuts off files that nobody has synced, as a power cut may: claims, records of starts, and reports that hooks
    /// have spooled. Inits sync the records of exits.
    pub(crate) fn tear_files(&self) {
        let mut rng = self.rng(&format!("torn files {}", self.operations()));
        for path in self.unsynced_files() {
            let length = std::fs::metadata(&path).map_or(0, |found| found.len());
            let left = if rng.per_mille(500) { rng.below(length + 1) } else { length };
            if left < length
                && let Ok(file) = std::fs::File::options().write(true).open(&path)
            {
                drop(file.set_len(left));
                self.judge.count("fault:torn file");
                self.judge.lost_reports();
            }
        }
    }

    /// Returns the files that nobody has synced, sorted.
    fn unsynced_files(&self) -> BTreeSet<PathBuf> {
        let is_unsynced = |name: &String| UNSYNCED.iter().any(|end| name.ends_with(end));
        let of_runs = self.run_files().into_keys().filter(is_unsynced).map(|name| self.paths.run.join(name));
        let sessions = std::fs::read_dir(&self.paths.sessions).into_iter().flatten().flatten();
        let spools = sessions.filter_map(|session| std::fs::read_dir(session.path().join(SPOOL_DIR)).ok());
        let spooled = spools.flatten().flatten().map(|entry| entry.path());
        of_runs.chain(spooled).collect()
    }

    /// True if a trouble of this chance happens now, per mille.
    pub(crate) fn suffers(&self, rng: &mut Rng, per_mille: u64) -> bool {
        rng.per_mille(per_mille) && !self.heals()
    }

    /// True once no more faults happen.
    pub(crate) fn heals(&self) -> bool {
        *lock(&self.heals)
    }

    /// Takes a helper of the daemon away, or lets it come back.
    pub(crate) fn set_away(&self, helper: &'static str, is_away: bool) {
        let mut away = lock(&self.away);
        if is_away {
            away.insert(helper)
        } else {
            away.remove(helper)
        };
    }

    /// True while this helper of the daemon is away.
    pub(crate) fn is_away(&self, helper: &str) -> bool {
        lock(&self.away).contains(helper)
    }

    /// Does something in the world after this many milliseconds.
    pub(crate) fn later(&self, name: &'static str, ms: u64, work: impl FnOnce() + Send + 'static) {
        let task = async move {
            sleep(Duration::from_millis(ms)).await;
            work();
        };
        self.life.spawn(name, Box::pin(task));
    }

    /// Ends all faults, and all programs started before the database was restored, as the person does who restored it.
    pub(crate) fn heal(&self) {
        *lock(&self.heals) = true;
        lock(&self.away).clear();
        self.machine.set_full(false);
        let is_forgotten = |tag| self.judge.is_forgotten(tag);
        let left = self.machine.living().into_iter().filter(|found| found.tag.is_some_and(is_forgotten));
        left.for_each(|found| self.machine.kill(found.id));
        self.tmux.detach_all();
        self.tmux.calm();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
