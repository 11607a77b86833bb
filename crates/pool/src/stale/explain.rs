//! What each rule says of a session, for people.

use std::time::Duration;

use protocol::Session;
use protocol::reap::Rule;
use protocol::reply::Explained;

use super::rules::{self, Signs, Verdict};
use super::{Facts, is_zombie, strays};
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
    let named = super::named(pool, settings, facts);
    let of_it = |rule| named.iter().find(|found| found.session == session.id && found.rule == Some(rule));
    let about = Rule::ALL.into_iter().filter(|rule| *rule != Rule::StaleClient);
    about
        .map(|rule| {
            let verdict = match (rule, of_it(rule)) {
                (_, Some(found)) => Verdict::yes(found.evidence.as_str()),
                (Rule::ZombiePane, None) => Verdict::no(no_zombie_pane(session, facts)),
                (Rule::StaleWorker, None) => no_stale_worker(pool, settings, session, facts),
                (Rule::Leftovers, None) => {
                    Verdict::no("nothing is left of it; what it leaves is looked for at its end")
                }
                (Rule::Orphans, None) => Verdict::no(no_orphans(pool, session, facts)),
                _ => rules::verdict(pool, settings, session, rule, signs),
            };
            let (action, by) = rules::action(settings, Some(session), rule);
            let Verdict { applies, why, at } = verdict;
            Explained { rule, action, by: by.to_owned(), applies, why, at }
        })
        .collect()
}

fn no_zombie_pane(session: &Session, facts: &Facts<'_>) -> &'static str {
    let run = session.incarnation.as_ref().filter(|_| session.lifecycle.holds_slot());
    match run {
        None => "it has no pane",
        Some(run) if is_zombie(run, facts) => "its program is over, and it is about to end",
        Some(_) => "its program runs",
    }
}

/// The worker of it that was silent for longest: none was for too long.
fn no_stale_worker(pool: &Pool, settings: &Settings, session: &Session, facts: &Facts<'_>) -> Verdict {
    let workers = facts.strays.workers.iter().filter(|worker| worker.session == session.id);
    let Some(worker) = workers.min_by_key(|worker| worker.heard_at) else {
        return Verdict::no("no worker of it is silent");
    };
    let silent = pool.age(facts.now, worker.heard_at).as_secs();
    let limit = settings.reap.stale_worker;
    let why = format!("worker {} was silent for {silent} s (limit {} s)", worker.id.0, limit.as_secs());
    // It has to be silent for longer than that.
    let at = pool.time_after(facts.now, worker.heard_at, limit.saturating_add(Duration::from_millis(1)));
    Verdict { applies: false, why, at: Some(at) }
}

fn no_orphans(pool: &Pool, session: &Session, facts: &Facts<'_>) -> String {
    let its = facts.strays.marked.iter().filter(|(tag, _)| strays::over(pool, **tag) == Some(session.id));
    let serve = |stray: &strays::Stray| {
        let serves = stray.serves.as_ref()?;
        Some(format!("process {} ({}) {serves}", stray.process.pid, stray.command))
    };
    let all: Vec<String> = its.flat_map(|(_, found)| found).filter_map(serve).collect();
    match all.as_slice() {
        [] => "no process has the mark of an incarnation of it that is over".to_owned(),
        all => format!("{}, and is left", all.join(", ")),
    }
}
