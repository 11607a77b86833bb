//! What bounds a session, what becomes of it and why it ended, as people read it.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::limits::Limits;
use protocol::policy::{Budget, Policy, RestartPolicy};
use protocol::reap::{Action, Rule};
use protocol::session::Incarnation;
use protocol::usage::{Account, Usage};
use protocol::{Lifecycle, Reason, Session, Timestamp};

use crate::show::time;
use crate::show::{json, size};

/// A reason in one word, in brackets after a state.
#[must_use]
pub(crate) fn word(reason: Reason) -> String {
    match reason {
        Reason::Parked => "user".to_owned(),
        other => json::word(&other),
    }
}

/// A reason as more than its word, where there is more to say.
#[must_use]
pub(crate) fn why(reason: Reason) -> Option<&'static str> {
    Some(match reason {
        Reason::Exited | Reason::ApiDelete => return None,
        Reason::Killed => "a user ended it",
        Reason::Restarted => "it is started anew",
        Reason::Evicted => "parked to make room for another session",
        Reason::Idle => "parked after being idle for as long as it may",
        Reason::Parked => "a user parked it",
        Reason::Drained => "its queue was worked off",
        Reason::TmuxGone => "its pane vanished from tmux",
        Reason::ServerGone => "its tmux server went away",
        Reason::StartupMissingTmux => "it was not in tmux any more when poold started",
        Reason::ExecFailed => "its program could not be executed",
        Reason::TmuxFailed => "tmux refused or did not answer",
        Reason::Setup => "its directories or files could not be made",
        Reason::NameTaken => "tmux has a session of its name that is not the pool's",
        Reason::MemoryLimit => "it used more memory than it may",
        Reason::DiskLimit => "it used more of the disk than it may",
        Reason::RunTime => "it ran for as long as it may",
        Reason::Ttl => "it was kept for as long as it was to be",
        Reason::Ephemeral => "it was to be removed at its end",
        Reason::Hung => "it had something to do, and neither wrote anything nor used the processor",
        Reason::StaleAgent => "it held a message, and nothing was heard of it",
        Reason::TooIdle => "it had nothing to do for longer than it may",
        Reason::Limited => "parked because it has used up what it may for now",
    })
}

/// Why it is not known how the program of a session that is over ended, where it is not.
#[must_use]
pub(crate) fn unknown_end(session: &Session) -> Option<String> {
    let over = matches!(session.lifecycle, Lifecycle::Stopped | Lifecycle::Parked | Lifecycle::Lost);
    if !over || session.exit.is_some() {
        return None;
    }
    let why = match session.reason {
        _ if session.incarnation.as_ref().is_some_and(Incarnation::is_adopted) => {
            "it was adopted, and no init of the pool's waited for it"
        }
        Some(Reason::ServerGone) => "its tmux server died, and its init left no record of the end",
        Some(Reason::StartupMissingTmux) => {
            "it ended while poold was away (the machine went down, or its init was killed), and no record was left"
        }
        Some(Reason::TmuxGone) => "its pane vanished, and its init was killed before it left a record",
        _ => "its init was killed, or could not write, before it left a record",
    };
    Some(format!("not known: {why}"))
}

/// How to make it run again, where it can.
#[must_use]
pub(crate) fn again(session: &Session) -> Option<String> {
    let name = &session.name;
    match session.lifecycle {
        Lifecycle::Parked => Some(format!("a prompt, `poolctl attach {name}` or `poolctl restore {name}`")),
        Lifecycle::Lost => Some(format!("`poolctl restore {name}`, or `poolctl restore --all`")),
        _ => None,
    }
}

/// When it is started next by itself: `in 12s, the 3rd in 8m`.
#[must_use]
pub(crate) fn next_start(session: &Session, now: Timestamp) -> Option<String> {
    let Budget { starts, due_at, exhausted, .. } = &session.budget;
    if *exhausted {
        let name = &session.name;
        return Some(format!("none: there were too many; `poolctl restart {name}` starts it"));
    }
    let due = (*due_at)?;
    let nth = starts
        .first()
        .map(|first| format!(", the {} in {}", ordinal(starts.len() + 1), time::short(due.since(*first))));
    let when = if due > now { format!("in {}", time::short(due.since(now))) } else { "now".to_owned() };
    Some(when + &nth.unwrap_or_default())
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

/// What bounds it.
#[must_use]
pub(crate) fn limits(limits: &Limits) -> String {
    match (limits.is_empty(), limits.best_effort) {
        (true, _) => "none".to_owned(),
        (false, true) => format!("{limits} (as far as they can be held)"),
        (false, false) => limits.to_string(),
    }
}

/// What bounds it, with a `?` behind what does not hold, as these sentences say. One that names no limit is about
/// all that take a control group.
#[must_use]
pub(crate) fn marked(limits: &Limits, lacking: &[String]) -> String {
    let names = |sentence: &str, key: &str| {
        sentence.strip_prefix(key).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
    };
    let text = limits.to_string();
    // A list of processors has commas of its own.
    let starts_with_key = |word: &&str| word.contains('=');
    let keys: Vec<&str> =
        text.split(',').filter(starts_with_key).filter_map(|w| w.split('=').next()).collect();
    let of_group = lacking.iter().any(|sentence| !keys.iter().any(|key| names(sentence, key)));
    let lacks = |key: &str| {
        lacking.iter().any(|sentence| names(sentence, key)) || (of_group && ["tasks", "cpu"].contains(&key))
    };
    let mut shown = String::new();
    let mut mark = "";
    for word in text.split(',') {
        let key = word.split_once('=').map(|(key, _)| key);
        if let Some(key) = key {
            shown.push_str(mark);
            mark = if lacks(key) { "?" } else { "" };
        }
        shown.push_str(if shown.is_empty() { "" } else { "," });
        shown.push_str(word);
    }
    shown + mark
}

/// What becomes of it, as far as it is not left to the configuration.
#[must_use]
pub(crate) fn policy(policy: &Policy) -> String {
    let span = |what: &str, ms: Option<u64>| {
        ms.map(|ms| match ms {
            u64::MAX => format!("{what} never"),
            ms => format!("{what} {}", humantime::format_duration(Duration::from_millis(ms))),
        })
    };
    let most = policy.max_restarts.map(|most| format!(" (at most {most})"));
    let restart = match policy.restart {
        RestartPolicy::No => "no restart".to_owned(),
        other => format!("restart {}{}", other.as_str(), most.unwrap_or_default()),
    };
    let said = [
        Some(restart),
        span("idle timeout", policy.idle_timeout_ms),
        span("ttl", policy.ttl_ms),
        span("run time", policy.max_runtime_ms),
        policy.ephemeral.then(|| "ephemeral".to_owned()),
        policy.pinned.then(|| "pinned".to_owned()),
        (!policy.reap.is_empty()).then(|| format!("reap {}", rules(&policy.reap))),
    ];
    said.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Rules and what becomes of what they find, as in flags.
fn rules(reap: &BTreeMap<Rule, Action>) -> String {
    let said = reap.iter().map(|(rule, action)| format!("{}={}", rule.as_str(), action.as_str()));
    said.collect::<Vec<_>>().join(" ")
}

/// What it uses now: where nothing runs, the disk alone.
#[must_use]
pub(crate) fn usage(usage: &Usage) -> String {
    let runs = !usage.memory_by.is_empty();
    let facts = [
        runs.then(|| format!("{} processes", usage.processes)),
        runs.then(|| format!("{} memory ({})", size::short(usage.memory), usage.memory_by)),
        usage.cpu_percent.map(|percent| format!("{percent}% CPU")),
        runs.then(|| format!("{} CPU time", seconds(usage.cpu_us))),
        usage.disk.map(|bytes| format!("{} on disk", size::short(bytes))),
        usage.log.map(|bytes| format!("{} of logs", size::short(bytes))),
    ];
    facts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// What its last program used in all.
#[must_use]
pub(crate) fn account(account: &Account) -> String {
    let killed = account.oom_kills.filter(|n| *n > 0);
    let killed = killed.map(|n| format!(", {n} processes ended for want of memory"));
    let (cpu, most) =
        (account.user_us.saturating_add(account.system_us), account.max_rss_kib.saturating_mul(1024));
    format!("{} CPU time, at most {} in one process", seconds(cpu), size::short(most))
        + &killed.unwrap_or_default()
}

/// Microseconds of CPU time.
fn seconds(us: u64) -> String {
    match us {
        0..60_000_000 => format!("{}.{:02}s", us / 1_000_000, us / 10_000 % 100),
        us => time::short(Duration::from_micros(us)),
    }
}

#[cfg(test)]
mod tests {
    use protocol::ids::ProcId;
    use protocol::session::Exit;

    use super::*;
    use crate::testing;

    #[test]
    fn the_next_start_says_when_and_the_how_manieth() {
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
    fn an_end_that_is_not_known_has_its_why() {
        let mut session = testing::session("web").session;
        assert_eq!(unknown_end(&session), None);
        for (lifecycle, reason, says) in [
            (Lifecycle::Lost, Reason::ServerGone, "tmux server died"),
            (Lifecycle::Lost, Reason::StartupMissingTmux, "while poold was away"),
            (Lifecycle::Stopped, Reason::TmuxGone, "its pane vanished"),
            (Lifecycle::Parked, Reason::Evicted, "its init was killed"),
        ] {
            (session.lifecycle, session.reason) = (lifecycle, Some(reason));
            assert!(unknown_end(&session).unwrap().contains(says), "{reason:?}");
        }
        let process = Some(ProcId { pid: 5, start: 6 });
        let incarnation = session.incarnation.as_mut().unwrap();
        (incarnation.init, incarnation.agent) = (process, process);
        assert!(unknown_end(&session).unwrap().contains("adopted"));
        session.exit = Some(Exit { code: Some(0), signal: None, at: Timestamp(0) });
        assert_eq!(unknown_end(&session), None);
    }

    #[test]
    fn a_policy_says_what_was_chosen() {
        let mut chosen = Policy::default();
        assert_eq!(policy(&chosen), "no restart");
        (chosen.restart, chosen.max_restarts) = (RestartPolicy::OnFailure, Some(5));
        (chosen.idle_timeout_ms, chosen.ttl_ms, chosen.pinned) = (Some(u64::MAX), Some(90_000), true);
        assert_eq!(policy(&chosen), "restart on-failure (at most 5), idle timeout never, ttl 1m 30s, pinned");
        let reap = [(Rule::Hung, Action::Restart), (Rule::IdleSession, Action::Park)].into();
        let chosen = Policy { reap, ..Policy::default() };
        assert_eq!(policy(&chosen), "no restart, reap hung=restart idle_session=park");
    }

    #[test]
    fn a_limit_that_does_not_hold_is_marked() {
        let limits: Limits = "mem=2G,cpu=50%,tasks=9,cpus=0-1,4".parse().unwrap();
        let marked = |lacking: &[&str]| {
            let lacking: Vec<String> = lacking.iter().map(|sentence| (*sentence).to_owned()).collect();
            super::marked(&limits, &lacking)
        };
        assert_eq!(marked(&[]), "mem=2G,cpu=50%,tasks=9,cpus=0-1,4");
        assert_eq!(marked(&["mem=2G: no", "cpus: no"]), "mem=2G?,cpu=50%,tasks=9,cpus=0-1,4?");
        assert_eq!(marked(&["cpu is not limited: no"]), "mem=2G,cpu=50%?,tasks=9,cpus=0-1,4");
        assert_eq!(marked(&["cannot make the control group"]), "mem=2G,cpu=50%?,tasks=9?,cpus=0-1,4");
    }

    #[test]
    fn what_was_used_is_told() {
        let used = Usage {
            processes: 3,
            memory: 120 << 20,
            memory_by: "pss".into(),
            cpu_us: 1_230_000,
            cpu_percent: Some(150),
            disk: None,
            log: Some(10),
        };
        assert_eq!(usage(&used), "3 processes, 120M memory (pss), 150% CPU, 1.23s CPU time, 10B of logs");
        let rest = Usage { disk: Some(2048), log: Some(10), ..Usage::default() };
        assert_eq!(usage(&rest), "2K on disk, 10B of logs");
        assert_eq!(usage(&Usage::default()), "");
        let used = Account { user_us: 60_000_000, system_us: 0, max_rss_kib: 2048, oom_kills: Some(1) };
        assert_eq!(
            account(&used),
            "1m CPU time, at most 2M in one process, 1 processes ended for want of memory"
        );
    }
}
