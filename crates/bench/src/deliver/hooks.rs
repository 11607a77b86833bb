//! Cost of a hook to an agent: `poolctl hook` from spawn to exit, beside `true`; and the delay until a
//! subscriber has its report.

use std::fs::{self, File};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use protocol::request::New;
use protocol::{ActivityState, AgentEvent, Event, Session, SessionId, Source};

use crate::floors::Client;
use crate::order::order;
use crate::pool::{self, Pool};
use crate::stats::Times;
use crate::subscriber::Subscriber;
use crate::{interrupt, report};

/// Number of calls of each before the first that counts, and of those that count.
const WARM_UP: usize = 10;
const RUNS: usize = 200;
/// Reports: working, begin of a turn, end of a turn.
const WORKING: &str = r#"{"event": "working", "text": "Bash"}"#;
const TURN: [&str; 2] =
    [r#"{"event": "prompt", "text": "a prompt"}"#, r#"{"event": "idle", "text": "done"}"#];
/// The same report in Claude Code's format.
const CLAUDE: &str = r#"{"session_id": "0b6ad1f0-6a4c-4f0e-9a70-6a4c4f0e9a70", "cwd": "/tmp",
"permission_mode": "default", "hook_event_name": "PreToolUse", "prompt_id": "3c6b6f5e-1f7b-4c55-8a5d-9c1f7b4c558a",
"tool_name": "Bash", "tool_input": {"command": "ls -la", "description": "List all files"}, "tool_use_id": "toolu_01"}"#;

/// A measured call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `true`.
    Nothing,
    /// `poolctl hook generic` outside of any session.
    Outside,
    /// `poolctl hook generic`: working.
    Working,
    /// `poolctl hook claude`: working.
    Claude,
    /// `poolctl hook generic`: a turn begins or ends.
    Turn,
    /// `poolctl hook generic` without a daemon: the report is left in a file.
    Away,
}

impl Kind {
    pub(super) const ALL: [Self; 6] =
        [Self::Nothing, Self::Outside, Self::Working, Self::Claude, Self::Turn, Self::Away];
}

/// All results.
#[derive(Default)]
pub(super) struct Hooks {
    /// Durations in the order of [`Kind::ALL`].
    pub(super) times: [Times; Kind::ALL.len()],
    /// Time from the start of a hook that begins or ends a turn until a subscriber has the event.
    pub(super) change: Times,
    /// Time from its exit until then; zero if the event came first.
    pub(super) beyond: Times,
    /// Number of events that came before the exit.
    pub(super) early: usize,
    /// Number of events that did not arrive.
    pub(super) lost: usize,
}

/// Environment of the hook calls.
struct HookCaller<'a> {
    pool: &'a Pool,
    /// A session that only works, and one that begins and ends turns.
    sessions: [Session; 2],
    subscriber: Subscriber,
    dir: PathBuf,
}

/// Runs each call in turn.
pub(super) fn measure(pool: &Pool) -> Result<Hooks> {
    report(&format!("calling {} hooks {RUNS} times each, in turn", Kind::ALL.len()));
    let mut client = Client::connect(pool)?;
    let mut session = |name: &str| {
        let command = vec!["sleep".into(), "100000".into()];
        client.start(New { name: Some(name.to_owned()), command, ..New::default() })
    };
    let sessions = [session("works")?, session("turns")?];
    let subscriber = Subscriber::connect(&pool.socket(), pool::NAME)?;
    let caller = HookCaller { pool, sessions, subscriber, dir: pool.dir().join("hooks") };
    caller.prepare()?;
    let mut hooks = Hooks::default();
    for run in 0..WARM_UP + RUNS {
        interrupt::check()?;
        for at in order(run, Kind::ALL.len()) {
            caller.call((Kind::ALL[at], at), run, &mut hooks)?;
        }
    }
    Ok(hooks)
}

impl HookCaller<'_> {
    /// Prepares the reports as files, and the socket of a dead daemon.
    fn prepare(&self) -> Result<()> {
        fs::create_dir(&self.dir)?;
        for (name, said) in [("working", WORKING), ("claude", CLAUDE), ("begin", TURN[0]), ("end", TURN[1])] {
            fs::write(self.dir.join(name), said)?;
        }
        drop(UnixListener::bind(self.dir.join("dead.sock"))?);
        Ok(())
    }

    fn call(&self, (kind, at): (Kind, usize), run: usize, hooks: &mut Hooks) -> Result<()> {
        let mut command = self.command(kind, run)?;
        let began = Instant::now();
        let status = command.status().with_context(|| format!("{command:?}"))?;
        let ended = Instant::now();
        ensure!(status.success(), "{command:?}: {status}");
        let seen = if kind == Kind::Turn {
            let told =
                (self.sessions[1].id, if is_begin(run) { ActivityState::Busy } else { ActivityState::Idle });
            Some(self.subscriber.wait(|event| tells(event, told))?.map(|seen| seen.at))
        } else {
            None
        };
        self.tidy()?;
        if run < WARM_UP {
            return Ok(());
        }
        hooks.times[at].push(ended - began);
        match seen {
            Some(Some(seen)) => {
                hooks.change.push(seen - began);
                hooks.beyond.push(seen.saturating_duration_since(ended));
                hooks.early += usize::from(seen < ended);
            }
            Some(None) => hooks.lost += 1,
            None => {}
        }
        Ok(())
    }

    fn command(&self, kind: Kind, run: usize) -> Result<Command> {
        let said = match kind {
            Kind::Claude => "claude",
            Kind::Turn if is_begin(run) => "begin",
            Kind::Turn => "end",
            _ => "working",
        };
        let mut command = self.pool.command(if kind == Kind::Nothing { "true" } else { "poolctl" });
        if kind != Kind::Nothing {
            command.args(["hook", if kind == Kind::Claude { "claude" } else { "generic" }]);
        }
        if !matches!(kind, Kind::Nothing | Kind::Outside) {
            let session = &self.sessions[usize::from(kind == Kind::Turn)];
            let tag = session.tag().context("a session that does not run")?;
            let socket = if kind == Kind::Away { self.dir.join("dead.sock") } else { self.pool.socket() };
            command.env("POOL_SESSION", session.id.to_string()).env("POOL_INCARNATION", tag.to_string());
            command.env("POOL_SOCKET", socket).env("POOL_HOOKS", self.spool());
        }
        command.stdin(File::open(self.dir.join(said))?).stdout(Stdio::null());
        Ok(command)
    }

    /// Directory of left reports that no daemon reads.
    fn spool(&self) -> PathBuf {
        self.dir.join("spool")
    }

    /// Removes left reports, so that they do not slow the next one.
    fn tidy(&self) -> Result<()> {
        let left = |path: &Path| path.exists().then(|| fs::remove_dir_all(path)).transpose();
        left(&self.spool()).map(drop).context("reports were left")
    }
}

/// True if a turn begins in this run; otherwise it ends.
fn is_begin(run: usize) -> bool {
    run.is_multiple_of(2)
}

/// True if the event reports this session in this state, according to its hook.
pub(super) fn tells(event: &Event, (session, state): (SessionId, ActivityState)) -> bool {
    match event {
        Event::Agent(AgentEvent::ActivityChanged { session: changed, activity, .. }) => {
            *changed == session && activity.state == state && activity.source == Source::Hook
        }
        _ => false,
    }
}
