//! The inbox: everything that waits for a person, each item with the command to run next.

use std::time::Duration;

use protocol::activity::AskKind;
use protocol::message::PROMPT;
use protocol::reply::InboxItem;
use protocol::{
    ActivityState, Lifecycle, MessageState, Session, Standstill, StuckLane, StuckReason, Timestamp,
};

use crate::agent::activity::current_activity;
use crate::agent::state::Agents;
use crate::pool::Pool;
use crate::prompt::blocked::Blocked;
use crate::queue::prompts::{held_prompt, waiting_prompt};
use crate::queue::{admin, doubt, health};
use crate::session::lifecycle::is_restarting;
use crate::settings::QueueRules;
use crate::volatile::Volatile;

/// Time that a prompt may wait or stay unconfirmed before it is an item.
const SOON: Duration = Duration::from_secs(30);

/// Maximum length of an item's text, in bytes.
const TEXT_MAX: usize = 300;

/// All items, the longest waiting first.
#[must_use]
pub fn items(pool: &Pool, volatile: &Volatile, rules: &QueueRules, now: Timestamp) -> Vec<InboxItem> {
    let of = |session: &Session| {
        let why = volatile.prompts.blocked().get(&session.id);
        let items = SessionItems { pool, session, now };
        let found =
            [items.asks(&volatile.agents), items.login(), items.unconfirmed(), items.blocked_prompt(why)];
        let held = [items.failing(), items.suspended(), items.exhausted(), items.over()];
        found.into_iter().chain(held).flatten().collect::<Vec<_>>()
    };
    let mut items: Vec<InboxItem> = pool.sessions().flat_map(of).collect();
    let lanes = health::stuck(pool, volatile, rules, now);
    items.extend(lanes.iter().filter_map(|lane| worker(pool, lane, now)));
    items.sort_by_key(|item| (item.since, item.session));
    items
}

/// A lane waits for a worker. Other lanes that stand still have items of their own, or end by themselves.
fn worker(pool: &Pool, lane: &StuckLane, now: Timestamp) -> Option<InboxItem> {
    let Standstill { since, reason, .. } = &lane.standstill;
    let waits = matches!(reason, StuckReason::NoWorker | StuckReason::NoClaim);
    let items = SessionItems { pool, session: pool.session(lane.session).filter(|_| waits)?, now };
    let text = lane.describe(pool.age(now, *since).as_secs() / 60);
    Some(items.item("worker", *since, (text, reason.next_command(lane.name.as_str(), &lane.kind))))
}

/// The items of one session.
struct SessionItems<'a> {
    pool: &'a Pool,
    session: &'a Session,
    now: Timestamp,
}

impl SessionItems<'_> {
    fn item(&self, kind: &str, since: Timestamp, (text, next): (String, String)) -> InboxItem {
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        // Redacted before it is cut: a part of a key is not recognised.
        let text = protocol::bounds::cut(&protocol::redact::text(&line), TEXT_MAX).to_owned();
        let (session, name) = (self.session.id, self.session.name.clone());
        InboxItem { session, name, kind: kind.to_owned(), since, text, next }
    }

    fn attach(&self) -> String {
        format!("poolctl attach {}", self.session.name)
    }

    /// The agent asks: for a permission, an answer, at a dialog, by the bell.
    fn asks(&self, agents: &Agents) -> Option<InboxItem> {
        let name = &self.session.name;
        let shown = current_activity(self.pool, self.session);
        if agents.is_dismissed(self.session.id, &shown) {
            return None;
        }
        let ask = shown.ask.filter(|_| shown.state == ActivityState::Attention)?;
        let id = ask.id;
        let next = match ask.kind {
            // A message in doubt is an item of its own, whether the session runs or not.
            AskKind::Message => return None,
            AskKind::Question if ask.answerable => format!("poolctl approve {name} --ask {id} --answer TEXT"),
            _ if ask.answerable => format!("poolctl approve {name} --ask {id}"),
            AskKind::Dialog if !agents::screen::choices(&ask.text).is_empty() => {
                format!("poolctl approve {name} --ask {id} --answer N")
            }
            _ => self.attach(),
        };
        Some(self.item(ask.kind.as_str(), shown.since, (ask.text, next)))
    }

    /// The agent's user is logged out.
    fn login(&self) -> Option<InboxItem> {
        let shown = current_activity(self.pool, self.session);
        let detail = shown.detail.filter(|_| shown.state == ActivityState::Error)?;
        let wanted = agents::payload::wants_login(&detail);
        wanted.then(|| self.item("login", shown.since, (detail, self.attach())))
    }

    /// A prompt was typed and nothing confirmed it, or it is in doubt.
    fn unconfirmed(&self) -> Option<InboxItem> {
        let open = held_prompt(self.pool, self.session.id)?;
        let (id, next) = (open.id, admin::resolve_command(self.session.name.as_str(), open.id));
        let (kind, text) = match open.state {
            MessageState::InDoubt if doubt::waits_for_person(&open) => {
                ("message", "may not have arrived as it was sent")
            }
            MessageState::Typed if self.pool.age(self.now, open.since) >= SOON => {
                ("unconfirmed", "was typed, and nothing confirms that its agent has it")
            }
            _ => return None,
        };
        Some(self.item(kind, open.since, (format!("message {id} {text}"), next)))
    }

    /// The next prompt waits for something that only a person at the terminal can do.
    fn blocked_prompt(&self, why: Option<&Blocked>) -> Option<InboxItem> {
        let why = why.filter(|why| why.needs_person())?;
        let oldest = self.pool.prompts(self.session.id).oldest?;
        let late = self.pool.age(self.now, oldest) >= SOON;
        late.then(|| self.item("held_back", oldest, (why.reason().to_owned(), self.attach())))
    }

    /// A kind of messages failed several times in a row.
    fn failing(&self) -> Option<InboxItem> {
        let (kind, breaker) =
            self.pool.breakers_of(self.session.id).find(|(_, breaker)| breaker.is_open())?;
        let what = if kind == PROMPT { "prompts are" } else { "messages are" };
        let text =
            format!("its {what} held back after {} failures of kind {kind} in a row", breaker.failures);
        let next = format!("poolctl queue dead {}", self.session.name);
        let since = breaker.opened_at.unwrap_or(self.session.changed_at);
        Some(self.item("failing", since, (text, next)))
    }

    /// The agent's service is out; the agent is told to continue by itself.
    fn suspended(&self) -> Option<InboxItem> {
        let open = waiting_prompt(self.pool, self.session.id).filter(|open| open.is_suspended)?;
        let (id, name, tries) = (open.id, &self.session.name, open.attempts);
        let text = format!(
            "the turn of message {id} failed {tries} times by an outage of its service, and is continued automatically"
        );
        Some(self.item("outage", open.since, (text, format!("poolctl queue retry {name} {id}"))))
    }

    /// The session was started by itself too often.
    fn exhausted(&self) -> Option<InboxItem> {
        let name = &self.session.name;
        let text = "it ended too often and is no longer started automatically".to_owned();
        let next = match &self.session.worker {
            Some(worker) => format!("poolctl worker start {}", worker.name),
            None => format!("poolctl restart {name}"),
        };
        let held = self.session.budget.exhausted;
        held.then(|| self.item("exhausted", self.session.changed_at, (text, next)))
    }

    /// The session is over, with prompts that wait.
    fn over(&self) -> Option<InboxItem> {
        let session = self.session;
        let waiting = self.pool.prompts(session.id).waiting;
        let over = matches!(session.lifecycle, Lifecycle::Stopped | Lifecycle::Lost | Lifecycle::Failed);
        let stays = session.budget.due_at.is_none() && !session.budget.exhausted && !is_restarting(session);
        let (word, verb) = match session.lifecycle {
            Lifecycle::Lost => ("lost", "restore"),
            Lifecycle::Failed => ("failed", "restart"),
            _ => ("stopped", "restart"),
        };
        let prompts = if waiting == 1 { "prompt blocked" } else { "prompts wait" };
        let text = format!("it is {word}, and {waiting} {prompts} for it");
        let next = format!("poolctl {verb} {}", session.name);
        (over && stays && waiting > 0).then(|| self.item("over", session.changed_at, (text, next)))
    }
}
