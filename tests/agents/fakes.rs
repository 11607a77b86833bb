//! Scripted agents: to the pool they look and act like real ones, and they record their input.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Output, PATIENCE, Pool, pause, wait_until};

const SCRIPT: &str = include_str!("fake.sh");
/// Part that the scripts source.
const TERMINAL: &str = include_str!("terminal.sh");

/// A pool with the three daemons, scripted agents of the kinds `claude` and `codex`, and `config`. Leading
/// lines of `config` without a header belong to the kind `claude`.
#[track_caller]
pub(super) fn pool(config: &str) -> Pool {
    let pool = bare(config);
    pool.start_all();
    pool
}

/// [`pool`] without the daemons.
#[track_caller]
pub(super) fn bare(config: &str) -> Pool {
    let pool = Pool::bare("");
    fs::write(pool.path("fake.sh"), SCRIPT).unwrap();
    fs::write(pool.path("terminal.sh"), TERMINAL).unwrap();
    configure(&pool, config);
    pool
}

/// Writes the configuration without telling the running daemons.
#[track_caller]
pub(super) fn configure(pool: &Pool, config: &str) {
    let pace = "[pool]\ntyping_pause = '300ms'\nidle_quiet = '300ms'\nidle_settle = '300ms'\n";
    let kinds = [kind("codex", "codex", "", ""), kind("claude", "claude", "", "")].concat();
    let text = format!("{pace}[reaper]\ngrace = '300ms'\n{kinds}{config}");
    pool.configure(&text.replace("@SCRIPT@", pool.path("fake.sh").to_str().unwrap()));
}

/// Configuration of an agent kind that acts as `agent`, with additional environment and lines.
pub(super) fn kind(name: &str, agent: &str, env: &str, more: &str) -> String {
    let poolctl = env!("CARGO_BIN_EXE_poolctl");
    // Written out, since only the built-in kinds have these by default.
    let conversation = match agent {
        "claude" => {
            "start_args = ['--session-id', '{conversation}']\nresume_args = ['--resume', '{conversation}']\n"
        }
        _ => "resume_args = ['resume', '{conversation}']\n",
    };
    format!(
        "[agents.{name}]\nadapter = '{agent}'\ncommand = 'bash'\nargs = ['@SCRIPT@', '{agent}']\n\
         {conversation}env = {{ {env}POOLCTL = '{poolctl}' }}\n{more}"
    )
}

/// A session with a scripted agent.
#[derive(Debug)]
pub(super) struct Agent<'a> {
    pub(super) pool: &'a Pool,
    pub(super) id: String,
    dir: PathBuf,
}

impl<'a> Agent<'a> {
    /// Creates a session of this kind without waiting for the agent.
    #[track_caller]
    pub(super) fn starting(pool: &'a Pool, kind: &str, flags: &[&str]) -> Self {
        let id = pool.ok(&[&["new", "--no-block", "--agent", kind], flags].concat());
        let dir = pool.dir(&id);
        Self { pool, id, dir }
    }

    /// Creates a session of this kind and waits until its agent takes prompts.
    #[track_caller]
    pub(super) fn new(pool: &'a Pool, kind: &str) -> Self {
        let agent = Self::starting(pool, kind, &[]);
        agent.await_activity("idle");
        agent
    }

    #[track_caller]
    pub(super) fn claude(pool: &'a Pool) -> Self {
        Self::new(pool, "claude")
    }

    #[track_caller]
    pub(super) fn codex(pool: &'a Pool) -> Self {
        Self::new(pool, "codex")
    }

    // ---- what it was given ----

    /// A file in its directory.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join("work").join(name)
    }

    /// Lines of a file in its directory; none where it does not exist.
    pub(super) fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Pastes that it received, in order.
    pub(super) fn pastes(&self) -> Vec<String> {
        numbered(&self.path("pastes"))
    }

    /// Prompts that it accepted, in order.
    pub(super) fn prompts(&self) -> Vec<String> {
        numbered(&self.path("prompts"))
    }

    /// Number of Enter keys it received.
    pub(super) fn enters(&self) -> usize {
        self.lines("enters").len()
    }

    /// Directory where its hooks leave reports that no daemon takes.
    pub(super) fn hooks(&self) -> PathBuf {
        self.dir.join("hooks")
    }

    /// Leaves a file there.
    #[track_caller]
    pub(super) fn leave(&self, name: &str, text: &str) {
        fs::create_dir_all(self.hooks()).unwrap();
        let fresh = self.hooks().join(format!(".{name}"));
        fs::write(&fresh, text).unwrap();
        fs::rename(fresh, self.hooks().join(format!("{name}.json"))).unwrap();
    }

    /// Number of reports its hooks left for a daemon that did not answer.
    pub(super) fn spooled(&self) -> usize {
        let files = fs::read_dir(self.hooks()).into_iter().flatten().flatten();
        files.filter(|file| file.path().extension().is_some_and(|end| end == "json")).count()
    }

    /// Waits until all of those reports are read.
    #[track_caller]
    pub(super) fn await_all_read(&self) {
        wait_until("all that was left is read", PATIENCE, || self.spooled() == 0);
    }

    #[track_caller]
    pub(super) fn await_prompts(&self, wanted: &[&str]) {
        let what = format!("its prompts are {wanted:?}, not {:?}", self.prompts());
        wait_until(&what, PATIENCE, || self.prompts() == wanted);
    }

    /// [`Agent::await_prompts`] ignoring trailing blanks.
    #[track_caller]
    pub(super) fn await_taken(&self, wanted: &[&str]) {
        let taken = || self.prompts().iter().map(|text| text.trim_end().to_owned()).collect::<Vec<_>>();
        wait_until(&format!("its prompts are {wanted:?}"), PATIENCE, || taken() == wanted);
    }

    /// Asserts that no hook of it failed or printed anything.
    #[track_caller]
    pub(super) fn assert_no_hook_failed(&self) {
        assert_eq!(self.lines("failed"), [""; 0], "hooks that failed");
        assert_eq!(self.lines("printed"), [""; 0], "what hooks printed");
    }

    /// Asserts that nothing was typed twice or while it was busy, and that no hook of it failed or printed
    /// anything.
    #[track_caller]
    pub(super) fn assert_unharmed(&self) {
        let (mut pastes, all) = (self.pastes(), self.pastes().len());
        pastes.sort();
        pastes.dedup();
        assert_eq!(pastes.len(), all, "typed twice: {:?}", self.pastes());
        assert!(!self.path("early").exists(), "typed while it was busy: {:?}", self.pastes());
        self.assert_no_hook_failed();
    }

    /// Lets it end its turn or its dialog.
    #[track_caller]
    pub(super) fn go(&self) {
        fs::write(self.path("go"), "").unwrap();
    }

    // ---- what it is told ----

    /// Sends a prompt; returns its id.
    #[track_caller]
    pub(super) fn send(&self, text: &str) -> String {
        self.pool.ok(&["send", &self.id, text])
    }

    /// Sends a prompt and waits until it is in `state`; returns its id.
    #[track_caller]
    pub(super) fn send_until(&self, text: &str, state: &str) -> String {
        let id = self.send(text);
        self.await_state(&id, state);
        id
    }

    /// Sends a prompt and waits until it is done; returns the agent's reply.
    #[track_caller]
    pub(super) fn tell(&self, text: &str) -> String {
        self.pool.ok(&["send", &self.id, "--result", text])
    }

    #[track_caller]
    pub(super) fn keys(&self, keys: &[&str]) {
        self.pool.ok(&[&["keys", &self.id], keys].concat());
    }

    // ---- what is known of it ----

    #[track_caller]
    pub(super) fn show(&self) -> Value {
        self.pool.show(&self.id)
    }

    /// Waits until `show` has the wanted content; returns it.
    #[track_caller]
    pub(super) fn await_shown(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let shown = self.show();
            if holds(&shown) {
                return shown;
            }
            assert!(began.elapsed() < PATIENCE, "not {what}: {shown}\n{}", self.pool.journal());
            pause(began);
        }
    }

    /// Waits until it has this activity; returns its document.
    #[track_caller]
    pub(super) fn await_activity(&self, state: &str) -> Value {
        self.await_shown(state, |shown| shown["activity"] == state)
    }

    /// Waits until it asks for a permission that can be answered from outside; returns the request's id.
    #[track_caller]
    pub(super) fn await_ask(&self) -> String {
        self.await_shown("asking", |shown| shown["ask"]["answerable"] == true)["ask"]["id"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// A message as `queue show` prints it.
    #[track_caller]
    pub(super) fn message(&self, id: &str) -> Value {
        self.pool.json(&["queue", "show", &self.id, id])
    }

    #[track_caller]
    pub(super) fn state(&self, id: &str) -> String {
        self.message(id)["state"].as_str().unwrap().to_owned()
    }

    /// Waits until a message is in `state`; returns the message.
    #[track_caller]
    pub(super) fn await_state(&self, id: &str, state: &str) -> Value {
        self.await_message(id, PATIENCE, |message| message["state"] == state)
    }

    /// Waits at most `limit` until `holds` is true of a message; returns the message.
    #[track_caller]
    pub(super) fn await_message(&self, id: &str, limit: Duration, holds: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let message = self.message(id);
            if holds(&message) {
                return message;
            }
            assert!(began.elapsed() < limit, "not within {limit:?}: {message}\n{}", self.show());
            pause(began);
        }
    }

    #[track_caller]
    pub(super) fn events(&self, kind: &str) -> Vec<Value> {
        self.pool.lines(&["events", "--session", &self.id, "--kind", kind])
    }

    /// `poolctl hook` as a process in its pane calls it.
    pub(super) fn hook_command(&self, kind: &str, tag: &str) -> Command {
        let mut command = self.pool.poolctl();
        command.args(["hook", kind]).env("POOL_SESSION", &self.id).env("POOL_INCARNATION", tag);
        command.env("POOL_SOCKET", self.pool.socket()).env("POOL_HOOKS", self.hooks());
        command
    }

    /// Calls `poolctl hook` with `input`.
    #[track_caller]
    #[must_use = "look at the output or assert how it ended"]
    pub(super) fn hook(&self, kind: &str, input: &Value) -> Output {
        self.hook_of(kind, input, &self.tag())
    }

    /// Calls `poolctl hook` as a process of the incarnation `tag`.
    #[track_caller]
    #[must_use = "look at the output or assert how it ended"]
    pub(super) fn hook_of(&self, kind: &str, input: &Value, tag: &str) -> Output {
        Output::of(&mut self.hook_command(kind, tag), input.to_string().as_bytes())
    }

    /// Calls `poolctl hook` while `poold` does not answer in time: the report is left in a file.
    #[track_caller]
    pub(super) fn unheard(&self, kind: &str, input: &Value) {
        let mut command = self.hook_command(kind, &self.tag());
        command.env("POOL_SOCKET", self.pool.path("nobody.sock"));
        Output::of(&mut command, input.to_string().as_bytes()).expect(0);
    }

    /// Tag of the running incarnation.
    #[track_caller]
    pub(super) fn tag(&self) -> String {
        // Read from its own file: `poold` may be away.
        self.lines("tag").last().unwrap().clone()
    }

    /// Conversation id of its latest start.
    #[track_caller]
    pub(super) fn conversation(&self) -> String {
        let runs = self.lines("runs");
        runs.last().and_then(|run| run.split_once(' ')).unwrap().1.to_owned()
    }
}

/// Contents of the files 1, 2, … of a directory.
fn numbered(dir: &std::path::Path) -> Vec<String> {
    (1..)
        .map_while(|n| fs::read(dir.join(n.to_string())).ok())
        .map(|b| String::from_utf8(b).unwrap())
        .collect()
}
