//! Size limits for everything that comes from outside. A request over a limit is refused before it reaches
//! the engine. A report that its sender cannot shorten (from a hook, the reaper or a watcher) is truncated.
//! These limits guarantee that every resulting record fits a frame, so no client can cause what looks like a
//! failure of the disk.

use std::ops::RangeInclusive;

use crate::activity::ASK_MAX;
use crate::hook::{Hook, HookEvent, ToolUse};
use crate::ids::MessageId;
use crate::reap::Outcome;
use crate::refusal::Refusal;
use crate::request::{AddWorker, Approve, Claim, Label, Messages, New, Observe, Register, Request, View};
use crate::text::{LABEL_KEY_MAX, LABEL_VALUE_MAX, LABELS_MAX, OsBytes, SessionRef};
use crate::variants;
use crate::worker::{ClaimScope, Selection, WorkerQueue, WorkerSpec};

/// Maximum length of a name, word or one-line text in a request, in bytes.
pub const WORD_MAX: usize = 1024;
/// Maximum length of a path, in bytes (the limit of the operating system).
pub const PATH_MAX: usize = 4096;
/// Maximum length of an answer or reason for an agent, in bytes.
const ANSWER_MAX: usize = 16 * 1024;
/// Maximum number of entries in a short list: kinds, answers, wait conditions.
pub const LIST_MAX: usize = 64;
/// Maximum number of a command's arguments and environment variables together.
const ARGUMENTS_MAX: usize = 16 * 1024;
/// Maximum number of claims in one heartbeat, and of keys in one request.
const CLAIMS_MAX: usize = 1024;
/// Maximum number of message ids in one request.
const IDS_MAX: usize = 4096;
/// Maximum grace time between TERM and KILL, in milliseconds: one day.
const GRACE_MAX_MS: u64 = 24 * 60 * 60 * 1000;
/// Shortest and longest lease, in milliseconds: up to one day.
const LEASE_MS: RangeInclusive<u64> = 1_000..=24 * 60 * 60 * 1000;
/// Maximum number of processes named in a verdict. An entry with the number of the others follows.
pub const PROCESSES_MAX: usize = 1000;

type Check = Result<(), Refusal>;

fn at_most(what: &str, got: usize, max: usize) -> Check {
    if got <= max {
        return Ok(());
    }
    Err(Refusal::usage(format!("{what}: {got}, over the limit of {max}")))
}

fn check_word(what: &str, text: &str) -> Check {
    at_most(&format!("bytes of {what}"), text.len(), WORD_MAX)
}

fn check_words<'a>(what: &str, texts: impl ExactSizeIterator<Item = &'a String>) -> Check {
    at_most(what, texts.len(), LIST_MAX)?;
    texts.into_iter().try_for_each(|text| check_word(what, text))
}

fn check_path(what: &str, bytes: &OsBytes) -> Check {
    at_most(&format!("bytes of {what}"), bytes.0.len(), PATH_MAX)
}

fn check_session(session: &SessionRef) -> Check {
    check_word("the session", &session.0)
}

fn check_grace(ms: Option<u64>) -> Check {
    let too_long = ms.is_some_and(|ms| ms > GRACE_MAX_MS);
    let why = format!("a grace is {GRACE_MAX_MS} ms at most");
    if too_long { Err(Refusal::usage(why)) } else { Ok(()) }
}

/// Checks the length of a lease.
pub fn check_lease(ms: Option<u64>) -> Result<(), Refusal> {
    let is_allowed = ms.is_none_or(|ms| LEASE_MS.contains(&ms));
    if is_allowed { Ok(()) } else { Err(Refusal::usage("a lease is from 1s to 24h")) }
}

fn check_ids(ids: &[MessageId]) -> Check {
    at_most("messages", ids.len(), IDS_MAX)
}

impl Request {
    /// Checks the size of every field. Whether a value is allowed is checked later.
    ///
    /// # Errors
    /// Usage, with the field and its limit.
    #[expect(
        clippy::too_many_lines,
        reason = "every request is named, so that a new one cannot be forgotten"
    )]
    pub fn check_bounds(&self) -> Result<(), Refusal> {
        match self {
            Self::New(new) => check_new(new),
            Self::List(list) | Self::Snapshot(list) => {
                check_label_count(list.labels.len())?;
                list.labels.iter().try_for_each(|(key, value)| check_label_pair(key, value))?;
                list.agent.iter().try_for_each(|agent| check_word("the agent", agent))
            }
            Self::Show(of) | Self::ListMessages(of) | Self::Logs(of) => check_session(of),
            Self::Clear(of)
            | Self::Dismiss(of)
            | Self::Explain(of)
            | Self::Terminal(of)
            | Self::Usage(Some(of)) => check_session(of),
            Self::Attach(asked) => {
                check_session(&asked.session)?;
                asked.tmux_env.iter().try_for_each(|value| check_path("TMUX", value))?;
                asked.terminal.iter().try_for_each(|path| check_path("the terminal", path))
            }
            Self::Send(send) => {
                check_session(&send.session)?;
                check_word("the kind", &send.kind)?;
                check_word("the origin", &send.origin)?;
                send.key.iter().try_for_each(|key| check_word("the key", key))
            }
            Self::ClearContext(asked) => {
                check_session(&asked.session).and_then(|()| check_word("the origin", &asked.origin))
            }
            Self::Keys(keys) => {
                check_session(&keys.session)?;
                at_most("keys", keys.keys.len(), CLAIMS_MAX)?;
                keys.keys.iter().try_for_each(|key| check_word("a key", key))
            }
            Self::Capture(asked) => check_session(&asked.session),
            Self::Kill(asked) => check_session(&asked.session).and_then(|()| check_grace(asked.grace_ms)),
            Self::Remove(asked) => check_session(&asked.session),
            Self::Rename(asked) => {
                check_session(&asked.session).and_then(|()| check_word("the name", &asked.name))
            }
            Self::Label(label) => check_label(label),
            Self::Restart(asked) => check_session(&asked.session).and_then(|()| check_grace(asked.grace_ms)),
            Self::Wait(wait) => {
                check_session(&wait.session).and_then(|()| at_most("conditions", wait.until.len(), LIST_MAX))
            }
            Self::Adopt(asked) => {
                check_word("the target", &asked.target)?;
                asked.workspace.iter().try_for_each(|name| check_word("the workspace", name))
            }
            Self::Register(Register { scope, kinds }) => {
                check_scope(scope).and_then(|()| check_words("kinds", kinds.iter()))
            }
            Self::Claim(Claim { scope, kinds, lease_ms, .. }) => {
                check_scope(scope)?;
                check_words("kinds", kinds.iter()).and_then(|()| check_lease(*lease_ms))
            }
            Self::AddWorker(add) => check_worker(add),
            Self::Heartbeat(held) => at_most("claims", held.len(), CLAIMS_MAX),
            Self::Fail(fail) => at_most("bytes of the reason", fail.reason.len(), ANSWER_MAX),
            Self::Purge(purge) => {
                check_session(&purge.session)?;
                at_most("states", purge.states.len(), LIST_MAX)?;
                check_ids(&purge.ids)
            }
            Self::Messages(Messages { session: of, kinds, states, .. }) => {
                check_session(of)?;
                check_words("kinds", kinds.iter())?;
                at_most("states", states.len(), LIST_MAX)
            }
            Self::Backup { path: file } => check_path("the path", file),
            Self::Park(asked) => check_session(&asked.session).and_then(|()| check_grace(asked.grace_ms)),
            Self::Restore(asked) => asked.session.iter().try_for_each(check_session),
            Self::Drain(asked) => check_session(&asked.session),
            Self::Pin(asked) => check_session(&asked.session),
            Self::Lock(asked) => {
                check_session(&asked.session)?;
                check_word("the purpose", &asked.purpose).and_then(|()| check_lease(asked.lease_ms))
            }
            Self::Update(asked) => check_session(&asked.session),
            Self::Approve(asked) => check_approve(asked),
            Self::Publish(asked) => check_session(&asked.target),
            Self::Output(asked) => check_session(&asked.session),
            Self::Input(asked) => check_session(&asked.session),
            Self::Resize(asked) => check_session(&asked.session),
            // Fixed size, checked elsewhere (the result of an ack), or truncated (see below).
            variants!(Self:
                Ping Status Inbox HoldStarts Sync ShowMessage ResolveMessage Events Subscribe Config
                ConfigReload Candidates NextCandidate TakeLease Settle Observe WatchingBy Watch Ack Cancel
                Retry Generators Body Export Check Compact Prune RenewLock Unlock Reap DecisionTaken Withdraw
                Hook
            )
            | Self::Usage(None) => Ok(()),
        }
    }
}

fn check_label_count(count: usize) -> Check {
    at_most("labels", count, LABELS_MAX)
}

fn check_label_pair(key: &str, value: &str) -> Check {
    at_most("bytes of a label's key", key.len(), LABEL_KEY_MAX)?;
    at_most("bytes of a label's value", value.len(), LABEL_VALUE_MAX)
}

fn check_label(label: &Label) -> Check {
    check_session(&label.session)?;
    check_label_count(label.set.len())?;
    check_words("labels", label.remove.iter())?;
    label.set.iter().try_for_each(|(key, value)| check_label_pair(key, value))
}

fn check_new(new: &New) -> Check {
    new.name.iter().try_for_each(|name| check_word("the name", name))?;
    new.workspace.iter().try_for_each(|name| check_word("the workspace", name))?;
    new.agent.iter().try_for_each(|agent| check_word("the agent", agent))?;
    new.cwd.iter().chain(&new.caller_cwd).try_for_each(|cwd| check_path("the directory", cwd))?;
    check_label_count(new.labels.len())?;
    new.labels.iter().try_for_each(|(key, value)| check_label_pair(key, value))?;
    let entries = new.command.len() + new.env.len() + new.caller_env.len();
    at_most("arguments and variables", entries, ARGUMENTS_MAX)
}

fn check_scope(scope: &ClaimScope) -> Check {
    match scope {
        ClaimScope::Sessions(selection) => check_selection(selection),
        ClaimScope::Host(_) => Ok(()),
    }
}

fn check_selection(selection: &Selection) -> Check {
    match selection {
        Selection::Named(sessions) => {
            at_most("sessions", sessions.len(), IDS_MAX)?;
            sessions.iter().try_for_each(check_session)
        }
        Selection::Matching { agent, labels } => {
            check_label_count(labels.len())?;
            labels.iter().try_for_each(|(key, value)| check_label_pair(key, value))?;
            agent.iter().try_for_each(|agent| check_word("the agent", agent))
        }
    }
}

fn check_worker(add: &AddWorker) -> Check {
    let WorkerSpec { name, command, kinds, sessions, fallback, .. } = &add.worker;
    check_word("the name", name)?;
    check_words("kinds", kinds.iter())?;
    check_words("fallbacks", fallback.iter())?;
    if let WorkerQueue::Sessions(selection) = sessions {
        check_selection(selection)?;
    }
    check_path("the directory", &add.cwd)?;
    at_most("arguments and variables", command.len() + add.env.len() + add.caller_env.len(), ARGUMENTS_MAX)
}

fn check_approve(approve: &Approve) -> Check {
    check_session(&approve.session)?;
    at_most("answers", approve.answers.len(), LIST_MAX)?;
    let texts = approve.answers.iter().chain(&approve.reason);
    texts.into_iter().try_for_each(|text| at_most("bytes of an answer", text.len(), ANSWER_MAX))
}

/// Returns the longest prefix of `text` that has at most `max` bytes and ends at a character boundary.
pub fn cut(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

/// Returns at most `max` bytes of a text. If it is cut, it ends with a mark, such as `... (12 more bytes)`; `place`
/// follows the word "bytes".
pub fn cut_with_mark(text: &str, max: usize, place: &str) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mark = |more: usize| format!("... ({more} more bytes{place})");
    // No mark is longer than that of the whole length.
    let kept = cut(text, max.saturating_sub(mark(text.len()).len()));
    cut(&format!("{kept}{}", mark(text.len() - kept.len())), max).to_owned()
}

/// Returns at most [`ASK_MAX`] bytes of a question. A cut one ends with a mark: who answers has to know of the rest.
pub fn cut_question(text: &str) -> String {
    cut_with_mark(text, ASK_MAX, "; see its terminal")
}

fn shorten(text: &mut String, max: usize) {
    text.truncate(cut(text, max).len());
}

fn shorten_all<'a>(texts: impl IntoIterator<Item = &'a mut String>, max: usize) {
    texts.into_iter().for_each(|text| shorten(text, max));
}

impl Hook {
    /// Truncates each text to its limit. `poolctl hook` does the same; spooled files and other clients need
    /// not.
    #[must_use]
    pub fn within_bounds(mut self) -> Self {
        use crate::hook::{PROMPT_MAX, TEXT_MAX};
        shorten(&mut self.agent, WORD_MAX);
        shorten_all(&mut self.conversation, WORD_MAX);
        shorten_all(self.awake.as_mut().map(|awake| &mut awake.boot), WORD_MAX);
        // A truncated path would name another file.
        self.transcript = self.transcript.filter(|path| path.0.len() <= PATH_MAX);
        match &mut self.signal {
            HookEvent::Prompt { text, cut, turn } => {
                *cut |= text.len() > PROMPT_MAX;
                shorten(text, PROMPT_MAX);
                shorten_all(turn, WORD_MAX);
            }
            HookEvent::Working { what, skill } => shorten_all(what.iter_mut().chain(skill), WORD_MAX),
            HookEvent::ToolUsed(used) => {
                let ToolUse { id, tool, input, response, failed: _, cwd } = used.as_mut();
                shorten_all(id.iter_mut().chain([tool]), WORD_MAX);
                shorten_all(cwd, PATH_MAX);
                shorten_all([input, response], TEXT_MAX);
            }
            HookEvent::Permission { tool, text, wait_ms: _ } => {
                shorten(tool, WORD_MAX);
                *text = cut_question(text);
            }
            HookEvent::Notified { kind: _, text } => *text = cut_question(text),
            HookEvent::TurnOver { turn, said } => {
                shorten_all(turn, WORD_MAX);
                shorten_all(said, TEXT_MAX);
            }
            HookEvent::TurnFailed { error, .. } => shorten(error, TEXT_MAX),
            HookEvent::Started { source: _ } | HookEvent::Interrupted => {}
            HookEvent::Asking { tool, plan } => {
                shorten(tool, WORD_MAX);
                shorten_all(plan, TEXT_MAX);
            }
            HookEvent::Ended { reason: word } => shorten(word, WORD_MAX),
        }
        self
    }
}

impl Outcome {
    /// Keeps the first [`PROCESSES_MAX`] processes and adds the number of the others.
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
    // A list of 1,000 lines of 256 bytes, and the line that counts the others, fits a frame.
    shorten_all(left.iter_mut(), 256);
    if let Some(more) = left.len().checked_sub(PROCESSES_MAX).filter(|more| *more > 0) {
        left.truncate(PROCESSES_MAX);
        left.push(format!("and {more} more"));
    }
}

impl Observe {
    /// Truncates the texts chosen by programs: names of sessions and programs, and directories.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::List;

    #[test]
    fn a_text_that_is_cut_says_how_much_is_missing() {
        assert_eq!(cut_with_mark("npm test", 8, ""), "npm test");
        assert_eq!(cut_with_mark(&"x".repeat(40), 30, ""), "xxxxxxxxxxx... (29 more bytes)");
        assert_eq!(cut_with_mark(&"é".repeat(20), 30, " there"), "éé... (36 more bytes there)");
        assert_eq!(cut_with_mark("npm test", 3, ""), "...");
        let long = format!("npm test #{};rm -rf x", " ".repeat(9000));
        let question = cut_question(&long);
        assert!(question.len() <= ASK_MAX && question.starts_with("npm test #"));
        assert!(question.ends_with(" more bytes; see its terminal)"), "{question}");
        assert_eq!(cut_question(&question), question);
    }

    #[test]
    fn a_label_has_one_limit() {
        let told = |key: usize, value: usize| {
            let labels = [("k".repeat(key), "v".repeat(value))];
            let session = SessionRef("web".to_owned());
            let label = Label { session, set: labels.clone().into(), remove: Vec::new() };
            let label = Request::Label(label).check_bounds();
            let list = List { labels: labels.into(), ..List::default() };
            assert_eq!(label, Request::List(list).check_bounds());
            label.err().map(|refusal| refusal.message)
        };
        assert_eq!(told(LABEL_KEY_MAX, LABEL_VALUE_MAX), None);
        assert_eq!(told(64, 1).as_deref(), Some("bytes of a label's key: 64, over the limit of 63"));
        for value in [1025, PATH_MAX + 1] {
            let over = format!("bytes of a label's value: {value}, over the limit of 1024");
            assert_eq!(told(1, value), Some(over));
        }
    }
}
