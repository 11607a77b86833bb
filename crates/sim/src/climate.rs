//! Kinds of trouble in a run, and the chance of each.

use std::time::Duration;

use crate::plan::Plan;
use crate::rng::Rng;
use crate::world::life::Jitter;

/// Maximum number of names of sessions.
const NAMES_MAX: u64 = 6;

/// The climate of a run. No run has all troubles.
#[derive(Debug, Default, Clone)]
pub(crate) struct Climate {
    /// Delays of tasks.
    pub(crate) jitter: Jitter,
    /// Maximum duration of an answered tmux call, in microseconds.
    pub(crate) tmux_delay_us: u64,
    /// Calls to tmux that are lost, late or not answered, per mille.
    pub(crate) tmux_faults: u64,
    /// Slots of the pool.
    pub(crate) slots: u64,
    /// Names that the clients use.
    pub(crate) names: u64,
    /// True if the pool has a worker of its own.
    pub(crate) has_host: bool,
    /// Actions of each client.
    pub(crate) steps: u64,
    /// Chance that the daemon is killed before an action, per mille.
    pub(crate) kills: u64,
    /// Chance that a death comes within a commit, or with a power cut, per mille of the deaths.
    pub(crate) dirty_deaths: u64,
    /// Chance that the tmux server dies before an action, per mille.
    pub(crate) server_deaths: u64,
    /// Chance that the tmux server stops for a while before an action, per mille.
    pub(crate) server_stops: u64,
    /// Chance that the clock is set before an action, per mille.
    pub(crate) clock_steps: u64,
    /// Chance that a program ends by itself after a prompt, per mille.
    pub(crate) crashes: u64,
    /// Chance that a hook's report is repeated, per mille.
    pub(crate) repeated_hooks: u64,
    /// Chance that an agent ignores HUP and TERM, per mille.
    pub(crate) stubborn: u64,
    /// Chance that a program is in uninterruptible sleep for a while (it waits for a device), per mille.
    pub(crate) uninterruptible: u64,
    /// Chance that a client's connection is lost before it has the answer, per mille.
    pub(crate) lost_answers: u64,
    /// Chance that the socket of tmux cannot be reached for a while before an action, per mille.
    pub(crate) socket_losses: u64,
    /// Chance that a program, an init or a worker is killed before an action, per mille.
    pub(crate) process_kills: u64,
    /// Chance that somebody attaches to a session before an action, per mille.
    pub(crate) attaches: u64,
    /// Chance that a reaper or a watcher fails at a step, per mille.
    pub(crate) helper_faults: u64,
    /// Chance that an agent asks for a permission, per mille of its prompts.
    pub(crate) permissions: u64,
    /// Chance that somebody decides on a request for a permission soon, per mille of the requests.
    pub(crate) approvals: u64,
    /// Chance that an agent reaches a usage limit, per mille of its prompts.
    pub(crate) usage_limits: u64,
    /// True if the agent is one that the pool knows: it tells of outages, and has a composer.
    pub(crate) has_adapter: bool,
    /// Chance that an outage of its service cuts an agent's turn short, per mille.
    pub(crate) outages: u64,
    /// Chance that an agent has lost the conversation that it is to resume, per mille.
    pub(crate) conversation_losses: u64,
    /// Chance that a worker repeats a report that gave a message back, per mille.
    pub(crate) late_reports: u64,
    /// Chance that a worker works for longer than its lease, and sends heartbeats, per mille of its claims. Workers
    /// that fall silent are ended soon then.
    pub(crate) heartbeats: u64,
    /// Chance that a worker does not register, per mille of its connections.
    pub(crate) casual: u64,
    /// Chance that a worker starts a process of its own for a message, per mille of its claims.
    pub(crate) handlers: u64,
    /// Chance that a session is to be removed at its end or some time after it, per mille of its creations and changes.
    pub(crate) expiry: u64,
    /// Chance that a client takes a session of that name as it is, and starts it, per mille of its creations.
    pub(crate) reuses: u64,
    /// Retention of ended sessions, if it is short.
    pub(crate) keep_stopped: Option<Duration>,
    /// Chance that the watcher or the reaper is away for a while, per mille of the occasions.
    pub(crate) absences: u64,
    /// Chance that the tmux server stops until the pool has to tell, per mille of the occasions.
    pub(crate) long_stops: u64,
    /// Chance that the disk is full for a while, per mille of the occasions.
    pub(crate) full_disks: u64,
    /// Chance that the holder of a lock is killed, per mille of the locks.
    pub(crate) dying_holders: u64,
    /// Chance that the holder of a lock acts inside of it, per mille of the locks.
    pub(crate) inside: u64,
    /// Chance that the client of a new session is killed while it waits, per mille of the creations.
    pub(crate) withdrawals: u64,
    /// Chance that a new session has settings of its own, per mille of the creations.
    pub(crate) own_settings: u64,
    /// Chance that a worker gives a message up or back, or reports a result, per mille of its claims.
    pub(crate) verdicts: u64,
    /// Chance that a worker works several sessions, per mille of the workers.
    pub(crate) several: u64,
    /// Chance that somebody begins to stop the pool and calls that off, per mille of the occasions.
    pub(crate) holds: u64,
    /// True if the agents that the pool hears nothing of can resume their conversations.
    pub(crate) has_quiet: bool,
    /// True if a request is repeated minutes later, at the end of the run.
    pub(crate) repeats_late: bool,
    /// Chance that the whole daemon stands still for a while before an action, per mille.
    pub(crate) standstills: u64,
    /// Chance that a person starts a program of their own, per mille of the occasions.
    pub(crate) foreigners: u64,
    /// Chance that a person types into the composer of an agent that the pool knows, or looks back in its terminal, per
    /// mille of the occasions.
    pub(crate) typing: u64,
    /// Chance that a person starts a program of their own in a pane of the pool, per mille of the occasions.
    pub(crate) respawns: u64,
    /// Chance that a client waits for the end of its prompt, per mille of the prompts.
    pub(crate) waits: u64,
    /// Chance that somebody makes a backup of the database, or puts it back, before an action, per mille.
    pub(crate) backups: u64,
    /// The restart policy of sessions.
    pub(crate) restart: &'static str,
    /// The idle time after which sessions are parked, if they are.
    pub(crate) idle_timeout: Option<Duration>,
    /// True if lost sessions are started when the daemon starts.
    pub(crate) restores: bool,
    /// Maximum number of unfinished messages of a session.
    pub(crate) messages_max: u64,
    /// Maximum number of finished messages of a session.
    pub(crate) finished_max: u64,
    /// Pause between two actions of an actor: at most, in milliseconds.
    pub(crate) pause_ms: u64,
}

impl Climate {
    /// Draws a climate.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut rng = Rng::stream(seed, "climate");
        // Each trouble is absent from half of the runs.
        let mut trouble = |most: u64| if rng.per_mille(500) { rng.between(1, most) } else { 0 };
        let (yields, sleeps) = (trouble(300), trouble(20));
        let tmux_faults = trouble(60);
        let (kills, server_deaths, server_stops, clock_steps) =
            (trouble(120), trouble(40), trouble(30), trouble(60));
        let (crashes, repeated_hooks, stubborn, dirty_deaths) =
            (trouble(150), trouble(200), trouble(400), trouble(900));
        let (process_kills, attaches, helper_faults) = (trouble(60), trouble(60), trouble(60));
        let (permissions, usage_limits) = (trouble(300), trouble(100));
        let (uninterruptible, lost_answers, socket_losses) = (trouble(200), trouble(200), trouble(40));
        let late_reports = trouble(500);
        let (outages, conversation_losses) = (trouble(300), trouble(300));
        let foreigners = if rng.per_mille(400) { rng.between(100, 1000) } else { 0 };
        // Most defects show in short runs; some need a pool with a history.
        let steps = if rng.per_mille(120) { rng.between(40, 120) } else { rng.between(4, 24) };
        let has_adapter = rng.per_mille(500);
        let of_adapter = |chance: u64| if has_adapter { chance } else { 0 };
        Self {
            process_kills,
            attaches,
            helper_faults,
            permissions,
            usage_limits,
            has_adapter,
            outages: of_adapter(outages),
            conversation_losses: of_adapter(conversation_losses),
            late_reports,
            foreigners,
            waits: chance(seed, "waits", (100, 1000)),
            backups: chance(seed, "backups", (1, 60)),
            typing: of_adapter(chance(seed, "typing", (100, 1000))),
            respawns: chance(seed, "respawns", (50, 500)),
            uninterruptible,
            lost_answers,
            socket_losses,
            restart: rng.pick(&["no", "no", "on-failure", "always"]).unwrap_or(&"no"),
            idle_timeout: rng.pick(&[None, None, Some(Duration::from_secs(20))]).copied().flatten(),
            restores: rng.per_mille(300),
            messages_max: *rng.pick(&[10_000, 10_000, 4]).unwrap_or(&10_000),
            finished_max: if Rng::stream(seed, "finished").per_mille(250) { 1 } else { 100_000 },
            jitter: Jitter { yields, sleeps },
            tmux_delay_us: *rng.pick(&[1000, 5000, 50_000, 500_000]).unwrap_or(&1000),
            tmux_faults,
            slots: rng.between(1, 5),
            names: rng.between(1, NAMES_MAX),
            has_host: rng.per_mille(400),
            steps,
            kills,
            dirty_deaths,
            server_deaths,
            server_stops,
            clock_steps,
            crashes,
            repeated_hooks,
            stubborn,
            pause_ms: *rng.pick(&[50, 500, 5000]).unwrap_or(&500),
            ..Self::draw_more(seed, server_stops)
        }
    }

    /// Draws the troubles that have streams of their own.
    fn draw_more(seed: u64, server_stops: u64) -> Self {
        Self {
            heartbeats: chance(seed, "heartbeats", (100, 800)),
            casual: chance(seed, "casual", (100, 600)),
            handlers: chance(seed, "handlers", (200, 1000)),
            reuses: chance(seed, "reuses", (100, 800)),
            expiry: chance(seed, "expiry", (100, 800)),
            keep_stopped: Rng::stream(seed, "keep").per_mille(100).then_some(Duration::from_secs(30)),
            absences: chance(seed, "absences", (100, 500)),
            long_stops: if server_stops > 0 { chance(seed, "long-stops", (100, 300)) } else { 0 },
            full_disks: chance(seed, "full-disks", (100, 500)),
            dying_holders: chance(seed, "dying-holders", (100, 800)),
            inside: chance(seed, "inside", (200, 900)),
            approvals: chance(seed, "approvals", (300, 1000)),
            withdrawals: chance(seed, "withdrawals", (100, 600)),
            own_settings: chance(seed, "own-settings", (200, 900)),
            verdicts: chance(seed, "verdicts", (50, 400)),
            several: chance(seed, "several", (200, 900)),
            holds: chance(seed, "holds", (50, 300)),
            has_quiet: Rng::stream(seed, "quiet").per_mille(200),
            repeats_late: Rng::stream(seed, "late-repeat").per_mille(60),
            standstills: chance(seed, "standstills", (1, 40)),
            ..Self::default()
        }
    }

    /// True if sessions may be removed by time.
    pub(crate) fn expires(&self) -> bool {
        self.expiry > 0 || self.keep_stopped.is_some()
    }

    /// Leaves out the troubles that are not part of the plan.
    pub(crate) fn restrict(&mut self, plan: &Plan) {
        for (name, chance) in self.troubles() {
            if *chance > 0 && !plan.has(name) {
                *chance = 0;
            }
        }
    }

    fn troubles(&mut self) -> [(&'static str, &mut u64); 33] {
        [
            ("yields", &mut self.jitter.yields),
            ("sleeps", &mut self.jitter.sleeps),
            ("tmux_faults", &mut self.tmux_faults),
            ("dirty_deaths", &mut self.dirty_deaths),
            ("crashes", &mut self.crashes),
            ("repeated_hooks", &mut self.repeated_hooks),
            ("stubborn", &mut self.stubborn),
            ("attaches", &mut self.attaches),
            ("helper_faults", &mut self.helper_faults),
            ("permissions", &mut self.permissions),
            ("approvals", &mut self.approvals),
            ("usage_limits", &mut self.usage_limits),
            ("outages", &mut self.outages),
            ("conversation_losses", &mut self.conversation_losses),
            ("late_reports", &mut self.late_reports),
            ("heartbeats", &mut self.heartbeats),
            ("casual", &mut self.casual),
            ("handlers", &mut self.handlers),
            ("expiry", &mut self.expiry),
            ("reuses", &mut self.reuses),
            ("absences", &mut self.absences),
            ("long_stops", &mut self.long_stops),
            ("full_disks", &mut self.full_disks),
            ("dying_holders", &mut self.dying_holders),
            ("inside", &mut self.inside),
            ("withdrawals", &mut self.withdrawals),
            ("own_settings", &mut self.own_settings),
            ("verdicts", &mut self.verdicts),
            ("several", &mut self.several),
            ("holds", &mut self.holds),
            ("foreigners", &mut self.foreigners),
            ("uninterruptible", &mut self.uninterruptible),
            ("lost_answers", &mut self.lost_answers),
        ]
    }

    /// Returns the same climate without faults.
    pub(crate) fn calm(&self) -> Self {
        Self {
            tmux_faults: 0,
            crashes: 0,
            repeated_hooks: 0,
            helper_faults: 0,
            permissions: 0,
            usage_limits: 0,
            ..self.clone()
        }
    }
}

/// Returns the chance of a trouble, between these two; 0 in most runs. Its stream is its own, so that runs without the
/// trouble stay as they were.
fn chance(seed: u64, trouble: &str, (least, most): (u64, u64)) -> u64 {
    let mut rng = Rng::stream(seed, trouble);
    if rng.per_mille(300) { rng.between(least, most) } else { 0 }
}
