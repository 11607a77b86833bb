//! The judge: what really happened in the world, against what was promised.

mod claims;
mod conversations;
mod decisions;
mod excuses;
mod exits;
mod helpers;
mod locks;
mod records;
mod rules;
mod sessions;
pub(crate) mod timeline;
mod turns;
mod typing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::{MessageId, ProcId, Seq, SessionId, Tag, Timestamp, Token};
use tmux::ServerRef;
use tokio::time::Instant;

use crate::trace::Trace;

use records::Excuses;
pub(crate) use records::{Asked, LEASE};

/// Ends of the bodies of special prompts. A mortal one may expire; an unordered one has another priority; one in doubt
/// stays in doubt (at most once), or is typed again (at least once).
pub(crate) const MORTAL: &str = " with a time limit";
pub(crate) const UNORDERED: &str = " out of order";
pub(crate) const AT_MOST_ONCE: &str = " at most once";
pub(crate) const AT_LEAST_ONCE: &str = " at least once";

/// Beginning of a line that a client types by `input`.
pub(crate) const INPUT: &str = "hello ";

/// The judge; clones share it.
#[derive(Clone)]
pub(crate) struct Judge(Arc<Mutex<State>>, Trace);

#[derive(Default, Clone)]
struct State {
    slots: usize,
    /// Pastes and Enters of each prompt, by its text.
    prompts: BTreeMap<String, Prompt>,
    pastes: u64,
    /// Lines that were typed by `input`.
    inputs: BTreeSet<String>,
    /// The prompt typed last into the pane of an incarnation.
    last: BTreeMap<Tag, String>,
    /// Messages that were acknowledged, with their bodies.
    acknowledged: BTreeMap<MessageId, (SessionId, String)>,
    /// Messages that start their sessions.
    waking: BTreeSet<MessageId>,
    /// All messages ever acknowledged, including those that a restored backup does not contain.
    numbered: BTreeMap<MessageId, String>,
    /// Messages that somebody has asked to be typed again.
    retried: Excuses<String>,
    /// Sessions that somebody has asked to be removed.
    removed: Excuses<SessionId>,
    /// All sessions whose creation was ever acknowledged, also those that a backup does not have.
    numbered_sessions: BTreeSet<SessionId>,
    /// Sessions whose creation was acknowledged, with their first names.
    created: BTreeMap<SessionId, String>,
    /// Sessions whose removal was acknowledged.
    gone: BTreeSet<SessionId>,
    /// Messages whose processing was reported, and the report acknowledged.
    processed: BTreeSet<MessageId>,
    /// Messages whose records somebody has asked to be removed.
    purged: Excuses<MessageId>,
    /// Messages that are over, by what a subscriber was told.
    told_final: BTreeSet<MessageId>,
    /// Messages of which the repetition of their request was told that they were removed, with their sessions.
    told_gone: BTreeMap<MessageId, SessionId>,
    /// True once somebody has asked to adopt something.
    has_adoptions: bool,
    /// Messages that a person gave up.
    given_up: Excuses<MessageId>,
    /// Incarnations whose programs have started, with their sessions and tmux servers.
    started: BTreeMap<Tag, (SessionId, ServerRef)>,
    /// The exit codes and signals that inits have reported.
    exits: BTreeMap<Tag, (Option<i32>, Option<i32>)>,
    /// Decisions on requests for a permission, as they are made and as they have arrived: true for one that allows.
    to_decide: BTreeMap<u64, bool>,
    decided: BTreeMap<u64, bool>,
    /// Incarnations that somebody wants to be parked whatever they do.
    park_asked: BTreeSet<Tag>,
    /// Incarnations of which a subscriber was told that they run.
    told_live: BTreeSet<Tag>,
    /// Incarnations that have a pane, or had one.
    begun: BTreeSet<Tag>,
    /// Incarnations of before the database was put back.
    forgotten: BTreeSet<Tag>,
    /// Times that the database was put back.
    timeline: u64,
    /// The tmux servers that have ended.
    ended_servers: Vec<ServerRef>,
    /// Sessions whose agents report what they do.
    reporting: BTreeSet<SessionId>,
    /// Prompts whose turns an outage cut short, with their conversations: in another one they are typed once more.
    cut_short: BTreeMap<String, String>,
    /// The turns in which agents are, or were at their end.
    at_work: BTreeMap<Tag, Turn>,
    /// The end of the last dialog of each incarnation; `None` while it is on the screen.
    dialogs: BTreeMap<Tag, Option<Instant>>,
    /// The end of the last turn of each incarnation.
    rested_at: BTreeMap<Tag, Instant>,
    /// Running incarnations whose panes were closed while a client was attached.
    closed_attended: BTreeSet<Tag>,
    /// The shortest idle timeout that somebody has asked for.
    shortest_idle_ms: Option<u64>,
    /// Texts on which an agent's turn has ended.
    finished: BTreeSet<String>,
    /// Texts on which a turn has ended well, each with the time at which its living agent had reported that.
    succeeded: BTreeMap<String, Timestamp>,
    /// Claims that their workers hold.
    claims: BTreeMap<MessageId, (Token, ProcId)>,
    /// Claims whose workers send heartbeats, and the processes that handle claims.
    kept: BTreeMap<MessageId, records::Kept>,
    handled: BTreeMap<MessageId, records::Handled>,
    /// Workers that wait for messages.
    waiting: BTreeSet<ProcId>,
    /// The end of the daemon's last standstill.
    still_until: Option<Instant>,
    /// The newest token of each message, and the newest since the database was put back.
    tokens: BTreeMap<MessageId, Token>,
    tokens_since: BTreeMap<MessageId, Token>,
    /// The tags by which the reaper finds workers for claims of before the database was put back.
    old_claims: BTreeSet<Tag>,
    /// Locks that their clients hold, with the end of their leases.
    locks: BTreeMap<SessionId, (Token, Instant)>,
    /// The same, unless somebody may have taken them away by force, and the clients that ask for that now.
    held: BTreeMap<SessionId, (Token, Instant)>,
    forcing: u64,
    /// Locks inside of which their holders have let something start, and those with prompts that their holders have
    /// sent: the newest, `None` while its id is not known.
    used_inside: BTreeSet<Token>,
    fed: BTreeMap<Token, Option<MessageId>>,
    /// Sessions whose agents have met their usage limit.
    limited: BTreeSet<SessionId>,
    /// Prompts that were taken back before they were typed, with the time at which that was acknowledged.
    withdrawn: BTreeMap<String, Instant>,
    /// Messages that were refused at their first and only attempt.
    refused: BTreeSet<String>,
    /// The last time at which each mortal prompt may be typed.
    mortal: BTreeMap<String, Instant>,
    /// The helpers of the daemon without a connection to it, each with the time since when.
    helpers_gone: BTreeMap<&'static str, Instant>,
    /// The conversations of agents of which the pool hears nothing.
    quiet: records::Quiet,
    /// True once a subscriber was told the state in place of events that it has missed.
    has_missed: bool,
    /// The last event that a subscriber has seen.
    seen: Seq,
    /// True while the daemon ends because it was told to, and its disk works.
    is_stopping: bool,
    counts: BTreeMap<String, u64>,
    violations: Vec<String>,
}

/// A turn of an agent.
#[derive(Clone)]
struct Turn {
    began: Instant,
    /// True if the daemon has acknowledged the report of its beginning.
    is_told: bool,
    /// The texts on which it works.
    texts: BTreeSet<String>,
}

#[derive(Default, Clone, Copy)]
pub(crate) struct Prompt {
    pub(crate) pasted: u32,
    pub(crate) entered: u32,
    /// A person typed a line into the same terminal afterwards, which enters the prompt with it.
    pub(crate) entered_by_person: bool,
    /// Enter was pressed on it while tmux failed, or soon after: the call may have come late.
    pub(crate) entered_in_trouble: bool,
    /// Number among all pastes.
    pub(crate) nth: u64,
    /// The session into which it was pasted last.
    pub(crate) session: Option<SessionId>,
}

impl Judge {
    /// Returns a judge of a pool with this many slots.
    pub(crate) fn new(slots: usize, trace: Trace) -> Self {
        Self(Arc::new(Mutex::new(State { slots, ..State::default() })), trace)
    }

    /// Notes a broken promise.
    pub(crate) fn violated(&self, what: String) {
        self.1.tell(|| format!("VIOLATION: {what}"));
        self.state().violations.push(what);
    }

    /// Returns the broken promises.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    /// Notes that the daemon ends because it was told to, or has ended.
    pub(crate) fn note_stopping(&self, is_stopping: bool) {
        self.state().is_stopping = is_stopping;
    }

    /// Checks that a stopping daemon refuses nothing that the next daemon has to answer.
    pub(crate) fn check_stop(&self, shown: &str) {
        if self.state().is_stopping {
            self.violated(format!("O2: a stop refused what the next daemon has to answer: {shown:.200}"));
        }
    }

    /// Counts something for the coverage.
    pub(crate) fn count(&self, what: impl Into<String>) {
        *self.state().counts.entry(what.into()).or_default() += 1;
    }

    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        self.state().counts.clone()
    }

    /// Notes that tmux has typed text into the pane of an incarnation.
    pub(crate) fn typed(&self, tag: Tag, text: &[u8], is_paste: bool) {
        let text = String::from_utf8_lossy(text).into_owned();
        self.1.tell(|| format!("typed into {tag}: {text:?}"));
        let mut state = self.state();
        if state.forgotten.contains(&tag) {
            return;
        }
        if text.starts_with(INPUT) && !state.inputs.insert(text.clone()) {
            drop(state);
            return self.violated(format!("Q6: the input {text:?} was typed twice"));
        }
        if is_paste {
            state.pastes += 1;
            let nth = state.pastes;
            let session = state.started.get(&tag).map(|(session, _)| *session);
            let prompt = state.prompts.entry(text.clone()).or_default();
            prompt.pasted += 1;
            prompt.nth = nth;
            prompt.session = session;
            let pasted = prompt.pasted;
            let is_asked_for = state.retried.contains(&text) || state.cut_short.contains_key(&text);
            let may_repeat = is_asked_for || !text.starts_with("prompt");
            state.last.insert(tag, text.clone());
            drop(state);
            if pasted > 1 && !may_repeat && !text.ends_with(AT_LEAST_ONCE) {
                self.violated(format!("Q6: {text:?} was typed twice"));
            }
        } else if text.contains('\r')
            && let Some(last) = state.last.get(&tag).cloned()
        {
            let prompt = state.prompts.entry(last.clone()).or_default();
            if text != "\r" {
                prompt.entered_by_person = true;
                let is_mixed = prompt.entered < prompt.pasted;
                drop(state);
                if is_mixed {
                    self.mixed(&last);
                }
                return;
            }
            prompt.entered += 1;
            let twice = prompt.entered > prompt.pasted;
            drop(state);
            if twice {
                self.violated(format!("Q6: Enter was pressed twice on {last:?}"));
            }
        }
    }

    /// Notes that an incarnation has a pane. `timeline` is the one in which tmux was asked for the pane.
    pub(crate) fn begun(&self, tag: Tag, timeline: u64) {
        let mut state = self.state();
        state.begun.insert(tag);
        if timeline < state.timeline {
            state.forgotten.insert(tag);
        }
    }

    /// Notes that the program of an incarnation starts, beside this many others.
    pub(crate) fn started(&self, (tag, session): (Tag, SessionId), others: usize, server: ServerRef) {
        let mut state = self.state();
        let is_first = state.started.insert(tag, (session, server)).is_none();
        let slots = state.slots;
        drop(state);
        if !is_first {
            self.violated(format!("a job was started twice: {tag}"));
        }
        if others >= slots {
            self.violated(format!("G-08: {} programs run in {slots} slots", others + 1));
        }
    }

    /// Notes that a tmux server has ended.
    pub(crate) fn server_ended(&self, server: ServerRef) {
        self.state().ended_servers.push(server);
    }

    /// True if the program of the incarnation has started, and its tmux server has not ended.
    pub(crate) fn has_server(&self, tag: Tag) -> bool {
        let state = self.state();
        state.started.get(&tag).is_some_and(|(_, server)| !state.ended_servers.contains(server))
    }

    /// Notes that the agents of a session report what they do.
    pub(crate) fn reports(&self, session: SessionId) {
        self.state().reporting.insert(session);
    }

    /// Notes an acknowledged message.
    pub(crate) fn acknowledged(&self, id: MessageId, session: SessionId, body: &str) {
        let mut state = self.state();
        state.acknowledged.insert(id, (session, body.to_owned()));
        let before = state.numbered.insert(id, body.to_owned());
        drop(state);
        if let Some(other) = before
            && other != body
        {
            self.violated(format!("two messages have the id {id}: {other:?} and {body:?}"));
        }
    }

    /// Returns the session and the body of an acknowledged message.
    pub(crate) fn message(&self, id: MessageId) -> Option<(SessionId, String)> {
        self.state().acknowledged.get(&id).cloned()
    }

    /// Returns the acknowledged messages.
    pub(crate) fn messages(&self) -> BTreeMap<MessageId, (SessionId, String)> {
        self.state().acknowledged.clone()
    }

    /// Notes that a subscriber was told of the state of a message.
    pub(crate) fn told_state(&self, id: MessageId, is_final: bool) {
        let mut state = self.state();
        if is_final {
            state.told_final.insert(id)
        } else {
            state.told_final.remove(&id)
        };
    }

    /// True if a message is over, by what a subscriber was told last.
    pub(crate) fn was_final(&self, id: MessageId) -> bool {
        self.state().told_final.contains(&id)
    }

    /// Notes that whoever repeated the request for a message was told that it was removed.
    pub(crate) fn gone_as_told(&self, id: MessageId, session: SessionId) {
        self.state().told_gone.insert(id, session);
    }

    /// Returns the messages of which it was told that they were removed, with their sessions.
    pub(crate) fn told_gone(&self) -> BTreeMap<MessageId, SessionId> {
        self.state().told_gone.clone()
    }

    /// Notes that somebody asks to adopt something.
    pub(crate) fn adoption_asked(&self) {
        self.state().has_adoptions = true;
    }

    /// True once somebody has asked to adopt something.
    pub(crate) fn has_adoptions(&self) -> bool {
        self.state().has_adoptions
    }

    /// Returns what was typed of a prompt.
    pub(crate) fn prompt(&self, body: &str) -> Prompt {
        self.state().prompts.get(body).copied().unwrap_or_default()
    }

    /// Notes an event that a subscriber has got, after the state or another event.
    pub(crate) fn saw(&self, seq: Seq, is_after_state: bool) {
        let mut state = self.state();
        let before = std::mem::replace(&mut state.seen, seq);
        drop(state);
        if seq.0 < before.0 {
            self.violated(format!("D3: event {} was told, and now the last one is {}", before.0, seq.0));
        }
        if !is_after_state && seq.0 != before.0 + 1 {
            self.violated(format!("S5: event {} follows event {}", seq.0, before.0));
        }
    }

    /// Returns the last event that a subscriber has seen.
    pub(crate) fn seen(&self) -> Seq {
        self.state().seen
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
