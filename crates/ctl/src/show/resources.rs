//! The limits, the run time and the resource usage of a session as text.

use std::time::Duration;

use protocol::usage::Account;
use protocol::{Lifecycle, Limits, Session, Timestamp, Usage, counted};

use crate::show::{size, time};

/// Formats limits.
pub(crate) fn limits(limits: &Limits) -> String {
    match (limits.is_empty(), limits.best_effort) {
        (true, _) => "none".to_owned(),
        (false, true) => format!("{limits} (as far as they can be enforced)"),
        (false, false) => limits.to_string(),
    }
}

/// Formats limits with a `?` behind each that is not enforced, according to the sentences in `unenforced`. A
/// sentence that begins with no limit's key concerns all limits that need a control group.
pub(crate) fn marked_limits(limits: &Limits, unenforced: &[String]) -> String {
    let begins_with = |sentence: &str, key: &str| {
        sentence.strip_prefix(key).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
    };
    let text = limits.to_string();
    // The list of processors contains commas itself.
    let keys: Vec<&str> = text.split(',').filter_map(|word| Some(word.split_once('=')?.0)).collect();
    let no_group = unenforced.iter().any(|sentence| !keys.iter().any(|key| begins_with(sentence, key)));
    let mark_of = |key: &str| {
        let is_named = unenforced.iter().any(|sentence| begins_with(sentence, key));
        if is_named || (no_group && ["tasks", "cpu"].contains(&key)) { "?" } else { "" }
    };
    let (mut shown, mut mark) = (String::new(), "");
    for word in text.split(',') {
        if let Some((key, _)) = word.split_once('=') {
            shown.push_str(mark);
            mark = mark_of(key);
        }
        shown.push_str(if shown.is_empty() { "" } else { "," });
        shown.push_str(word);
    }
    shown + mark
}

/// Formats the present usage: if no process runs, only that of the disk.
pub(crate) fn usage(usage: &Usage) -> String {
    let runs = !usage.memory_by.is_empty();
    let facts = [
        runs.then(|| counted(usage.processes.into(), "process")),
        runs.then(|| format!("{} memory ({})", size::short(usage.memory), usage.memory_by)),
        usage.cpu_percent.map(|percent| format!("{percent}% CPU")),
        runs.then(|| format!("{} CPU time", time::precise(Duration::from_micros(usage.cpu_us)))),
        usage.disk.map(|bytes| format!("{} on disk", size::short(bytes))),
        usage.log.map(|bytes| format!("{} of logs", size::short(bytes))),
    ];
    facts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Formats the total usage of the last program.
pub(crate) fn account(account: &Account) -> String {
    let cpu = Duration::from_micros(account.user_us.saturating_add(account.system_us));
    let most = size::short(account.max_rss_kib.saturating_mul(1024));
    let killed = account.oom_kills.filter(|n| *n > 0);
    let killed = killed.map(|n| format!(", {} killed for lack of memory", counted(n, "process")));
    format!("{} CPU time, at most {most} in one process", time::precise(cpu)) + &killed.unwrap_or_default()
}

/// The time for which the last program has run, until its end if it has ended; none if there was none.
pub(crate) fn run_time(session: &Session, now: Timestamp) -> Option<Duration> {
    let run = session.incarnation.as_ref()?;
    let ended = session.exit.map(|exit| exit.at).filter(|_| session.lifecycle != Lifecycle::Live);
    let end = ended.unwrap_or(if session.lifecycle.holds_slot() { now } else { session.changed_at });
    Some(end.since(run.started_at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_lasts_until_its_end() {
        let mut session = crate::testing::session("web").session;
        let started = session.incarnation.as_ref().unwrap().started_at;
        let at = |seconds| started.after(Duration::from_secs(seconds));
        let run_time = |session: &Session| run_time(session, at(90)).map(|time| time.as_secs());
        let exit = |seconds| Some(protocol::session::Exit { code: Some(0), signal: None, at: at(seconds) });
        assert_eq!(run_time(&session), Some(90));
        session.exit = exit(30);
        assert_eq!(run_time(&session), Some(90), "that of the run before");
        session.lifecycle = Lifecycle::Draining;
        assert_eq!(run_time(&session), Some(30));
        (session.lifecycle, session.exit, session.changed_at) = (Lifecycle::Lost, None, at(40));
        assert_eq!(run_time(&session), Some(40), "its exit is not known");
        session.incarnation = None;
        assert_eq!(run_time(&session), None);
    }

    #[test]
    fn a_limit_that_is_not_enforced_is_marked() {
        let limits: Limits = "mem=2G,cpu=50%,tasks=9,cpus=0-1,4".parse().unwrap();
        let marked = |lacking: &[&str]| {
            let lacking: Vec<String> = lacking.iter().map(|sentence| (*sentence).to_owned()).collect();
            super::marked_limits(&limits, &lacking)
        };
        assert_eq!(marked(&[]), "mem=2G,cpu=50%,tasks=9,cpus=0-1,4");
        assert_eq!(marked(&["mem=2G: no", "cpus: no"]), "mem=2G?,cpu=50%,tasks=9,cpus=0-1,4?");
        assert_eq!(marked(&["cpu is not limited: no"]), "mem=2G,cpu=50%?,tasks=9,cpus=0-1,4");
        assert_eq!(marked(&["cannot make the control group"]), "mem=2G,cpu=50%?,tasks=9?,cpus=0-1,4");
    }

    #[test]
    fn usage_is_one_line() {
        let used = Usage {
            processes: 3,
            memory: 120 << 20,
            memory_by: "pss".into(),
            cpu_us: 1_230_000,
            cpu_percent: Some(150),
            disk: None,
            log: Some(10),
        };
        assert_eq!(usage(&used), "3 processes, 120M memory (pss), 150% CPU, 1.2s CPU time, 10B of logs");
        let rest = Usage { disk: Some(2048), log: Some(10), ..Usage::default() };
        assert_eq!(usage(&rest), "2K on disk, 10B of logs");
        assert_eq!(usage(&Usage::default()), "");
        let used = Account { user_us: 60_000_000, system_us: 0, max_rss_kib: 2048, oom_kills: Some(1) };
        assert_eq!(
            account(&used),
            "1m CPU time, at most 2M in one process, 1 process killed for lack of memory"
        );
    }
}
