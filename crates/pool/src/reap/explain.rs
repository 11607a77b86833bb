//! The verdict of each rule on a session, for people.

use std::time::Duration;

use protocol::Session;
use protocol::reap::Rule;
use protocol::reply::Explained;

use crate::pool::Pool;
use crate::reap::candidates::is_zombie;
use crate::reap::inputs::ReapInputs;
use crate::reap::machine_rules::machine_verdict;
use crate::reap::orphans::{OrphanProcess, ended_owner};
use crate::reap::rules::{RuleInputs, RuleVerdict};
use crate::reap::{candidates, rules};
use crate::settings::Settings;

/// The verdicts of all rules about sessions on this session.
pub fn explain(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    inputs: &ReapInputs<'_>,
    rule_inputs: &RuleInputs<'_>,
) -> Vec<Explained> {
    let named = candidates::find_candidates(pool, settings, inputs);
    let of_it = |rule| named.iter().find(|found| found.session == session.id && found.rule == Some(rule));
    let about = Rule::ALL.into_iter().filter(|rule| *rule != Rule::StaleClient);
    about
        .map(|rule| {
            let verdict = match (rule, of_it(rule)) {
                (_, Some(found)) => RuleVerdict::yes(found.evidence.as_str()),
                (Rule::ZombiePane, None) => RuleVerdict::no(no_zombie_pane(session, inputs)),
                (Rule::StaleWorker, None) => no_stale_worker(pool, settings, session, inputs),
                (Rule::Leftovers, None) => {
                    RuleVerdict::no("nothing is left of it; leftovers are searched for at its end")
                }
                (Rule::Orphans, None) => RuleVerdict::no(no_orphans(pool, session, inputs)),
                (Rule::HostMemory | Rule::HostDisk, None) => {
                    machine_verdict(pool, settings, session, rule, rule_inputs)
                }
                _ => rules::rule_verdict(pool, settings, session, rule, rule_inputs),
            };
            let (action, by) = rules::rule_action(settings, Some(session), rule);
            let RuleVerdict { applies, why, at } = verdict;
            Explained { rule, action, by: by.to_owned(), applies, why, at }
        })
        .collect()
}

fn no_zombie_pane(session: &Session, inputs: &ReapInputs<'_>) -> &'static str {
    let run = session.running();
    match run {
        None => "it has no pane",
        Some(run) if is_zombie(run, inputs) => "its program has ended, and the session is about to end",
        Some(_) => "its program runs",
    }
}

/// The verdict on the session's worker that has been silent for longest, which is not too long.
fn no_stale_worker(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    inputs: &ReapInputs<'_>,
) -> RuleVerdict {
    let workers = inputs.orphans.workers.iter().filter(|worker| worker.session == session.id);
    let Some(worker) = workers.max_by_key(|worker| pool.age(inputs.now, worker.last_seen_at)) else {
        return RuleVerdict::no("none of its workers is silent");
    };
    let silent = pool.age(inputs.now, worker.last_seen_at).as_secs();
    let limit = settings.reap.stale_worker;
    let why = format!("{} (limit {} s)", worker.silence(silent), limit.as_secs());
    // The limit has to be exceeded, not only reached.
    let at = pool.time_after(inputs.now, worker.last_seen_at, limit.saturating_add(Duration::from_millis(1)));
    RuleVerdict { applies: false, why, at: Some(at) }
}

fn no_orphans(pool: &Pool, session: &Session, inputs: &ReapInputs<'_>) -> String {
    let its = inputs.orphans.marked.iter().filter(|(tag, _)| ended_owner(pool, **tag) == Some(session.id));
    let serve = |orphan: &OrphanProcess| {
        let serves = orphan.serves.as_ref()?;
        Some(format!("process {} ({}) {serves}", orphan.process.pid, orphan.command))
    };
    let all: Vec<String> = its.flat_map(|(_, found)| found).filter_map(serve).collect();
    match all.as_slice() {
        [] => "no process has the marker of one of its ended incarnations".to_owned(),
        all => format!("{}, and is left", all.join(", ")),
    }
}
