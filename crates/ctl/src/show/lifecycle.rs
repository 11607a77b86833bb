//! The lifecycle of a session as text: the reasons for its state, its automatic starts and its policy.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::policy::{Budget, Policy, RestartPolicy};
use protocol::reap::{Action, Rule};
use protocol::reply::PaneObservation;
use protocol::{Incarnation, Lifecycle, Limits, Reason, Session, SessionView, Timestamp};

use crate::show::json::json_name;
use crate::show::out::Style;
use crate::show::{hint, time};

/// Returns a reason in one word, as in the brackets behind a state.
pub(crate) fn short_reason(reason: Reason) -> String {
    match reason {
        Reason::Parked => "user".to_owned(),
        other => json_name(&other),
    }
}

/// Returns a reason as a sentence, if it says more than its name.
fn reason(reason: Reason) -> Option<&'static str> {
    Some(match reason {
        Reason::Exited | Reason::ApiDelete => return None,
        Reason::Killed => "a user ended it",
        Reason::Restarted => "it is being restarted",
        Reason::Evicted => "parked to free its slot for another session",
        Reason::Idle => "parked after its idle timeout",
        Reason::Parked => "a user parked it",
        Reason::Drained => "drained: its queue is empty",
        Reason::TmuxGone => "its pane vanished from tmux",
        Reason::ServerGone => "its tmux server went away",
        Reason::DatabaseReplaced => {
            "it ran when this database was copied; its program was not touched and may still run in tmux"
        }
        Reason::StartupMissingTmux => "it was no longer in tmux when poold started",
        Reason::ExecFailed => "its program could not be executed",
        Reason::TmuxFailed => "tmux refused or did not answer",
        Reason::Setup => "its directories or files could not be created",
        Reason::NameTaken => "tmux has a session of the same name that is not the pool's",
        Reason::MemoryLimit => "it exceeded its memory limit",
        Reason::DiskLimit => "it exceeded its disk limit",
        Reason::RunTime => "it reached its maximum run time",
        Reason::Ttl => "its time to live after its end expired",
        Reason::Ephemeral => "ephemeral: removed at its end",
        Reason::Hung => "hung: it had work, but wrote nothing and used no CPU",
        Reason::StaleAgent => "its agent held a message and showed no activity",
        Reason::TooIdle => "it had no work for longer than the rule idle_session allows",
        Reason::DrainDeadline => {
            "its drain was ended by its deadline, a limit or a rule before its program had come to rest"
        }
        Reason::Limited => "parked because its agent reached its usage limit",
        Reason::HostMemory => "parked because the machine was short of memory",
        Reason::HostDisk => "parked because the disk of the state directory was nearly full",
    })
}

/// Returns since when, and why, the session's pane has not been seen, if what is shown dates from before that.
pub(crate) fn unseen_since(view: &SessionView, style: Style, now: Timestamp) -> Option<String> {
    let health = &view.transport_health;
    let since = health.since.filter(|_| health.state == PaneObservation::Stale)?;
    // The last trouble on record may have ended long before.
    let is_since = health.last_error_at.is_some_and(|at| at >= since);
    let why = health.last_error.as_ref().filter(|_| is_since);
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    Some(format!("{}{why}", time::when(since, style, now)))
}

/// Returns why a session is in its state, if that says more than the name of its reason. `left` is the number of
/// its messages.
pub(crate) fn why(session: &Session, left: u64) -> Option<String> {
    match (session.reason?, session.lifecycle) {
        (Reason::Drained, Lifecycle::Draining) if left > 0 => {
            Some(format!("it takes no more messages, and ends once those that are left are worked: {left}"))
        }
        (Reason::Drained, Lifecycle::Draining) => Some(
            "it takes no more messages; its queue is empty, and it ends once it has nothing to finish"
                .to_owned(),
        ),
        (Reason::DrainDeadline, _) if left > 0 => Some(
            "its drain was ended by its deadline, a limit or a rule before it had finished its queue"
                .to_owned(),
        ),
        (Reason::Drained, _) if left > 0 => Some(format!("drained; messages came since: {left}")),
        (why, _) => reason(why).map(str::to_owned),
    }
}

/// Returns what ended a session whose program did not end by itself, with the limit that it exceeded.
pub(crate) fn ended_by(session: &Session) -> Option<String> {
    let Limits { memory, disk, .. } = session.spec.limits;
    let limit = |limits: Limits| Some(format!("it exceeded --limit {limits}"));
    let exceeded = match session.reason? {
        Reason::RunTime => session
            .policy
            .max_runtime_ms
            .map(|ms| format!("it ran longer than --max-runtime {}", time::exact(Duration::from_millis(ms)))),
        Reason::MemoryLimit if memory.is_some() => limit(Limits { memory, ..Limits::default() }),
        Reason::DiskLimit if disk.is_some() => limit(Limits { disk, ..Limits::default() }),
        _ => None,
    };
    exceeded.or_else(|| reason(session.reason?).map(str::to_owned))
}

/// Returns why the exit status of an ended session is unknown, if it is.
pub(crate) fn unknown_exit(session: &Session) -> Option<String> {
    let has_ended = matches!(session.lifecycle, Lifecycle::Stopped | Lifecycle::Parked | Lifecycle::Lost);
    if !has_ended || session.exit.is_some() {
        return None;
    }
    let why = match session.reason {
        _ if session.incarnation.as_ref().is_some_and(Incarnation::is_adopted) => {
            "it was adopted, so that no init of the pool waited for its program"
        }
        Some(Reason::ServerGone) => "its tmux server died, and its init left no exit record",
        Some(Reason::DatabaseReplaced) => {
            "a copy of the database does not tell what ran on after it was made"
        }
        Some(Reason::StartupMissingTmux) => {
            "it ended while poold was down (the machine went down, or its init was killed), \
             and left no exit record"
        }
        Some(Reason::TmuxGone) => "its pane vanished, and its init was killed before it left an exit record",
        _ => "its init was killed, or could not write, before it left an exit record",
    };
    Some(format!("not known: {why}"))
}

/// Returns how to start a session that does not run, if it can be.
pub(crate) fn how_to_start(session: &Session) -> Option<String> {
    let name = &session.name;
    match session.lifecycle {
        Lifecycle::Parked => {
            Some(hint::message(&format!("a prompt, `poolctl attach {name}` or `poolctl restore {name}`")))
        }
        Lifecycle::Lost => {
            Some(hint::message(&format!("`poolctl restore {name}`, or `poolctl restore --all`")))
        }
        _ => None,
    }
}

/// Returns the time of the next automatic start, if one is due: `in 12s, the 3rd in 8m`.
pub(crate) fn next_start(session: &Session, now: Timestamp) -> Option<String> {
    let Budget { starts, due_at, exhausted, .. } = &session.budget;
    if *exhausted {
        let how = format!("none: too many restarts; `{}` starts it", session.start_command());
        return Some(hint::message(&how));
    }
    let due = (*due_at)?;
    let nth = starts
        .first()
        .map(|first| format!(", the {} in {}", ordinal(starts.len() + 1), time::short(due.since(*first))));
    Some(time::until(due, now) + &nth.unwrap_or_default())
}

fn ordinal(n: usize) -> String {
    let ending = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

/// Formats a policy, without what is left to the configuration.
pub(crate) fn policy(policy: &Policy) -> String {
    let span = |what: &str, ms: Option<u64>| {
        ms.map(|ms| match ms {
            u64::MAX => format!("{what} never"),
            ms => format!("{what} {}", time::exact(Duration::from_millis(ms))),
        })
    };
    let most = policy.max_restarts.map(|most| format!(" (at most {most})"));
    let restart = match policy.restart {
        RestartPolicy::No => "no restart".to_owned(),
        other => format!("restart {}{}", other.as_str(), most.unwrap_or_default()),
    };
    let parts = [
        Some(restart),
        span("idle timeout", policy.idle_timeout_ms),
        span("ttl", policy.ttl_ms),
        span("run time", policy.max_runtime_ms),
        policy.ephemeral.then(|| "ephemeral".to_owned()),
        policy.pinned.then(|| "pinned".to_owned()),
        (!policy.reap.is_empty()).then(|| format!("reap {}", rules(&policy.reap))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Formats the actions of reap rules, as in flags.
fn rules(reap: &BTreeMap<Rule, Action>) -> String {
    let rules = reap.iter().map(|(rule, action)| format!("{}={}", rule.as_str(), action.as_str()));
    rules.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use protocol::ids::ProcId;
    use protocol::session::Exit;

    use super::*;
    use crate::testing;

    #[test]
    fn the_next_start_has_a_time_and_a_number() {
        let mut session = testing::session("web").session;
        let now = Timestamp(1_000_000);
        assert_eq!(next_start(&session, now), None);
        session.budget.due_at = Some(Timestamp(1_012_000));
        assert_eq!(next_start(&session, now).unwrap(), "in 12s");
        session.budget.starts = vec![Timestamp(412_000), Timestamp(900_000)];
        assert_eq!(next_start(&session, now).unwrap(), "in 12s, the 3rd in 10m");
        assert_eq!(next_start(&session, Timestamp(2_000_000)).unwrap(), "now, the 3rd in 10m");
        session.budget.exhausted = true;
        assert!(next_start(&session, now).unwrap().contains("poolctl restart web"));
        assert_eq!(
            [1, 2, 4, 11, 12, 21, 111].map(ordinal),
            ["1st", "2nd", "4th", "11th", "12th", "21st", "111th"]
        );
    }

    #[test]
    fn an_unknown_exit_has_a_reason() {
        let mut session = testing::session("web").session;
        assert_eq!(unknown_exit(&session), None);
        for (lifecycle, reason, says) in [
            (Lifecycle::Lost, Reason::ServerGone, "tmux server died"),
            (Lifecycle::Lost, Reason::StartupMissingTmux, "while poold was down"),
            (Lifecycle::Stopped, Reason::TmuxGone, "its pane vanished"),
            (Lifecycle::Parked, Reason::Evicted, "its init was killed"),
        ] {
            (session.lifecycle, session.reason) = (lifecycle, Some(reason));
            assert!(unknown_exit(&session).unwrap().contains(says), "{reason:?}");
        }
        let process = Some(ProcId { pid: 5, start: 6 });
        let incarnation = session.incarnation.as_mut().unwrap();
        (incarnation.init, incarnation.agent) = (process, process);
        assert!(unknown_exit(&session).unwrap().contains("adopted"));
        session.exit = Some(Exit { code: Some(0), signal: None, at: Timestamp(0) });
        assert_eq!(unknown_exit(&session), None);
    }

    #[test]
    fn a_drain_says_how_many_messages_are_left() {
        let mut session = testing::session("web").session;
        session.reason = Some(Reason::Drained);
        for (lifecycle, left, says) in [
            (Lifecycle::Draining, 2, "ends once those that are left are worked: 2"),
            (Lifecycle::Draining, 0, "its queue is empty"),
            (Lifecycle::Stopped, 0, "its queue is empty"),
            (Lifecycle::Stopped, 3, "messages came since: 3"),
        ] {
            session.lifecycle = lifecycle;
            let said = why(&session, left).unwrap();
            assert!(
                said.contains(says) && (left == 0 || !said.contains("empty")),
                "{lifecycle:?}, {left}: {said}"
            );
        }
        (session.lifecycle, session.reason) = (Lifecycle::Stopped, Some(Reason::DrainDeadline));
        assert!(why(&session, 1).unwrap().contains("a limit or a rule before it had finished its queue"));
        assert!(!why(&session, 0).unwrap().contains("queue"), "it was empty");
    }

    #[test]
    fn a_policy_says_what_was_set() {
        let mut chosen = Policy::default();
        assert_eq!(policy(&chosen), "no restart");
        (chosen.restart, chosen.max_restarts) = (RestartPolicy::OnFailure, Some(5));
        (chosen.idle_timeout_ms, chosen.ttl_ms, chosen.pinned) = (Some(u64::MAX), Some(90_000), true);
        assert_eq!(policy(&chosen), "restart on-failure (at most 5), idle timeout never, ttl 1m 30s, pinned");
        let reap = [(Rule::Hung, Action::Restart), (Rule::IdleSession, Action::Park)].into();
        let chosen = Policy { reap, ..Policy::default() };
        assert_eq!(policy(&chosen), "no restart, reap hung=restart idle_session=park");
    }
}
