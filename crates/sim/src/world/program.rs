//! The programs of a pane: the init of an incarnation and its agent. The init claims its job, starts the program,
//! and reports its end. Its pane is left.

mod agent;
mod hooks;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use protocol::ProcId;
use protocol::job::{self, ExitRecord, JOB_VERSION, Job, Started};
use serde_json::to_vec;
use tmux::{Create, PaneRef};
use tokio::time::{Instant, sleep, sleep_until};
use world::clock::Clock;
use world::tasks::Tasks;

use crate::actors::worker;
use crate::land::Land;
use crate::rng::Rng;
use crate::world::machine::{Kind, Proc};

/// Time between TERM and KILL by an init.
const GRACE: Duration = Duration::from_secs(5);

/// Longer than any run.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Runs the inits of new panes, for ever.
pub(crate) async fn run(land: Land) {
    loop {
        for (create, pane, init) in land.tmux.take_begun() {
            let rng = land.rng(&format!("{init:?}"));
            let run = Incarnation { land: land.clone(), create, pane, init, rng, conversation: None };
            land.life.spawn("init", Box::pin(run.run()));
        }
        land.tmux.input().await;
    }
}

/// An incarnation at work.
struct Incarnation {
    land: Land,
    create: Create,
    pane: PaneRef,
    init: ProcId,
    rng: Rng,
    /// The conversation of an agent that has any.
    conversation: Option<String>,
}

/// The end of a program.
enum End {
    Exited(i32),
    Signalled,
    /// The init itself was killed.
    InitGone,
}

impl Incarnation {
    async fn run(mut self) {
        let (land, job) = (self.land.clone(), self.create.job.clone());
        let delay = self.rng.between(1, 60);
        if self.pause(Duration::from_millis(delay), self.init).await.is_none() {
            return self.end_init();
        }
        let taken = job.with_extension("taken");
        if fs::rename(&job, &taken).is_err() {
            land.trace.tell(|| format!("init of {} finds no job", self.pane.tag));
            return self.end_init();
        }
        let read = fs::read(&taken).ok().and_then(|text| serde_json::from_slice::<Job>(&text).ok());
        drop(fs::write(&taken, to_vec(&self.init).unwrap_or_default()));
        let Some(job_spec) = read else { return self.end_init() };
        // Hosts need no slots.
        let is_host = job_spec.argv.iter().any(|word| word.0 == b"--host");
        let agents = land.machine.agents();
        let counts = |found: &&Proc| found.tag.is_some_and(|tag| !land.judge.is_forgotten(tag));
        let others = if is_host { 0 } else { agents.iter().filter(counts).count() };
        let is_stubborn = self.rng.per_mille(land.climate.stubborn);
        let kind = if is_host { Kind::Host } else { Kind::Agent };
        let agent = land.machine.start(kind, Some(self.pane.tag), is_stubborn);
        self.may_wait_for_a_device(agent);
        land.judge.started((self.pane.tag, job_spec.session), others, self.pane.server);
        land.trace.tell(|| format!("{} runs: {}", self.pane.tag, job_spec.session));
        let started = Started {
            version: JOB_VERSION,
            init: self.init,
            agent,
            at: land.clock.now(),
            unenforced: Vec::new(),
        };
        if land.suffers(&mut self.rng, land.climate.process_kills) {
            // The file that an init leaves if it is killed while it writes.
            write(&job.with_extension("started.tmp"), &started);
        }
        write(&job.with_extension("started"), &started);
        self.begin_output();
        let end = self.work(&job_spec, agent, is_host).await;
        if matches!(end, End::InitGone) {
            // Its terminal is gone. A program that ignores the hangup goes on until it is killed.
            land.machine.hang_up(agent);
            if land.machine.is_hung_up(agent) {
                land.machine.kill(agent);
            }
            land.judge.has_no_init(self.pane.tag);
            return land.tmux.program_ended(self.pane);
        }
        // An init leaves nothing behind.
        let handlers = land
            .machine
            .living()
            .into_iter()
            .filter(|found| found.kind == Kind::Handler && found.tag == Some(self.pane.tag));
        let left: Vec<ProcId> = handlers.map(|found| found.id).chain([agent]).collect();
        left.iter().for_each(|process| land.machine.kill(*process));
        while left.iter().any(|process| land.machine.lives(*process)) {
            if !land.machine.lives(self.init) {
                return land.tmux.program_ended(self.pane);
            }
            land.machine.changed().await;
        }
        self.write_exit(&job, &end).await;
        self.end_init();
    }

    /// Lets a program wait for a device for a while, perhaps.
    fn may_wait_for_a_device(&mut self, agent: ProcId) {
        if !self.land.suffers(&mut self.rng, self.land.climate.uninterruptible) {
            return;
        }
        self.land.judge.count("fault:uninterruptible");
        self.land.machine.block(agent);
        let (machine, mut for_ms) = (self.land.machine.clone(), self.rng.between(1000, 90_000));
        let mut rng = self.land.rng(&format!("device {}", self.pane.tag));
        if rng.per_mille(150) {
            for_ms += rng.between(60_000, 180_000);
        }
        self.land.later("device", for_ms, move || machine.release(agent));
    }

    /// Begins the output of the program, and records where it begins in the log.
    fn begin_output(&self) {
        let dir = &self.create.log.dir;
        drop(fs::create_dir_all(dir));
        let begin = logs::bounds(dir).map_or(0, |(_, end)| end);
        let entry = format!("{} {begin} {}\n", self.land.clock.now().0, self.pane.tag);
        if let Ok(mut file) =
            OpenOptions::new().create(true).append(true).open(dir.join(protocol::logs::TIMES))
        {
            drop(file.write_all(entry.as_bytes()));
        }
        self.output("it begins\n");
    }

    /// Writes into the log of the pane.
    fn output(&self, text: &str) {
        let path = self.create.log.dir.join(protocol::logs::CURRENT);
        drop(fs::create_dir_all(&self.create.log.dir));
        let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path) else { return };
        drop(file.write_all(text.as_bytes()));
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(self.land.clock.now().0);
        drop(file.set_modified(now));
    }

    fn end_init(&self) {
        self.land.machine.end(self.init);
        self.land.tmux.program_ended(self.pane);
    }

    async fn write_exit(&mut self, job: &Path, end: &End) {
        let (code, signal) = match end {
            End::Exited(code) => (Some(*code), None),
            _ => (None, Some(15)),
        };
        let record = ExitRecord {
            version: JOB_VERSION,
            code,
            signal,
            exec_error: None,
            at: self.land.clock.now(),
            user_us: 0,
            system_us: 0,
            max_rss_kib: 0,
            oom_kills: None,
        };
        self.land.judge.exited(self.pane.tag, (code, signal));
        let temporary = job.with_extension("exit.tmp");
        write(&temporary, &record);
        drop(fs::rename(temporary, job.with_extension("exit")));
        self.land.trace.tell(|| format!("{} ended: {code:?} {signal:?}", self.pane.tag));
        let Some(stream) = self.land.net.connect(Some(self.init)) else { return };
        let mut nudge = u32::try_from(job::NUDGE_LEN).unwrap_or(0).to_le_bytes().to_vec();
        nudge.extend(job::nudge(self.pane.tag));
        drop(stream.sender.try_send(&nudge));
        // The init ends a moment after the program.
        sleep(Duration::from_millis(self.rng.between(1, 40))).await;
    }

    /// Sleeps; `None` if the process ends or is asked to end meanwhile.
    async fn pause(&self, by: Duration, process: ProcId) -> Option<()> {
        let machine = &self.land.machine;
        let until = Instant::now() + by;
        loop {
            if !machine.lives(process) || !machine.lives(self.init) || machine.is_hung_up(self.init) {
                return None;
            }
            tokio::select! {
                biased;
                () = machine.changed() => {}
                () = sleep_until(until) => return Some(()),
            }
        }
    }

    async fn work(&mut self, job: &Job, agent: ProcId, is_host: bool) -> End {
        let worked = if is_host { self.host(agent).await } else { self.work_on_prompts(job, agent).await };
        let machine = self.land.machine.clone();
        if let Some(code) = worked {
            return End::Exited(code);
        }
        if !machine.lives(self.init) {
            return End::InitGone;
        }
        if machine.lives(agent) {
            machine.hang_up(agent);
            if !machine.is_hung_up(agent) {
                // It ignores the signal, until it is killed.
                let until = Instant::now() + GRACE;
                while machine.lives(agent) && machine.lives(self.init) && Instant::now() < until {
                    sleep(Duration::from_millis(250)).await;
                }
                if !machine.lives(self.init) {
                    return End::InitGone;
                }
            }
        }
        End::Signalled
    }

    /// Works as the host of a worker. Returns its exit code if it ends by itself.
    async fn host(&self, process: ProcId) -> Option<i32> {
        tokio::select! {
            biased;
            _ = self.pause(FOREVER, process) => None,
            code = worker::host(&self.land, self.pane.tag, process) => Some(code),
        }
    }
}

fn write<T: serde::Serialize>(path: &Path, value: &T) {
    drop(fs::write(path, to_vec(value).unwrap_or_default()));
}
