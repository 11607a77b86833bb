//! What agents' hooks report: taken in within one turn, answered once it is on disk. A request for a permission is
//! answered when somebody decides. What hooks left in files while no daemon answered is read at the start and now and
//! then.

mod asks;
mod follow;
mod notification;
mod order;
mod spool;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use agents::Adapter;
use agents::text::{Same, compare};
use pool::activity::Marks;
use pool::deadlines::Mono;
use pool::heard::{self, Heard, Hearing};
use pool::{Agent, queue};
use protocol::activity::Ask;
use protocol::hook::{Decision, Hook, Signal};
use protocol::message::PROMPT;
use protocol::{Event, MessageId, MessageState, Reply, Response, SessionId, Tag, Timestamp};
use tokio::sync::oneshot;

pub(crate) use asks::{asks, open};
pub(crate) use spool::{read, read_of, run};

use crate::activity::limited;
use crate::clock;
use crate::context::Daemon;
use crate::engine::Turn;
use asks::{Asked, decided};

/// Reports that are remembered, so that one that comes twice is taken in once.
const REMEMBERED: usize = 4096;
/// The hook is answered a little before it stops waiting.
const MARGIN: Duration = Duration::from_millis(500);

/// What the daemon knows of agents and need not remember.
#[derive(Default)]
pub(crate) struct Agents {
    /// The reports that were taken in last.
    heard: VecDeque<u64>,
    /// Hooks that wait for a decision.
    asks: BTreeMap<(SessionId, u64), oneshot::Sender<Decision>>,
    /// Decisions that hooks were sent and their agents have not taken yet, each with its `approve` that waits.
    sent: BTreeMap<(SessionId, u64), oneshot::Sender<()>>,
    /// What agents ask beside what is shown, oldest first.
    behind: BTreeMap<SessionId, Vec<Ask>>,
    /// Why the next prompt of a session is not typed yet.
    pub(crate) waits: BTreeMap<SessionId, String>,
    /// What programs told their terminals.
    pub(crate) marks: BTreeMap<Tag, Marks>,
    /// When the last look at an incarnation began of which something is known.
    pub(crate) looked: BTreeMap<Tag, Timestamp>,
    /// The turns that the prompts which agents have began, where they said so.
    turns: BTreeMap<SessionId, String>,
    /// The end of the usage limit after which an agent was last to be told to go on.
    pub(crate) goes_on: BTreeMap<SessionId, Timestamp>,
    /// When keys were last pressed in a session's terminal by the pool.
    pub(crate) keyed: BTreeMap<SessionId, Mono>,
    /// Incarnations whose panes know later prompts than this pool does.
    pub(crate) ahead: BTreeSet<Tag>,
    /// Prompts that were typed and left to a person.
    pub(crate) given_up: BTreeMap<SessionId, MessageId>,
}

impl Agents {
    /// Forgets what belongs to sessions that there are no more.
    pub(crate) fn forget(&mut self, there: &BTreeSet<SessionId>) {
        self.turns.retain(|session, _| there.contains(session));
        self.goes_on.retain(|session, _| there.contains(session));
        self.keyed.retain(|session, _| there.contains(session));
        self.behind.retain(|session, _| there.contains(session));
        self.waits.retain(|session, _| there.contains(session));
    }

    /// Whether this report is new.
    fn is_new(&mut self, id: u64) -> bool {
        if self.heard.contains(&id) {
            return false;
        }
        self.heard.truncate(REMEMBERED - 1);
        self.heard.push_front(id);
        true
    }
}

/// The prompt that is next for a session, and why it is not typed yet.
pub(crate) fn waits(turn: &Turn<'_>, session: SessionId) -> Option<(MessageId, String)> {
    let open = queue::waiting_prompt(turn.pool(), session)?;
    let (next, not_before) = (open.id, open.not_before.filter(|at| *at > turn.now()));
    let before = queue::held_prompt(turn.pool(), session);
    let behind = before.map(|open| {
        let state = protocol::MessageStatus { state: open.state, ..Default::default() }.event_kind();
        let settle = match open.state {
            MessageState::Typed | MessageState::InDoubt => {
                let name = turn.pool().session(session).map(|session| session.name.to_string());
                let name = name.unwrap_or_default();
                format!(": `{}`", queue::resolve_command(&name, open.id))
            }
            _ => String::new(),
        };
        format!("message {} comes first ({}){settle}", open.id, state.trim_start_matches("message_"))
    });
    let limited = || {
        let session = turn.pool().session(session)?;
        pool::delivery::limited(&pool::activity::shown(turn.pool(), session), turn.now())
    };
    let held_back = || {
        let breaker = turn.pool().breaker(session, PROMPT).filter(|breaker| breaker.is_open())?;
        let until = breaker.probe_at.filter(|at| *at > turn.now())?;
        Some(format!("held back after {} failures, not before {}", breaker.failures, clock::text(until)))
    };
    let over = || {
        let session = turn.pool().session(session).filter(|s| !s.lifecycle.holds_slot())?;
        let (name, word) = (&session.name, crate::verb::lifecycle_word(session.lifecycle));
        Some(match session.lifecycle {
            protocol::Lifecycle::Parked => "its session is parked, and waits for a slot".to_owned(),
            _ => format!("its session is {word}: `poolctl restart {name}`"),
        })
    };
    let later = || {
        let at = clock::text(not_before?);
        let tried = || turn.message(next).ok().flatten().and_then(|(message, _)| message.status.reason);
        let why = if open.attempts > 0 { tried() } else { None };
        Some(why.map_or(format!("not before {at}"), |why| format!("{why}; tried again at {at}")))
    };
    let known = behind.or_else(|| turn.rest.agents.waits.get(&session).cloned());
    Some((next, known.or_else(limited).or_else(held_back).or_else(later).or_else(over)?))
}

/// A hook's report, and its answer.
pub(crate) async fn hook(daemon: &Arc<Daemon>, hook: Box<Hook>) -> Reply {
    if notification::is_notification(&hook) {
        notification::look_into(daemon, *hook);
        return Ok(Response::Done);
    }
    let context = Arc::clone(daemon);
    let at_once = move |turn: &mut Turn<'_>| {
        if order::is_early(turn, &hook) { Err(hook) } else { Ok(take(turn, &context, *hook)) }
    };
    let asked = match daemon.engine.turn(at_once).await? {
        Ok(asked) => asked,
        Err(hook) => {
            order::earlier_first(daemon, &hook).await?;
            let context = Arc::clone(daemon);
            daemon.engine.turn(move |turn| take(turn, &context, *hook)).await?
        }
    };
    match asked {
        Some(asked) => Ok(decided(daemon, asked).await.map_or(Response::Done, Response::Decided)),
        None => Ok(Response::Done),
    }
}

/// Takes a report in. Answers who waits for a decision.
fn take(turn: &mut Turn<'_>, daemon: &Daemon, hook: Hook) -> Option<Asked> {
    if !turn.rest.agents.is_new(hook.id) {
        return None;
    }
    let hook = hook.within_bounds();
    let session = turn.pool().session(hook.session)?.clone();
    let settings = &daemon.loaded().settings;
    let (agent, rules) = (settings.agent_of(&session), &settings.queue);
    let its = turn.rest.agents.turns.get(&session.id).cloned();
    let hearing = Hearing {
        agent,
        rules,
        turn: its.as_deref(),
        same: same(turn, agent, &hook),
        behind: &turn.rest.agents.behind.get(&session.id).cloned().unwrap_or_default(),
        now: turn.now(),
    };
    let Heard { events, open } = heard::heard(turn.pool(), &session, &hook, hearing);
    if events.is_empty() {
        return None;
    }
    if let Signal::Prompt { turn: begun, .. } = &hook.signal
        && events.iter().any(accepts)
    {
        turn.rest.agents.turns.remove(&session.id);
        turn.rest.agents.turns.extend(begun.clone().map(|begun| (session.id, begun)));
    }
    turn.emit_all(events);
    turn.rest.agents.keep(session.id, &open);
    turn.rest.view.worked.insert(hook.tag, hook.at.min(turn.now()));
    follow::follow(turn, daemon, &session, (agent, &hook));
    if matches!(hook.signal, Signal::TurnOver { .. }) {
        limited::lifted(turn, session.id);
    }
    let Signal::Permission { wait_ms, .. } = hook.signal else { return None };
    open.iter().find(|ask| ask.id == hook.id && ask.answerable)?;
    let limit = Duration::from_millis(wait_ms).saturating_sub(MARGIN);
    let (sender, decision) = oneshot::channel();
    turn.rest.agents.asks.insert((session.id, hook.id), sender);
    let hides_dialog = agent.adapter == Adapter::Codex;
    Some(Asked { session: session.id, ask: hook.id, decision, limit, hides_dialog })
}

/// Takes in what an agent recorded and no hook said.
pub(crate) fn recorded(turn: &mut Turn<'_>, daemon: &Daemon, hook: Hook) {
    drop(take(turn, daemon, hook));
}

/// Whether a prompt is taken by this.
fn accepts(event: &Event) -> bool {
    matches!(event, Event::MessageChanged { status, .. } if status.state == MessageState::Accepted)
}

/// How the prompt that was heard compares with the one that was typed.
fn same(turn: &Turn<'_>, agent: &Agent, hook: &Hook) -> Same {
    let Signal::Prompt { text, cut, .. } = &hook.signal else { return Same::No };
    let Some(open) = queue::held_prompt(turn.pool(), hook.session) else { return Same::No };
    let Ok(Some((message, body))) = turn.message(open.id) else { return Same::No };
    // One that said the same before is not this one, however late its hook is heard.
    if message.typing_began().is_some_and(|began| hook.at < began && began <= turn.now()) {
        return Same::No;
    }
    let body = crate::delivery::text_of(turn, agent, &message, body);
    compare(agent.adapter, &String::from_utf8_lossy(&body), text, *cut)
}
