//! The inbox: everything that waits for a person, each item with the command to run next.

use std::time::Duration;

use protocol::bounds::cut_with_mark;
use protocol::policy::RestartPolicy;
use protocol::reply::InboxItem;
use protocol::{
    ActivityState, AskKind, Lifecycle, MessageState, PROMPT, Reason, Session, Standstill, StuckLane,
    StuckReason, Timestamp, counted,
};

use crate::agent::activity::current_activity;
use crate::agent::state::Agents;
use crate::pool::Pool;
use crate::prompt::blocked::Blocked;
use crate::queue::prompts::{held_prompt, waiting_prompt};
use crate::queue::{admin, doubt, health};
use crate::session::lifecycle::is_restarting;
use crate::session::restart_budget::{fails_each_time, is_held_as_copy};
use crate::session::restore::was_kept_from_start;
use crate::settings::QueueRules;
use crate::slots::wanting::wanting_since;
use crate::volatile::Volatile;

/// Time for which a prompt may wait or stay unconfirmed before the inbox lists it.
const SOON: Duration = Duration::from_secs(30);

/// Maximum length of an item's text, in bytes.
const TEXT_MAX: usize = 300;

/// Maximum number of lost sessions that are named.
const NAMED_MAX: usize = 5;

/// The kind of the item of all lost sessions.
pub const LOST: &str = "lost";

/// The kind of items of sessions that failed to start, and are to run or have prompts that wait.
pub const FAILED: &str = "failed";

/// All items, the longest waiting first.
pub fn items(pool: &Pool, volatile: &Volatile, rules: &QueueRules, now: Timestamp) -> Vec<InboxItem> {
    let of = |session: &Session| {
        let why = volatile.prompts.blocked().get(&session.id);
        let items = SessionItems { pool, session, now };
        let found =
            [items.asks(&volatile.agents), items.login(), items.unconfirmed(), items.blocked_prompt(why)];
        let held = [items.suspended(), items.exhausted(), items.over(), items.failed_to_start()];
        let found = found.into_iter().chain(held).chain([items.waits_for_slot(rules)]);
        found.flatten().chain(items.failing()).collect::<Vec<_>>()
    };
    let mut items: Vec<InboxItem> = pool.sessions().flat_map(of).collect();
    let lanes = health::stuck(pool, volatile, rules, now);
    items.extend(lanes.iter().filter_map(|lane| worker(pool, lane, now)));
    items.extend(lost(pool, now));
    items.sort_by_key(|item| (item.since, item.session));
    items
}

/// Returns one item for all sessions that were lost with their tmux server or the machine and are not started
/// automatically. It is an item of the session that was lost last.
fn lost(pool: &Pool, now: Timestamp) -> Option<InboxItem> {
    let lost: Vec<&Session> = pool.user_sessions().filter(|s| stays_lost(s)).collect();
    let last = lost.iter().max_by_key(|s| s.changed_at)?;
    let items = SessionItems { pool, session: last, now };
    let waiting: u64 = lost.iter().map(|s| pool.prompts(s.id).waiting).sum();
    let prompts = match waiting {
        0 => String::new(),
        1 => ", and 1 prompt waits".to_owned(),
        n => format!(", and {n} prompts wait"),
    };
    let names: Vec<&str> = lost.iter().map(|s| s.name.as_str()).take(NAMED_MAX).collect();
    let (names, more) = (names.join(", "), if lost.len() > NAMED_MAX { ", …" } else { "" });
    let (were, next) = match lost.as_slice() {
        [one] => ("session was", format!("poolctl restore {}", one.name)),
        _ => ("sessions were", "poolctl restore --all".to_owned()),
    };
    let count = lost.len();
    let how = if lost.iter().all(|s| s.reason == Some(Reason::DatabaseReplaced)) {
        "lost from sight as the database was replaced, and may still run in tmux"
    } else {
        "lost with the tmux server or the machine"
    };
    let text = format!("{count} {were} {how}{prompts}: {names}{more}");
    Some(items.item(LOST, last.changed_at, (text, next)))
}

/// True for a user's session that is lost and will not be started automatically. A session that was started too often
/// is left out, as it has an item of its own.
fn stays_lost(session: &Session) -> bool {
    let starts = session.budget.due_at.is_some() || session.policy.restart == RestartPolicy::Always;
    let waits = if session.budget.exhausted { is_held_as_copy(session) } else { !starts };
    session.worker.is_none() && session.lifecycle == Lifecycle::Lost && waits
}

/// The item of a lane that waits for a worker. All other standstills have items of their own, or end by themselves.
fn worker(pool: &Pool, lane: &StuckLane, now: Timestamp) -> Option<InboxItem> {
    let Standstill { since, reason, .. } = &lane.standstill;
    let waits = matches!(reason, StuckReason::NoWorker | StuckReason::NoClaim | StuckReason::WorkerOff(_));
    let items = SessionItems { pool, session: pool.session(lane.session).filter(|_| waits)?, now };
    let text = lane.describe(pool.age(now, *since));
    Some(items.item("worker", *since, (text, reason.next_command(&lane.name.for_people(), &lane.kind))))
}

struct SessionItems<'a> {
    pool: &'a Pool,
    session: &'a Session,
    now: Timestamp,
}

impl SessionItems<'_> {
    fn item(&self, kind: &str, since: Timestamp, (text, next): (String, String)) -> InboxItem {
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        // Redacted before it is cut: a part of a key is not recognised.
        let text = cut_with_mark(&protocol::redact::text(&line), TEXT_MAX, "");
        let (session, name) = (self.session.id, self.session.name.clone());
        InboxItem { session, name, kind: kind.to_owned(), since, text, next }
    }

    /// Returns the item of a question. Its text keeps what would be allowed: secrets, blanks and line ends.
    fn question(&self, kind: AskKind, since: Timestamp, (text, next): (&str, String)) -> InboxItem {
        let place = format!(" in `poolctl show {}`", self.session.name);
        let (text, kind) = (cut_with_mark(text, TEXT_MAX, &place), kind.as_str().to_owned());
        let (session, name) = (self.session.id, self.session.name.clone());
        InboxItem { session, name, kind, since, text, next }
    }

    /// Returns an item if a session that is to start automatically has waited for a slot for `[queue] stuck_after`,
    /// because no running session gives up its own.
    fn waits_for_slot(&self, rules: &QueueRules) -> Option<InboxItem> {
        let since = wanting_since(self.pool, self.session, self.now)?;
        let is_long = rules.stuck_after.is_some_and(|after| self.pool.age(self.now, since) >= after);
        let text = "it waits for a slot, and each session that runs keeps its own: end or park one, or raise \
                    [pool] max_sessions";
        let is_its_users = self.session.worker.is_none();
        (is_long && is_its_users)
            .then(|| self.item("slot", since, (text.to_owned(), "poolctl park NAME".to_owned())))
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
        let text = match &ask.tool {
            Some(tool) if ask.kind == AskKind::Permission => format!("{tool}: {}", ask.text),
            _ => ask.text,
        };
        Some(self.question(ask.kind, shown.since, (text.as_str(), next)))
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
        let (id, next) = (open.id, admin::resolve_command(&self.session.name.for_people(), open.id));
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

    /// The next prompt waits for something that only a person can do.
    fn blocked_prompt(&self, why: Option<&Blocked>) -> Option<InboxItem> {
        let why = why.filter(|why| why.needs_person())?;
        let oldest = self.pool.prompts(self.session.id).oldest?;
        let late = self.pool.age(self.now, oldest) >= SOON;
        let next = match why.prompt() {
            // The prompt that the reason names may have been cancelled a moment ago.
            Some(prompt) if waiting_prompt(self.pool, self.session.id)?.id != prompt => return None,
            Some(prompt) => format!("poolctl queue cancel {} {prompt}", self.session.name.for_people()),
            None => self.attach(),
        };
        late.then(|| self.item("held_back", oldest, (why.reason().to_owned(), next)))
    }

    /// The kinds of messages that failed several times in a row.
    fn failing(&self) -> impl Iterator<Item = InboxItem> {
        self.pool.held_back_of(self.session.id).map(|(kind, breaker)| {
            let (name, what) =
                (self.session.name.for_people(), if kind == PROMPT { "prompts" } else { "messages" });
            let failures = counted(breaker.failures.into(), "failure");
            let text = format!(
                "its {what} are held back after {failures} of kind {kind} in a row; `poolctl queue ls {name} \
                 --kind {kind}` shows them"
            );
            let dead = if self.pool.has_pending(self.session.id, kind) { "" } else { " --dead" };
            let next = format!("poolctl queue retry {name} --kind {kind}{dead}");
            let since = breaker.opened_at.unwrap_or(self.session.changed_at);
            self.item("failing", since, (text, next))
        })
    }

    /// The agent's service is out; the agent is told to continue by itself.
    fn suspended(&self) -> Option<InboxItem> {
        let open = waiting_prompt(self.pool, self.session.id).filter(|open| open.is_suspended)?;
        let (id, name, tries) =
            (open.id, self.session.name.for_people(), counted(open.attempts.into(), "time"));
        let text = format!(
            "the turn of message {id} failed {tries} by an outage of its service, and is continued automatically"
        );
        Some(self.item("outage", open.since, (text, format!("poolctl queue retry {name} {id}"))))
    }

    /// The session was started by itself too often.
    fn exhausted(&self) -> Option<InboxItem> {
        let why = self.session.detail.as_ref().filter(|_| self.session.lifecycle == Lifecycle::Failed);
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        let is_copy = is_held_as_copy(self.session);
        let text = if is_copy {
            "it is not started automatically, as this pool is a copy or was restored".to_owned()
        } else {
            format!("it ended too often and is no longer started automatically{why}")
        };
        let held = self.session.budget.exhausted && !stays_lost(self.session);
        held.then(|| self.item("exhausted", self.session.changed_at, (text, self.restart())))
    }

    /// The session is stopped, with prompts that wait.
    fn over(&self) -> Option<InboxItem> {
        let session = self.session;
        let waiting = self.pool.prompts(session.id).waiting;
        let stays = session.budget.due_at.is_none() && !session.budget.exhausted && !is_restarting(session);
        let is_over = session.lifecycle == Lifecycle::Stopped && stays && waiting > 0;
        let text = format!("it is stopped, and {}", prompts_wait(waiting));
        is_over.then(|| self.item("over", session.changed_at, (text, self.restart())))
    }

    /// Returns an item for a failed start in three cases: prompts wait for the session; it ran before and was kept from
    /// its next start; or it fails each time. The pool may try again, but a person has to
    /// remove the cause.
    fn failed_to_start(&self) -> Option<InboxItem> {
        let session = self.session;
        let waiting = self.pool.prompts(session.id).waiting;
        let fails = session.worker.is_none() && fails_each_time(self.pool, session, self.now);
        let matters = waiting > 0 || was_kept_from_start(session) || fails;
        let has_failed = session.lifecycle == Lifecycle::Failed && !session.budget.exhausted && matters;
        let why = session.detail.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        let prompts = if waiting > 0 { format!(", and {}", prompts_wait(waiting)) } else { String::new() };
        let text = format!("it failed to start{prompts}{why}");
        has_failed.then(|| self.item(FAILED, session.changed_at, (text, self.restart())))
    }

    /// Returns the command that starts the session again: under another name, if tmux has a session of its name.
    fn restart(&self) -> String {
        let name = &self.session.name;
        match (self.session.lifecycle, self.session.reason) {
            (Lifecycle::Failed, Some(Reason::NameTaken)) if self.session.worker.is_none() => {
                format!("poolctl rename {name} NAME && poolctl restart NAME")
            }
            _ => self.session.start_command(),
        }
    }
}

/// Returns that so many prompts wait for a session.
fn prompts_wait(waiting: u64) -> String {
    if waiting == 1 { "1 prompt waits for it".to_owned() } else { format!("{waiting} prompts wait for it") }
}
