//! The programs of a pane: the init of an incarnation and its agent. The init claims its job, starts the program,
//! and reports its end. Its pane is left.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use protocol::hook::{AwakeTime, Hook, HookEvent, SPOOL_DIR, SPOOL_VERSION, SpooledHook, Start};
use protocol::job::{self, ExitRecord, JOB_VERSION, Job, Started};
use protocol::time::millis;
use protocol::{ProcId, Request, Response, Role, Timestamp};
use serde_json::to_vec;
use tmux::{Create, PaneRef};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use world::clock::Clock;
use world::tasks::Tasks;

use crate::actors::errands::CLEAR;
use crate::actors::worker;
use crate::client::Client;
use crate::land::Land;
use crate::rng::Rng;
use crate::world::machine::Kind;

/// Time between TERM and KILL by an init.
const GRACE: Duration = Duration::from_secs(5);

/// Longer than any run.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Time limit of a hook.
const HOOK_LIMIT: Duration = Duration::from_secs(5);

/// Runs the inits of new panes, for ever.
pub(crate) async fn run(land: Land) {
    loop {
        for (create, pane, init) in land.tmux.take_begun() {
            let run =
                Incarnation { land: land.clone(), create, pane, init, rng: land.rng(&format!("{init:?}")) };
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
        let others = if is_host { 0 } else { land.machine.agents().len() };
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
            // What an init leaves that is killed while it writes.
            write(&job.with_extension("started.tmp"), &started);
        }
        write(&job.with_extension("started"), &started);
        self.output("it begins\n");
        let end = self.work(&job_spec, agent, is_host).await;
        if matches!(end, End::InitGone) {
            // Its terminal is gone. A program that ignores that goes on, until somebody ends it.
            land.machine.hang_up(agent);
            if land.machine.is_hung_up(agent) {
                land.machine.kill(agent);
            }
            return land.tmux.program_ended(self.pane);
        }
        land.machine.kill(agent);
        while land.machine.lives(agent) {
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
        let (machine, for_ms) = (self.land.machine.clone(), self.rng.between(1000, 90_000));
        self.land.later("device", for_ms, move || machine.release(agent));
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

    /// Works on prompts. Returns its exit code if it ends by itself.
    async fn work_on_prompts(&mut self, job: &Job, agent: ProcId) -> Option<i32> {
        let hooks = job.argv.first().is_some_and(|program| program.as_path().ends_with("sim-agent"));
        let start = Duration::from_millis(self.rng.between(10, 1500));
        self.pause(start, agent).await?;
        if hooks {
            self.land.judge.reports(job.session);
            self.hook(job, HookEvent::Started { source: Start::New }).await;
        }
        let mut read = 0;
        loop {
            let typed = self.land.tmux.typed(self.pane.pane);
            let new = typed.get(read..).unwrap_or_default();
            if let Some(length) = new.iter().position(|byte| *byte == b'\r') {
                let text = String::from_utf8_lossy(&new[..length]).replace("<Escape>", "");
                read += length + 1;
                self.output(&text);
                if hooks {
                    self.prompt(job, agent, text).await?;
                }
                if self.rng.per_mille(self.land.climate.crashes) && !self.land.heals() {
                    return Some(i32::try_from(self.rng.below(3)).unwrap_or(0));
                }
                continue;
            }
            let machine = self.land.machine.clone();
            if !machine.lives(agent) || !machine.lives(self.init) || machine.is_hung_up(self.init) {
                return None;
            }
            tokio::select! {
                biased;
                () = machine.changed() => {}
                () = self.land.tmux.input() => {}
            }
        }
    }

    /// Works on a prompt: reports it, and its end.
    async fn prompt(&mut self, job: &Job, agent: ProcId, text: String) -> Option<()> {
        let begin = Duration::from_millis(self.rng.between(1, 200));
        self.pause(begin, agent).await?;
        if text == CLEAR {
            self.hook(job, HookEvent::Started { source: Start::Cleared }).await;
            return Some(());
        }
        self.hook(job, HookEvent::Prompt { text: text.clone(), cut: false, turn: None }).await;
        if self.land.suffers(&mut self.rng, self.land.climate.permissions) {
            self.permission(job, agent).await?;
        }
        let work = Duration::from_millis(self.rng.between(5, 20_000));
        self.pause(work, agent).await?;
        self.output("it works\n");
        if self.land.suffers(&mut self.rng, self.land.climate.usage_limits) {
            let until = self.land.clock.now().after(Duration::from_secs(20));
            let error = "limit".to_owned();
            self.hook(job, HookEvent::TurnFailed { error, limited: true, until: Some(until) }).await;
            return Some(());
        }
        let end = match self.rng.below(20) {
            0 => HookEvent::Interrupted,
            1 => HookEvent::TurnFailed { error: "an error".to_owned(), limited: false, until: None },
            _ => HookEvent::TurnOver { turn: None, said: Some("done".to_owned()) },
        };
        self.land.judge.finished(&text);
        self.hook(job, end).await;
        Some(())
    }

    /// Asks for a permission, and waits for the answer; without one, somebody answers at the terminal.
    async fn permission(&mut self, job: &Job, agent: ProcId) -> Option<()> {
        let wait_ms = self.rng.between(0, 20_000);
        let signal = HookEvent::Permission { tool: "Bash".to_owned(), text: "ls".to_owned(), wait_ms };
        let hook = self.report(job, signal);
        let limit = Duration::from_millis(wait_ms + 5000);
        let decided = timeout(limit, ask(&self.land, hook, self.init)).await;
        self.land.judge.count(format!("permission:{}", matches!(decided, Ok(Some(true)))));
        let pause = Duration::from_millis(self.rng.between(100, 30_000));
        self.pause(pause, agent).await?;
        self.hook(job, HookEvent::Working { what: None, skill: None }).await;
        Some(())
    }

    /// Returns the report of an event.
    fn report(&mut self, job: &Job, signal: HookEvent) -> Hook {
        Hook {
            session: job.session,
            tag: job.tag,
            id: self.rng.next(),
            at: self.land.clock.now(),
            awake: Some(AwakeTime { boot: self.land.machine.boot_id(), ms: millis(self.land.clock.awake()) }),
            agent: "sim".to_owned(),
            conversation: None,
            transcript: None,
            signal,
        }
    }

    /// Reports an event, as `poolctl hook` does: to the daemon, or else into the spool.
    async fn hook(&mut self, job: &Job, signal: HookEvent) {
        let hook = self.report(job, signal);
        let sent = timeout(HOOK_LIMIT, send(&self.land, hook.clone(), self.init)).await;
        let is_sent = matches!(sent, Ok(Some(())));
        self.land.trace.tell(|| {
            let how = if is_sent { "reports" } else { "spools" };
            format!("{} {how} {:?}", self.pane.tag, hook.signal)
        });
        if !is_sent {
            self.land.judge.count("hook:spooled");
            self.spool(job, &hook);
        }
        if self.rng.per_mille(self.land.climate.repeated_hooks) {
            self.repeat(hook);
        }
    }

    /// Sends a report once more, at once or later.
    fn repeat(&mut self, hook: Hook) {
        self.land.judge.count("hook:repeated");
        let later = if self.rng.per_mille(500) { self.rng.below(20_000) } else { 0 };
        let (land, tag, init) = (self.land.clone(), self.pane.tag, self.init);
        let again = async move {
            sleep(Duration::from_millis(later)).await;
            land.trace.tell(|| format!("{tag} repeats {:?}", hook.signal));
            drop(timeout(HOOK_LIMIT, send(&land, hook, init)).await);
        };
        self.land.life.spawn("repeated hook", Box::pin(again));
    }

    fn spool(&mut self, job: &Job, hook: &Hook) {
        let dir = self.land.paths.session(job.session).join(SPOOL_DIR);
        drop(fs::create_dir_all(&dir));
        let mut hook = hook.clone();
        if let Some(newest) = newest_in(&dir) {
            hook.at = hook.at.max(newest.after(Duration::from_millis(1)));
        }
        let name = format!("{:020}-{:016x}.json", hook.at.0, hook.id);
        let spooled = SpooledHook { version: SPOOL_VERSION, hook };
        let hidden = dir.join(format!(".{name}"));
        write(&hidden, &spooled);
        drop(fs::rename(hidden, dir.join(name)));
    }
}

/// Returns the time of the newest report in a spool.
fn newest_in(dir: &Path) -> Option<Timestamp> {
    let names = fs::read_dir(dir).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let times = names.filter_map(|name| name.trim_start_matches('.').split('-').next()?.parse().ok());
    times.max().map(Timestamp)
}

async fn send(land: &Land, hook: Hook, process: ProcId) -> Option<()> {
    let mut client = Client::connect(&land.net, Role::Client, Some(process)).await?;
    client.call(None, Request::Hook(Box::new(hook))).await?.ok().map(drop)
}

/// Reports a permission request. True if it was decided, and the decision taken.
async fn ask(land: &Land, hook: Hook, process: ProcId) -> Option<bool> {
    let (session, ask) = (hook.session, hook.id);
    let mut client = Client::connect(&land.net, Role::Client, Some(process)).await?;
    let Ok(Response::Decided(_)) = client.call(None, Request::Hook(Box::new(hook))).await? else {
        return Some(false);
    };
    client.call(None, Request::DecisionTaken { session, ask }).await?.ok()?;
    Some(true)
}

fn write<T: serde::Serialize>(path: &Path, value: &T) {
    drop(fs::write(path, to_vec(value).unwrap_or_default()));
}
