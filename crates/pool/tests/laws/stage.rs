//! A session with an agent under test: its hooks, its prompts, its ends.

use std::collections::BTreeMap;

use agents::prompt::TextMatch;
use agents::{Adapter, Confirm};
use pool::agent::{HookInputs, HookOutcome};
use pool::clock::{self, Moment, Reading};
use pool::{Agent, Pool, QueueRules, Settings, agent, prompt, queue};
use protocol::clock::{Clock, ClockStep};
use protocol::hook::{Hook, HookEvent};
use protocol::policy::OnInterrupted;
use protocol::session::Conversation;
use protocol::{
    Activity, ActivityState, Ask, Epoch, Event, Incarnation, Lifecycle, MessageId, MessageState, Notes,
    Reason, Session, SessionId, Tag, Timestamp, Token,
};

use crate::queue::send_prompt;
use crate::world::{self, World, server};

/// The conversation that the pool chose.
pub(crate) const TALK: &str = "talk";
/// Time at which the clock begins.
pub(crate) const START: u64 = 1_000_000;

/// The agent kinds of the configuration.
pub(crate) fn agent(kind: &str) -> Agent {
    let (adapter, confirm, start) = match kind {
        "claude" => (Adapter::Claude, Confirm::Hook, "--session-id {conversation}"),
        "codex" => (Adapter::Codex, Confirm::Hook, ""),
        "shell" => (Adapter::None, Confirm::Prompt, ""),
        "echo" => (Adapter::None, Confirm::Echo, ""),
        _ => (Adapter::None, Confirm::None, ""),
    };
    let (start_args, resume_args) = match adapter {
        Adapter::None => (Vec::new(), Vec::new()),
        _ => (start.split_whitespace().map(str::to_owned).collect(), vec!["--resume".to_owned()]),
    };
    Agent { adapter, confirm, start_args, resume_args, hooks: adapter != Adapter::None, ..Agent::default() }
}

pub(crate) const KINDS: [&str; 5] = ["claude", "codex", "shell", "echo", "none"];

pub(crate) fn settings() -> Settings {
    let agents = KINDS.map(|kind| (kind.to_owned(), agent(kind))).into();
    Settings { agents, ..world::settings() }
}

/// One session that is live since [`START`].
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) world: World,
    pub(crate) agent: Agent,
    pub(crate) id: SessionId,
    pub(crate) rules: QueueRules,
    hooks: u64,
    /// The agent's questions behind the one that is shown.
    behind: Vec<Ask>,
    asked_at: BTreeMap<u64, Moment>,
}

impl Stage {
    pub(crate) fn new(kind: &str) -> Self {
        let mut world = World { now: START, ..World::default() };
        let id = world.live("s", server(1), 1);
        let agent = agent(kind);
        let mut record = world.pool.session(id).unwrap().clone();
        record.spec.agent = kind.to_owned();
        record.spec.resume_args = agent.resume_args.iter().map(|word| word.as_str().into()).collect();
        record.conversation = agent.hooks.then(|| Conversation { id: TALK.to_owned(), begun: false });
        world.emit(Event::SessionCreated(Box::new(record)));
        Self {
            world,
            agent,
            id,
            rules: settings().queue,
            hooks: 0,
            behind: Vec::new(),
            asked_at: BTreeMap::new(),
        }
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.world.pool
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.world.now)
    }

    /// Sets the wall clock, and records the step.
    pub(crate) fn sets_clock(&mut self, ms: u64) {
        let step = ClockStep::new(self.now(), Timestamp(ms));
        self.world.emit(Event::ClockRead(Clock { steps: vec![step], ..Clock::default() }));
        self.world.now = ms;
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.world.now += ms;
    }

    pub(crate) fn session(&self) -> &Session {
        self.pool().session(self.id).unwrap()
    }

    pub(crate) fn tag(&self) -> Tag {
        self.session().incarnation.as_ref().unwrap().tag
    }

    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Session)) {
        let mut record = self.session().clone();
        change(&mut record);
        self.world.emit(Event::SessionCreated(Box::new(record)));
    }

    /// A report of the agent, now.
    pub(crate) fn hook(&mut self, signal: HookEvent) -> Hook {
        self.hooks += 1;
        let conversation = self.session().conversation.as_ref().map(|conversation| conversation.id.clone());
        Hook {
            session: self.id,
            tag: self.tag(),
            id: self.hooks,
            at: self.now(),
            awake: None,
            agent: self.session().spec.agent.clone(),
            conversation,
            transcript: None,
            signal,
        }
    }

    /// Handles a report. Returns the events, which are applied.
    pub(crate) fn handle_hook(&mut self, hook: &Hook, same: TextMatch) -> Vec<Event> {
        let now = Reading { wall: self.now(), awake_ms: 0 };
        let (at, moment) = clock::stamped(self.pool().clock(), now, hook.at, None);
        self.handle_hook_of(moment, &Hook { at, ..hook.clone() }, same)
    }

    /// Handles a report that was made at this moment, whatever the wall clock showed then.
    pub(crate) fn handle_hook_of(&mut self, moment: Moment, hook: &Hook, same: TextMatch) -> Vec<Event> {
        self.asked_at.insert(hook.id, moment);
        let inputs = HookInputs {
            agent: &self.agent,
            rules: &self.rules,
            turn: None,
            text_match: same,
            queued_asks: &self.behind,
            asked_at: Some(&self.asked_at),
            moment,
            now: self.now(),
        };
        let HookOutcome { events, open_asks: open } =
            agent::handle_hook(self.pool(), self.session(), hook, inputs);
        if !events.is_empty() {
            self.behind = open.get(1..).unwrap_or_default().to_vec();
        }
        self.world.emit_all(events.clone());
        events
    }

    /// Handles a report of the agent, now.
    pub(crate) fn says(&mut self, signal: HookEvent) -> Vec<Event> {
        let hook = self.hook(signal);
        self.handle_hook(&hook, TextMatch::Exact)
    }

    pub(crate) fn activity(&self) -> Activity {
        self.pool().activity(self.id).cloned().unwrap_or_default()
    }

    pub(crate) fn state(&self) -> ActivityState {
        self.activity().state
    }

    pub(crate) fn ask(&self) -> Option<Ask> {
        self.activity().ask
    }

    /// All open questions, the one that is shown first.
    pub(crate) fn asks(&self) -> Vec<Ask> {
        agent::open_asks(&self.activity(), &self.behind)
    }

    pub(crate) fn notes(&self) -> Notes {
        self.pool().notes(self.id).cloned().unwrap_or_default()
    }

    pub(crate) fn send(&mut self) -> MessageId {
        send_prompt(&mut self.world, self.id).unwrap()
    }

    /// Begins to type the next prompt, if it can be typed now.
    pub(crate) fn begin(&mut self) -> Option<MessageId> {
        let now = self.now();
        let open = queue::next_prompt(self.pool(), self.id, now)?;
        let (id, event) = (open.id, queue::begin_typing(&open, Token { epoch: Epoch(1), n: now.0 }, now));
        self.world.emit(event);
        Some(id)
    }

    /// Moves a message to another state.
    pub(crate) fn moves(&mut self, id: MessageId, state: MessageState) {
        let event = queue::transition(&self.pool().find_pending(id).unwrap(), state, None, self.now());
        self.world.emit(event);
    }

    /// Queues a prompt that is typed and entered.
    pub(crate) fn typed(&mut self) -> MessageId {
        self.send();
        let id = self.begin().unwrap();
        self.moves(id, MessageState::Typed);
        id
    }

    pub(crate) fn message(&self, id: MessageId) -> MessageState {
        self.pool().message_state(self.id, id).unwrap()
    }

    /// The reason of a message's state.
    pub(crate) fn why(&self, id: MessageId) -> Option<String> {
        self.world.disk.messages[&id].1.as_ref().and_then(|status| Some(status.reason.as_ref()?.to_string()))
    }

    /// Ends the incarnation.
    pub(crate) fn end(&mut self) {
        let (session, reason, exit) = (self.id, Reason::Exited, None);
        self.world.emit(Event::SessionStopped { session, reason, exit });
    }

    /// Starts another incarnation.
    pub(crate) fn again(&mut self) {
        let (tag, at) = (self.world.tag(), self.now());
        let before = self.session().incarnation.clone().unwrap();
        let incarnation = Incarnation { tag, started_at: at, ..before };
        let (session, incarnations, restarts) = (self.id, self.session().incarnations + 1, 0);
        let begun = incarnation.clone();
        self.world.emit(Event::SessionStarting { session, incarnation: begun, incarnations, restarts });
        self.world.emit(Event::SessionLive { session, incarnation, recovered: false });
    }

    /// Ends the prompts of ended agents, as the daemon does.
    pub(crate) fn settle_ended(&mut self) -> Vec<Event> {
        let events =
            prompt::fail_abandoned(self.pool(), &prompt::abandoned(self.pool(), self.now()), self.now());
        self.world.emit_all(events.clone());
        events
    }

    /// Replaces the daemon by another one that starts from disk.
    pub(crate) fn crash(&mut self) {
        self.world.pool = self.world.rebuilt();
        // No pane tells what was typed.
        let typing = self.pool().held_messages().filter(|open| open.state == MessageState::Typing);
        let events: Vec<Event> =
            typing.map(|open| queue::transition(&open, MessageState::InDoubt, None, self.now())).collect();
        self.world.emit_all(events);
    }

    pub(crate) fn is(&mut self, lifecycle: Lifecycle, reason: Option<Reason>) {
        self.change(|s| (s.lifecycle, s.reason) = (lifecycle, reason));
    }

    /// Sets the treatment of interrupted prompts.
    pub(crate) fn on_interrupted(mut self, then: OnInterrupted) -> Self {
        self.agent.on_interrupted = then;
        self
    }
}

/// Signals by plain names.
pub(crate) mod signal {
    use protocol::Timestamp;
    use protocol::hook::{HookEvent, Notice, Start, ToolUse};

    pub(crate) fn started(source: Start) -> HookEvent {
        HookEvent::Started { source }
    }

    pub(crate) fn prompt() -> HookEvent {
        HookEvent::Prompt { text: "text".to_owned(), cut: false, turn: None }
    }

    pub(crate) fn works(tool: &str) -> HookEvent {
        HookEvent::Working { what: Some(tool.to_owned()), skill: None }
    }

    pub(crate) fn asking(tool: &str) -> HookEvent {
        HookEvent::Asking { tool: tool.to_owned(), plan: None }
    }

    pub(crate) fn used(tool: &str) -> HookEvent {
        let (input, response) = ("{}".to_owned(), String::new());
        let tool = tool.to_owned();
        HookEvent::ToolUsed(Box::new(ToolUse { id: None, tool, input, response, failed: false, cwd: None }))
    }

    pub(crate) fn asks(tool: &str, wait_ms: u64) -> HookEvent {
        HookEvent::Permission { tool: tool.to_owned(), text: "rm -rf x".to_owned(), wait_ms }
    }

    /// The use of `Bash` for a command, as the tool's own arguments show it.
    pub(crate) fn ran(command: &str) -> HookEvent {
        let HookEvent::ToolUsed(used) = used("Bash") else { unreachable!() };
        let input = format!("{{\"command\":{command:?},\"description\":\"x\"}}");
        HookEvent::ToolUsed(Box::new(ToolUse { input, ..*used }))
    }

    pub(crate) fn wants(command: &str, wait_ms: u64) -> HookEvent {
        HookEvent::Permission { tool: "Bash".to_owned(), text: command.to_owned(), wait_ms }
    }

    pub(crate) fn notified(kind: Notice) -> HookEvent {
        HookEvent::Notified { kind, text: "look".to_owned() }
    }

    pub(crate) fn over() -> HookEvent {
        HookEvent::TurnOver { turn: None, said: Some("done".to_owned()) }
    }

    pub(crate) fn failed(until: Option<u64>) -> HookEvent {
        let limited = until.is_some();
        HookEvent::TurnFailed { error: "limit".to_owned(), limited, until: until.map(Timestamp) }
    }

    pub(crate) fn ended() -> HookEvent {
        HookEvent::Ended { reason: "other".to_owned() }
    }
}
