//! One run: harm, then healing. While faults happen, the judge watches each step; afterwards everything has
//! to settle, and the pool's word is compared with the world.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use protocol::Paths;
use protocol::paths::{Env, prepare_dir};
use store::Store;
use tokio::time::{Instant, sleep};
use world::tasks::Tasks;

use crate::actors::client::Actor;
use crate::actors::doctor::{self, RESERVE};
use crate::actors::errands::{CLEAR, GO_ON};
use crate::actors::{person, reaper, subscriber, watcher, worker};
use crate::climate::Climate;
use crate::daemon_process::DaemonProcess;
use crate::harm::{Harms, revive};
use crate::judge::Judge;
use crate::land::{Land, Parts};
use crate::plan::Plan;
use crate::rng::Rng;
use crate::settled;
use crate::trace::Trace;
use crate::world::clock::SimClock;
use crate::world::conversations::Conversations;
use crate::world::disk::Medium;
use crate::world::life::{Jitter, Life};
use crate::world::machine::Machine;
use crate::world::net::Net;
use crate::world::program;
use crate::world::tmux::SimTmux;

/// Clients of a run.
const CLIENTS: u64 = 3;

/// Maximum lines of a failure's story.
const STORY_MAX: usize = 60;

/// Time within which everything has to settle after the last fault. The longest pause of the pool is half an hour.
const SETTLE_LIMIT: Duration = Duration::from_secs(3600);

/// The same where agents meet usage limits or the clock is set. The longest wait is for a limit whose end was told by a
/// clock set ahead: at most the sum of all steps of the clock in a run.
const LONG_SETTLE_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Number of polls of all tasks after the last fault beyond which a run counts as one that never comes to rest. It is
/// many times the usual number: comparing a hundred messages for hours, until a usage limit ends, takes half of it.
const POLLS_MAX: u64 = 2_000_000;

/// The result of a run.
pub(crate) struct Outcome {
    pub(crate) hash: u64,
    pub(crate) polls: u64,
    pub(crate) violations: Vec<String>,
    pub(crate) counts: BTreeMap<String, u64>,
    pub(crate) story: Vec<String>,
    /// The parts of the plan that came up.
    pub(crate) parts: BTreeSet<String>,
}

/// Runs a seed in this directory, which is empty.
pub(crate) fn run(seed: u64, plan: Plan, dir: &Path, is_verbose: bool) -> anyhow::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let outcome = runtime.block_on(async {
        let land = land(seed, plan, dir, is_verbose)?;
        conduct(&land).await;
        land.life.kill().await;
        anyhow::Ok(Outcome {
            hash: land.trace.hash(),
            polls: land.trace.polls(),
            violations: land.judge.violations(),
            counts: land.judge.counts(),
            story: land.trace.last(STORY_MAX),
            parts: land.plan.parts(),
        })
    });
    runtime.shutdown_background();
    outcome
}

fn land(seed: u64, plan: Plan, dir: &Path, is_verbose: bool) -> anyhow::Result<Land> {
    let mut climate = Climate::draw(seed);
    climate.restrict(&plan);
    let env = Env { state_dir: Some(dir.join("state").into()), home: Some(dir.to_owned()), ..Env::default() };
    let mut paths = Paths::new(&env)?;
    paths.config = dir.join("config.toml");
    for part in [&paths.state, &paths.run, &paths.sessions] {
        prepare_dir(part)?;
    }
    std::fs::write(&paths.config, config(&climate))?;
    // A file that others can write is refused.
    std::fs::set_permissions(&paths.config, Permissions::from_mode(0o600))?;
    // `status` looks for them, and nobody runs them.
    for name in ["reaper", "poolctl"] {
        let path = paths.state.join(name);
        std::fs::write(&path, "")?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o700))?;
    }
    let trace = Trace::new(is_verbose);
    let judge = Judge::new(usize::try_from(climate.slots)?, trace.clone());
    let life = Life::new(Rng::stream(seed, "world"), Jitter { yields: 0, sleeps: 0 }, trace.clone());
    let machine = Machine::default();
    let clock = Arc::new(SimClock::new());
    let parts = (trace.clone(), judge.clone());
    let tmux = SimTmux::new(
        (machine.clone(), life.clone(), Arc::clone(&clock)),
        parts,
        (Rng::stream(seed, "tmux"), climate.clone()),
    );
    trace.tell(|| format!("seed {seed}: {climate:?}"));
    Ok(Land::new(Parts {
        seed,
        clock,
        machine,
        net: Net::default(),
        tmux,
        medium: Medium::holding(first_image()?),
        conversations: Conversations::default(),
        paths,
        trace,
        judge,
        life,
        heals: Mutex::new(false),
        away: Mutex::default(),
        next: Mutex::new(0),
        plan,
        climate,
    }))
}

/// Returns the content of a new database, which is the same for all runs.
fn first_image() -> anyhow::Result<Vec<u8>> {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    if let Some(image) = IMAGE.get() {
        return Ok(image.clone());
    }
    let medium = Medium::default();
    let life = Life::new(Rng::stream(0, "image"), Jitter { yields: 0, sleeps: 0 }, Trace::new(false));
    let (store, _) = Store::with_backend(medium.open(life))?;
    store.close()?;
    Ok(IMAGE.get_or_init(|| medium.bytes()).clone())
}

/// An agent that tells of outages, and resumes conversations by their ids.
const ADAPTER: &str = r#"
adapter = "claude"
start_args = ["--session-id", "{conversation}"]
resume_args = ["--resume", "{conversation}"]
"#;

/// An agent that the pool does not know.
const NO_ADAPTER: &str = r#"resume_args = ["--resume"]"#;

/// The pool's own worker, with the highest number of restarts that a configuration may have.
const HOST: &str = r#"
[workers.helper]
command = ["handler"]
kinds = ["task"]
sessions = "all"
idle_end = "5s"
max_restarts = 128
"#;

fn config(climate: &Climate) -> String {
    let host = if climate.has_host { HOST } else { "" };
    let adapter = if climate.has_adapter { ADAPTER } else { NO_ADAPTER };
    format!(
        r#"
[pool]
max_sessions = {}
cgroup = "off"
min_free_memory = "0"
min_free_disk = "0"
keep_stopped = "{}"
idle_quiet = "2s"
idle_timeout = "{}"

[restart]
policy = "{}"
backoff_max = "5s"

[restore]
on_start = {}

[queue]
max_messages = {}
keep_count = {}
min_free_disk = "{}MiB"
breaker_pause = "5s"

[reaper]
stale_worker = "{}"

[agents.sim]
command = "/sim/sim-agent"
confirm = "hook"
clear = "{CLEAR}"
go_on = "{GO_ON}"
{adapter}

[agents.plain]
command = "/sim/sim-plain"
confirm = "none"

[agents.quiet]
command = "/sim/sim-quiet"
confirm = "none"
start_args = ["--session-id", "{{conversation}}"]
resume_args = ["--resume", "{{conversation}}"]
{host}"#,
        climate.slots,
        climate.keep_stopped.map_or("30d".to_owned(), |keep| format!("{}s", keep.as_secs())),
        climate.idle_timeout.map_or("never".to_owned(), |idle| format!("{}s", idle.as_secs())),
        climate.restart,
        climate.restores,
        climate.messages_max,
        climate.finished_max,
        if climate.full_disks > 0 { RESERVE >> 20 } else { 0 },
        if climate.heartbeats > 0 { "20s" } else { "5m" }
    )
}

async fn conduct(land: &Land) {
    land.life.spawn("programs", Box::pin(program::run(land.clone())));
    land.life.spawn("watcher", Box::pin(watcher::run(land.clone())));
    land.life.spawn("reaper", Box::pin(reaper::run(land.clone())));
    land.life.spawn("person", Box::pin(person::run(land.clone())));
    land.life.spawn("subscriber", Box::pin(subscriber::run(land.clone())));
    doctor::start(land);
    // Two workers a session: one may go on where the other hangs.
    let names = land.climate.names;
    for n in (0..names).chain(0..names) {
        land.life.spawn("worker", Box::pin(worker::run(land.clone(), format!("s{n}"))));
    }
    let steps = land.climate.steps;
    let actors: Vec<_> = (0..CLIENTS)
        .map(|n| tokio::spawn(Actor::new(land.clone(), &format!("client{n}")).run(steps)))
        .collect();
    let mut is_probed = false;
    let (mut daemon, mut harms) = (DaemonProcess::start(land, None), Harms::default());
    while !actors.iter().all(tokio::task::JoinHandle::is_finished) {
        daemon = harms.next(land, daemon).await;
        if !land.judge.violations().is_empty() {
            return daemon.kill(land).await;
        }
    }
    land.trace.tell(|| "no more faults".to_owned());
    land.heal();
    daemon.faults.withdraw();
    land.clock.set_right();
    let is_long = land.climate.usage_limits + land.climate.clock_steps > 0;
    let limit = if is_long { LONG_SETTLE_LIMIT } else { SETTLE_LIMIT };
    let (until, polls_max) = (Instant::now() + limit, land.trace.polls() + POLLS_MAX);
    loop {
        daemon = revive(land, daemon).await;
        sleep(Duration::from_secs(20)).await;
        land.date_logs();
        let is_last = Instant::now() >= until || land.trace.polls() > polls_max;
        match settled::judge(land, is_last).await {
            None if land.judge.violations().is_empty() => {}
            Some(()) if !is_probed && land.judge.violations().is_empty() => {
                is_probed = true;
                Actor::new(land.clone(), "probe").probe().await;
            }
            _ => {
                if land.life.panicked().is_some() {
                    land.judge.violated("a task of the world panicked".to_owned());
                }
                return daemon.kill(land).await;
            }
        }
    }
}
