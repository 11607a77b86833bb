//! What each rule says of a session, for people.

use protocol::reap::Rule;
use protocol::reply::Explained;
use protocol::{MessageState, Session};

use super::rules::{self, OF_SESSIONS, Signs, Verdict};
use super::{Facts, is_left_over, is_zombie, strays};
use crate::pool::Pool;
use crate::settings::Settings;

/// What each rule that is about sessions says of this one.
#[must_use]
pub fn explain(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    facts: &Facts<'_>,
    signs: &Signs<'_>,
) -> Vec<Explained> {
    let about = Rule::ALL.into_iter().filter(|rule| *rule != Rule::StaleClient);
    about
        .map(|rule| {
            let Verdict { applies, why, at } = match rule {
                rule if OF_SESSIONS.contains(&rule) => rules::verdict(pool, settings, session, rule, signs),
                Rule::ZombiePane => zombie_pane(session, facts),
                Rule::StaleWorker => stale_worker(pool, settings, session, facts),
                Rule::Leftovers => leftovers(session, facts),
                _ => orphans(pool, session, facts),
            };
            let (action, by) = rules::action(settings, Some(session), rule);
            Explained { rule, action, by: by.to_owned(), applies, why, at }
        })
        .collect()
}

fn zombie_pane(session: &Session, facts: &Facts<'_>) -> Verdict {
    let run = session.incarnation.as_ref().filter(|_| session.lifecycle.holds_slot());
    match run {
        None => Verdict::no("it has no pane"),
        Some(run) if is_zombie(run, facts) => Verdict::yes("its program ended and its pane is left"),
        Some(_) => Verdict::no("its program runs"),
    }
}

fn leftovers(session: &Session, facts: &Facts<'_>) -> Verdict {
    let run = session.incarnation.as_ref().filter(|_| session.lifecycle.holds_slot());
    match run.zip(session.reason) {
        Some((run, reason)) if is_left_over(reason, run, facts) => {
            Verdict::yes("its pane is gone and its processes are left")
        }
        _ => Verdict::no("nothing is left of it; what it leaves is looked for at its end"),
    }
}

fn stale_worker(pool: &Pool, settings: &Settings, session: &Session, facts: &Facts<'_>) -> Verdict {
    let mut revoked = pool.held_messages().filter(|open| open.session == session.id);
    if let Some(open) = revoked.find(|open| open.state == MessageState::Revoking) {
        return Verdict::yes(format!("silent about message {} for longer than its lease", open.id.0));
    }
    let mut workers = facts.strays.workers.iter().filter(|worker| worker.session == session.id);
    let Some(worker) = workers.clone().find(|w| strays::is_silent(settings, w, facts.now)).or_else(|| workers.next())
    else {
        return Verdict::no("no worker of it is silent");
    };
    let silent = facts.now.since(worker.heard_at).as_secs();
    let limit = settings.reap.stale_worker;
    Verdict {
        applies: strays::is_silent(settings, worker, facts.now),
        why: format!("worker {} was silent for {silent} s (limit {} s)", worker.id.0, limit.as_secs()),
        at: Some(worker.heard_at.after(limit)).filter(|at| *at > facts.now),
    }
}

fn orphans(pool: &Pool, session: &Session, facts: &Facts<'_>) -> Verdict {
    let its = facts.strays.marked.iter().filter(|(tag, _)| strays::over(pool, **tag) == Some(session.id));
    let found: Vec<&strays::Stray> = its.flat_map(|(_, found)| found).collect();
    let name = |stray: &&strays::Stray| format!("{} ({})", stray.process.pid, stray.command);
    if found.is_empty() {
        return Verdict::no("no process has the mark of an incarnation of it that is over");
    }
    let all: Vec<String> = found.iter().map(name).collect();
    match found.iter().find_map(|stray| stray.serves.as_ref()) {
        Some(served) if found.iter().all(|stray| stray.serves.is_some()) => {
            Verdict::no(format!("process {} {served}, and is left", all.join(", ")))
        }
        _ => Verdict::yes(format!("its mark is on process {}", all.join(", "))),
    }
}
