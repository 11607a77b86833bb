//! All that waits for a person, each with the command that goes on from there.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::activity::AskKind;
use protocol::message::PROMPT;
use protocol::reply::InboxItem;
use protocol::{ActivityState, Lifecycle, MessageState, Session, SessionId, Timestamp};

use crate::activity;
use crate::delivery;
use crate::is_between;
use crate::pool::Pool;
use crate::queue;

/// What goes on by itself within this time is nobody's.
const SOON: Duration = Duration::from_secs(30);
/// The longest text of an item, in bytes.
const TEXT_MAX: usize = 300;

/// Everything, the longest waiting first. `waits`: why the next prompts of sessions are not typed yet; `is_worked`: whether
/// a session's kind of messages has a worker.
#[must_use]
pub fn items(
    pool: &Pool,
    waits: &BTreeMap<SessionId, String>,
    is_worked: impl Fn(SessionId, &str) -> bool,
    now: Timestamp,
) -> Vec<InboxItem> {
    let of = |session: &Session| {
        let why = waits.get(&session.id).map(String::as_str);
        let look = Look { pool, session, now };
        let found = [look.asks(), look.login(), look.unconfirmed(), look.kept_waiting(why)];
        let held = [look.failing(), look.suspended(), look.exhausted(), look.over()];
        found.into_iter().chain(held).flatten().collect::<Vec<_>>()
    };
    let mut items: Vec<InboxItem> = pool.sessions().flat_map(of).collect();
    items.extend(queue::unclaimed(pool, is_worked, now).map(|found| {
        let look = Look { pool, session: found.session, now };
        look.item("worker", found.oldest, found.told(pool.age(now, found.oldest)))
    }));
    items.sort_by_key(|item| (item.since, item.session));
    items
}

/// One look at a session.
struct Look<'a> {
    pool: &'a Pool,
    session: &'a Session,
    now: Timestamp,
}

impl Look<'_> {
    fn item(&self, kind: &str, since: Timestamp, (text, next): (String, String)) -> InboxItem {
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        // Redacted before it is cut: a half of a key is not told from a word.
        let text = protocol::bounds::cut(&protocol::redact::text(&line), TEXT_MAX).to_owned();
        let (session, name) = (self.session.id, self.session.name.clone());
        InboxItem { session, name, kind: kind.to_owned(), since, text, next }
    }

    fn attach(&self) -> String {
        format!("poolctl attach {}", self.session.name)
    }

    /// Its agent asks: for a permission, an answer, at a dialog, by the bell.
    fn asks(&self) -> Option<InboxItem> {
        let name = &self.session.name;
        let shown = activity::shown(self.pool, self.session);
        let ask = shown.ask.filter(|_| shown.state == ActivityState::Attention)?;
        let id = ask.id;
        let next = match ask.kind {
            // In doubt, whether its session runs or not.
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

    /// Its agent's user is not logged in any more.
    fn login(&self) -> Option<InboxItem> {
        let shown = activity::shown(self.pool, self.session);
        let detail = shown.detail.filter(|_| shown.state == ActivityState::Error)?;
        let wanted = agents::payload::wants_login(&detail);
        wanted.then(|| self.item("login", shown.since, (detail, self.attach())))
    }

    /// A prompt was typed, and nothing confirms that its agent has it; or it is in doubt whether it has.
    fn unconfirmed(&self) -> Option<InboxItem> {
        let open = queue::held_prompt(self.pool, self.session.id)?;
        let (id, next) = (open.id, queue::resolve_command(self.session.name.as_str(), open.id));
        let (kind, text) = match open.state {
            MessageState::InDoubt => ("message", "may not have arrived as it was sent"),
            MessageState::Typed if self.pool.age(self.now, open.since) >= SOON => {
                ("unconfirmed", "was typed, and nothing confirms that its agent has it")
            }
            _ => return None,
        };
        Some(self.item(kind, open.since, (format!("message {id} {text}"), next)))
    }

    /// Its next prompt waits for what only somebody at its terminal ends.
    fn kept_waiting(&self, why: Option<&str>) -> Option<InboxItem> {
        let why = why.filter(|why| delivery::needs_somebody(why))?;
        let oldest = self.pool.prompts(self.session.id).oldest?;
        let late = self.pool.age(self.now, oldest) >= SOON;
        late.then(|| self.item("held_back", oldest, (why.to_owned(), self.attach())))
    }

    /// A kind of its messages failed several times in a row.
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

    /// The service of its agent is out, which is told to go on by itself.
    fn suspended(&self) -> Option<InboxItem> {
        let open = queue::waiting_prompt(self.pool, self.session.id).filter(|open| open.is_suspended)?;
        let (id, name, tries) = (open.id, &self.session.name, open.attempts);
        let text = format!(
            "the turn of message {id} failed {tries} times by an outage of its service, and is gone on with"
        );
        Some(self.item("outage", open.since, (text, format!("poolctl queue retry {name} {id}"))))
    }

    /// It was started by itself too often.
    fn exhausted(&self) -> Option<InboxItem> {
        let name = &self.session.name;
        let text = "it ended too often, and is not started by itself any more".to_owned();
        let next = format!("poolctl restart {name}");
        let held = self.session.budget.exhausted;
        held.then(|| self.item("exhausted", self.session.changed_at, (text, next)))
    }

    /// It is over, with prompts that wait.
    fn over(&self) -> Option<InboxItem> {
        let session = self.session;
        let waiting = self.pool.prompts(session.id).waiting;
        let over = matches!(session.lifecycle, Lifecycle::Stopped | Lifecycle::Lost | Lifecycle::Failed);
        let stays = session.budget.due_at.is_none() && !session.budget.exhausted && !is_between(session);
        let (word, verb) = match session.lifecycle {
            Lifecycle::Lost => ("lost", "restore"),
            Lifecycle::Failed => ("failed", "restart"),
            _ => ("stopped", "restart"),
        };
        let prompts = if waiting == 1 { "prompt waits" } else { "prompts wait" };
        let text = format!("it is {word}, and {waiting} {prompts} for it");
        let next = format!("poolctl {verb} {}", session.name);
        (over && stays && waiting > 0).then(|| self.item("over", session.changed_at, (text, next)))
    }
}
