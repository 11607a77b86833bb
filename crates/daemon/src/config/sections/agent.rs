//! The table of an agent kind.

use std::collections::BTreeMap;

use agents::{Adapter, Confirm};
use protocol::reap::Leftovers;
use protocol::reap::{Action, Rule};
use serde::{Deserialize, Serialize};

/// `[agents.NAME]`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentSection {
    /// The program; the caller's shell where empty.
    pub command: String,
    /// Its arguments.
    pub args: Option<Vec<String>>,
    /// Added to its environment.
    pub env: BTreeMap<String, String>,
    /// Whether it sees the tmux it runs in.
    pub see_tmux: Option<bool>,
    /// Arguments that begin a conversation; `{conversation}` is its id, a UUID.
    pub start_args: Option<Vec<String>>,
    /// Arguments that take one up again, in their place; such an agent may be parked.
    pub resume_args: Option<Vec<String>>,
    /// Whether it may be parked to make room although it cannot take up where it was.
    pub parkable: Option<bool>,
    /// What bounds it, like `mem=2G,nice=10`.
    pub limits: String,
    /// How many tokens it can keep in mind.
    pub context_limit: Option<u64>,
    /// What becomes of its sessions where a rule applies.
    pub reap: BTreeMap<Rule, Action>,
    /// What becomes of daemons that it detached: `kill`, but for those that serve others, or `report`.
    pub leftovers: Option<Leftovers>,
    /// How to speak with it: `claude`, `codex`, `gemini`, `opencode`, `aider` or `none`.
    pub adapter: Option<Adapter>,
    /// How it is known that it took a prompt: `hook`, `echo`, `prompt` or `none`.
    pub confirm: Option<Confirm>,
    /// How its screen looks, where the adapter does not know it.
    pub screen: ScreenSection,
    /// Whether its hooks are wired when it is started; its own configuration is never changed.
    pub hooks: Option<bool>,
    /// How long its hook waits for `poolctl approve` where it asks for a permission; `0s` for not at all.
    pub approve_wait: Option<String>,
    /// What becomes of a prompt whose turn somebody interrupts: `dead` or `retry`.
    pub on_interrupted: Option<Interrupted>,
    /// What becomes of a prompt whose turn fails by an outage of the service: `hold`, `next` or `retry`.
    pub on_failed_turn: Option<FailedTurn>,
    /// The keys that answer a dialog of its start or about its usage limit, by its name: `{ trust = ["Enter"] }`. A dialog
    /// with an empty list, and any other, waits for a person.
    pub dialogs: BTreeMap<String, Vec<String>>,
    /// Whether a prompt waits while it shows a full-screen program.
    pub wait_for_screen: Option<bool>,
    /// Whether each use of a tool becomes a message of kind `observation`.
    pub observations: bool,
    /// Whether the end of each turn becomes a message of kind `summarize`.
    pub summaries: bool,
    /// What is said to it once a usage limit or an outage is over; empty for nothing.
    pub go_on: Option<String>,
}

/// Regular expressions for an agent's screen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScreenSection {
    /// The place where prompts are typed; the last group matches the text in it. The last match counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub composer: Option<String>,
    /// The agent at work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub works: Option<String>,
    /// A question, behind which nothing may be typed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialog: Option<String>,
    /// Background work, which keeps it from being parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background: Option<String>,
}

/// What becomes of a prompt whose turn somebody interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interrupted {
    /// It is over.
    Dead,
    /// It is sent again.
    Retry,
}

/// What becomes of a prompt whose turn fails by an outage of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailedTurn {
    /// The prompts behind it wait, and its agent is told to go on until the service is back.
    Hold,
    /// It is over, and the next one goes.
    Next,
    /// It is sent again, as often as a message is tried.
    Retry,
}
