//! The section of an agent kind.

use std::collections::BTreeMap;

use agents::{Adapter, Confirm};
use protocol::policy::{OnFailedTurn, OnInterrupted};
use protocol::reap::{Action, Leftovers, Rule};
use serde::{Deserialize, Serialize};

/// `[agents.NAME]`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentSection {
    /// The program; the caller's shell if empty.
    pub command: String,
    /// Its arguments.
    pub args: Option<Vec<String>>,
    /// Variables added to its environment.
    pub env: BTreeMap<String, String>,
    /// True if the program sees the tmux it runs in (`TMUX` is set).
    pub see_tmux: Option<bool>,
    /// Arguments that start a new conversation; `{conversation}` is replaced by its id, a UUID.
    pub start_args: Option<Vec<String>>,
    /// Arguments that resume a conversation, in place of `start_args`. An agent that has them may be parked.
    pub resume_args: Option<Vec<String>>,
    /// True if the agent may be parked to free a slot although it cannot resume.
    pub parkable: Option<bool>,
    /// Resource limits, like `mem=2G,nice=10`.
    pub limits: String,
    /// Size of its context in tokens.
    pub context_limit: Option<u64>,
    /// The action of each rule of the reaper for its sessions.
    pub reap: BTreeMap<Rule, Action>,
    /// Treatment of daemons that it detached: `kill`, except those that serve others, or `report`.
    pub leftovers: Option<Leftovers>,
    /// The adapter that reads its hooks and its screen: `claude`, `codex`, `gemini`, `opencode`, `aider` or
    /// `none`.
    pub adapter: Option<Adapter>,
    /// The evidence that it took a prompt: `hook`, `echo`, `prompt` or `none`.
    pub confirm: Option<Confirm>,
    /// Patterns of its screen, where the adapter does not know it.
    pub screen: ScreenSection,
    /// True to pass it the pool's hooks when it is started; its own configuration is never changed.
    pub hooks: Option<bool>,
    /// Time for which a permission hook waits for `poolctl approve`; `0s` for not at all.
    pub approve_wait: Option<String>,
    /// Treatment of a prompt whose turn is interrupted: `dead` or `retry`.
    pub on_interrupted: Option<OnInterrupted>,
    /// Treatment of a prompt whose turn fails because of an outage of the service: `hold`, `next` or `retry`.
    pub on_failed_turn: Option<OnFailedTurn>,
    /// Keys that answer a dialog of its start or about its usage limit, by the dialog's name: `{ trust =
    /// ["Enter"] }`. Any other dialog, or one with an empty list, waits for a person.
    pub dialogs: BTreeMap<String, Vec<String>>,
    /// True if prompts wait while it shows a full-screen program.
    pub wait_for_screen: Option<bool>,
    /// True to queue a message of kind `observation` for each use of a tool.
    pub observations: bool,
    /// True to queue a message of kind `summarize` at the end of each turn.
    pub summaries: bool,
    /// Prompt that is sent to it after a usage limit or an outage; empty for none.
    pub go_on: Option<String>,
    /// Its own command for a fresh context, typed by `poolctl reset SESSION --soft`; empty for none.
    pub clear: Option<String>,
    /// Regular expressions of the lines of its output that `poolctl show` counts as errors. `[agents.command]`
    /// is the kind of sessions that run a command.
    pub error_patterns: Vec<String>,
}

impl AgentSection {
    /// Returns a section in which every key is present.
    pub(crate) fn full() -> Self {
        Self {
            args: Some(Vec::new()),
            see_tmux: Some(false),
            start_args: Some(Vec::new()),
            resume_args: Some(Vec::new()),
            parkable: Some(false),
            context_limit: Some(0),
            leftovers: Some(Leftovers::Kill),
            adapter: Some(Adapter::None),
            confirm: Some(Confirm::None),
            hooks: Some(false),
            approve_wait: Some(String::new()),
            on_interrupted: Some(OnInterrupted::Dead),
            on_failed_turn: Some(OnFailedTurn::Hold),
            wait_for_screen: Some(false),
            screen: ScreenSection {
                composer: Some(String::new()),
                works: Some(String::new()),
                dialog: Some(String::new()),
                background: Some(String::new()),
            },
            go_on: Some(String::new()),
            clear: Some(String::new()),
            ..Self::default()
        }
    }
}

/// Regular expressions for an agent's screen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScreenSection {
    /// The place where prompts are typed; the last group matches the text in it. Of several matches the last
    /// one counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub composer: Option<String>,
    /// The agent at work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub works: Option<String>,
    /// A question, behind which no prompt is typed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialog: Option<String>,
    /// Background work, which keeps it from being parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background: Option<String>,
}
