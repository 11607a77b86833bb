//! The most that is taken in from outside. A request over a bound is refused before it reaches the engine; a report
//! that cannot be sent again shorter (a hook's, a reaper's, a watcher's) is cut. Within these bounds every record that
//! follows fits a frame, so what a client sends never looks like a failure of the disk.

use crate::hook::{Hook, Signal, ToolUse};
use crate::ids::MessageId;
use crate::reap::Outcome;
use crate::refusal::{ErrorCode, Refusal};
use crate::request::{Approve, Claim, Label, Messages, New, Observe, Register, Request, View};
use crate::text::{LABELS_MAX, OsBytes, SessionRef};

/// The longest name, word or one-line text of a request, in bytes.
pub const WORD_MAX: usize = 1024;
/// The longest path, in bytes: what the operating system takes.
pub const PATH_MAX: usize = 4096;
/// The longest answer or reason for an agent, in bytes.
pub const ANSWER_MAX: usize = 16 * 1024;
/// The most entries of a short list: kinds, answers, things waited for.
pub const LIST_MAX: usize = 64;
/// The most arguments of a command together with variables of an environment.
pub const ARGUMENTS_MAX: usize = 16 * 1024;
/// The most claims of one heartbeat, and keys of one request.
pub const HELD_MAX: usize = 1024;
/// The most messages named in one request.
pub const IDS_MAX: usize = 4096;
/// The longest grace, in milliseconds: a day.
pub const GRACE_MAX_MS: u64 = 24 * 60 * 60 * 1000;
/// The most processes named in a verdict; how many more there were is said in their place.
pub const PROCESSES_MAX: usize = 1000;

type Checked = Result<(), Refusal>;

fn at_most(what: &str, got: usize, max: usize) -> Checked {
    if got <= max {
        return Ok(());
    }
    Err(Refusal::new(ErrorCode::Usage, format!("{what}: {got}, over the limit of {max}")))
}

fn word(what: &str, text: &str) -> Checked {
    at_most(&format!("bytes of {what}"), text.len(), WORD_MAX)
}

fn words<'a>(what: &str, texts: impl ExactSizeIterator<Item = &'a String>) -> Checked {
    at_most(what, texts.len(), LIST_MAX)?;
    texts.into_iter().try_for_each(|text| word(what, text))
}

fn path(what: &str, bytes: &OsBytes) -> Checked {
    at_most(&format!("bytes of {what}"), bytes.0.len(), PATH_MAX)
}

fn session(session: &SessionRef) -> Checked {
    word("the session", &session.0)
}

fn grace(ms: Option<u64>) -> Checked {
    let too_long = ms.is_some_and(|ms| ms > GRACE_MAX_MS);
    let why = format!("a grace is {GRACE_MAX_MS} ms at most");
    if too_long { Err(Refusal::new(ErrorCode::Usage, why)) } else { Ok(()) }
}

fn ids(ids: &[MessageId]) -> Checked {
    at_most("messages", ids.len(), IDS_MAX)
}

impl Request {
    /// Whether everything in it is within its bound. Which values are allowed is decided later.
    ///
    /// # Errors
    /// Usage, with what is too long and the limit.
    #[expect(
        clippy::too_many_lines,
        reason = "every request is named, so that a new one cannot be forgotten"
    )]
    pub fn check_bounds(&self) -> Result<(), Refusal> {
        match self {
            Self::New(new) => check_new(new),
            Self::List(list) => {
                labels(list.labels.len())?;
                list.labels.iter().try_for_each(|(key, value)| pair(key, value))?;
                list.agent.iter().try_for_each(|agent| word("the agent", agent))
            }
            Self::Show(of) | Self::ListMessages(of) | Self::Logs(of) | Self::Drain(of) => session(of),
            Self::Clear(of) | Self::Explain(of) | Self::Terminal(of) | Self::Usage(Some(of)) => session(of),
            Self::Attach(asked) => {
                session(&asked.session)?;
                asked.tmux_env.iter().try_for_each(|value| path("TMUX", value))
            }
            Self::Send(send) => {
                session(&send.session)?;
                word("the kind", &send.kind)?;
                word("the origin", &send.origin)?;
                send.key.iter().try_for_each(|key| word("the key", key))
            }
            Self::Keys(keys) => {
                session(&keys.session)?;
                at_most("keys", keys.keys.len(), HELD_MAX)?;
                keys.keys.iter().try_for_each(|key| word("a key", key))
            }
            Self::Capture(asked) => session(&asked.session),
            Self::Kill(asked) => session(&asked.session).and_then(|()| grace(asked.grace_ms)),
            Self::Remove(asked) => session(&asked.session),
            Self::Rename(asked) => session(&asked.session).and_then(|()| word("the name", &asked.name)),
            Self::Label(label) => check_label(label),
            Self::Restart(asked) => session(&asked.session).and_then(|()| grace(asked.grace_ms)),
            Self::Wait(wait) => {
                session(&wait.session).and_then(|()| at_most("conditions", wait.until.len(), LIST_MAX))
            }
            Self::Adopt(asked) => {
                word("the target", &asked.target)?;
                asked.workspace.iter().try_for_each(|name| word("the workspace", name))
            }
            Self::Register(Register { session: of, kinds })
            | Self::Claim(Claim { session: of, kinds, .. }) => {
                session(of).and_then(|()| words("kinds", kinds.iter()))
            }
            Self::Heartbeat(held) => at_most("claims", held.len(), HELD_MAX),
            Self::Fail(fail) => at_most("bytes of the reason", fail.reason.len(), ANSWER_MAX),
            Self::Purge(purge) => {
                session(&purge.session)?;
                at_most("states", purge.states.len(), LIST_MAX)?;
                ids(&purge.ids)
            }
            Self::Messages(Messages { session: of, kinds, states, .. }) => {
                session(of)?;
                words("kinds", kinds.iter())?;
                at_most("states", states.len(), LIST_MAX)
            }
            Self::Backup { path: file } => path("the path", file),
            Self::Park(asked) => session(&asked.session).and_then(|()| grace(asked.grace_ms)),
            Self::Restore(asked) => asked.session.iter().try_for_each(session),
            Self::Pin(asked) => session(&asked.session),
            Self::Lock(asked) => session(&asked.session).and_then(|()| word("the purpose", &asked.purpose)),
            Self::Update(asked) => session(&asked.session),
            Self::Approve(asked) => check_approve(asked),
            Self::Publish(asked) => session(&asked.target),
            Self::Output(asked) => session(&asked.session),
            Self::Input(asked) => session(&asked.session),
            Self::Resize(asked) => session(&asked.session),
            // Nothing of variable length, what is checked elsewhere (the result of an ack), or what is cut: see below.
            Self::Ping
            | Self::Status
            | Self::Inbox
            | Self::Sync
            | Self::ShowMessage(_)
            | Self::ResolveMessage(_)
            | Self::Events(_)
            | Self::Subscribe(_)
            | Self::Config
            | Self::ConfigReload
            | Self::Candidates
            | Self::NextCandidate { .. }
            | Self::TakeLease { .. }
            | Self::Settle(_)
            | Self::Observe(_)
            | Self::WatchingBy(_)
            | Self::Watch
            | Self::Ack(_)
            | Self::Cancel(_)
            | Self::Retry(_)
            | Self::Generators
            | Self::Body(_)
            | Self::Export
            | Self::Check
            | Self::Compact
            | Self::Prune(_)
            | Self::Usage(None)
            | Self::RenewLock { .. }
            | Self::Unlock { .. }
            | Self::Reap { .. }
            | Self::DecisionTaken { .. }
            | Self::Hook(_) => Ok(()),
        }
    }
}

fn labels(count: usize) -> Checked {
    at_most("labels", count, LABELS_MAX)
}

fn pair(key: &str, value: &str) -> Checked {
    word("a label's key", key).and_then(|()| at_most("bytes of a label's value", value.len(), PATH_MAX))
}

fn check_label(label: &Label) -> Checked {
    session(&label.session)?;
    labels(label.set.len())?;
    words("labels", label.remove.iter())?;
    label.set.iter().try_for_each(|(key, value)| pair(key, value))
}

fn check_new(new: &New) -> Checked {
    new.name.iter().try_for_each(|name| word("the name", name))?;
    new.workspace.iter().try_for_each(|name| word("the workspace", name))?;
    new.agent.iter().try_for_each(|agent| word("the agent", agent))?;
    new.cwd.iter().chain(&new.caller_cwd).try_for_each(|cwd| path("the directory", cwd))?;
    labels(new.labels.len())?;
    new.labels.iter().try_for_each(|(key, value)| pair(key, value))?;
    let entries = new.command.len() + new.env.len() + new.caller_env.len();
    at_most("arguments and variables", entries, ARGUMENTS_MAX)
}

fn check_approve(approve: &Approve) -> Checked {
    session(&approve.session)?;
    at_most("answers", approve.answers.len(), LIST_MAX)?;
    let texts = approve.answers.iter().chain(&approve.reason);
    texts.into_iter().try_for_each(|text| at_most("bytes of an answer", text.len(), ANSWER_MAX))
}

/// The beginning of a text, at most so many bytes.
#[must_use]
pub fn cut(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

fn shorten(text: &mut String, max: usize) {
    text.truncate(cut(text, max).len());
}

fn shorten_all<'a>(texts: impl IntoIterator<Item = &'a mut String>, max: usize) {
    texts.into_iter().for_each(|text| shorten(text, max));
}

impl Hook {
    /// Cuts each text to its bound. `poolctl hook` does so as well; a file that it left, and another client, need not.
    #[must_use]
    pub fn within_bounds(mut self) -> Self {
        use crate::hook::{PROMPT_MAX, TEXT_MAX};
        shorten(&mut self.agent, WORD_MAX);
        shorten_all(&mut self.conversation, WORD_MAX);
        // Half a path is another one.
        self.transcript = self.transcript.filter(|path| path.0.len() <= PATH_MAX);
        match &mut self.signal {
            Signal::Started { source } => shorten(source, WORD_MAX),
            Signal::Prompt { text, cut, turn } => {
                *cut |= text.len() > PROMPT_MAX;
                shorten(text, PROMPT_MAX);
                shorten_all(turn, WORD_MAX);
            }
            Signal::Working { what, skill } => shorten_all(what.iter_mut().chain(skill), WORD_MAX),
            Signal::ToolUsed(used) => {
                let ToolUse { id, tool, input, response, failed: _, cwd } = used.as_mut();
                shorten_all(id.iter_mut().chain([tool]), WORD_MAX);
                shorten_all(cwd, PATH_MAX);
                shorten_all([input, response], TEXT_MAX);
            }
            Signal::Permission { tool, text, wait_ms: _ } => {
                shorten(tool, WORD_MAX);
                shorten(text, TEXT_MAX);
            }
            Signal::Notified { kind, text } => {
                shorten(kind, WORD_MAX);
                shorten(text, TEXT_MAX);
            }
            Signal::TurnOver { turn, said } => {
                shorten_all(turn, WORD_MAX);
                shorten_all(said, TEXT_MAX);
            }
            Signal::TurnFailed { error, .. } => shorten(error, TEXT_MAX),
            Signal::Interrupted => {}
            Signal::Ended { reason } => shorten(reason, WORD_MAX),
        }
        self
    }
}

impl Outcome {
    /// Names the first [`PROCESSES_MAX`] processes, and how many more there were.
    #[must_use]
    pub fn within_bounds(mut self) -> Self {
        match &mut self {
            Self::Gone { killed } => killed.truncate(PROCESSES_MAX),
            Self::Survivors { left } => shorten_list(left),
            Self::Spared { killed, left } => {
                killed.truncate(PROCESSES_MAX);
                shorten_list(left);
            }
            Self::Untouched { why } | Self::Refused { why } => shorten(why, PATH_MAX),
        }
        self
    }
}

fn shorten_list(left: &mut Vec<String>) {
    // With one of the sort it is still within the frame: 1,000 lines of 256 bytes.
    shorten_all(left.iter_mut(), 256);
    if let Some(more) = left.len().checked_sub(PROCESSES_MAX).filter(|more| *more > 0) {
        left.truncate(PROCESSES_MAX);
        left.push(format!("and {more} more"));
    }
}

impl Observe {
    /// Cuts what programs choose themselves: names of sessions and of programs, directories.
    #[must_use]
    pub fn within_bounds(mut self) -> Self {
        use crate::diff::Change;
        match &mut self.view {
            View::Snapshot { state, .. } => {
                state.sessions.values_mut().for_each(|session| shorten(&mut session.name, WORD_MAX));
                state.panes.values_mut().for_each(crate::tmux::TmuxPane::shorten);
            }
            View::Diff(changes) => changes.iter_mut().for_each(|change| match change {
                Change::Session(_, session) => shorten(&mut session.name, WORD_MAX),
                Change::Pane(_, pane) => pane.shorten(),
                _ => {}
            }),
            View::Unchanged | View::Alive => {}
        }
        self
    }
}

impl crate::tmux::TmuxPane {
    fn shorten(&mut self) {
        if let Some(command) = &mut self.current_command {
            command.0.truncate(WORD_MAX);
        }
        self.current_dir = self.current_dir.take().filter(|dir| dir.0.len() <= PATH_MAX);
    }
}
