//! The reaper's rules for running sessions: the action is that configured for the session, its agent or the
//! pool; protected sessions are left alone; and the reasons can be queried.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::held::{events, found, hold, lines_of};
use super::support::{Ours, over, stray};
use crate::harness::{PATIENCE, Pool, alive, wait_until};
use crate::life::support::{attached, bystander};

/// A moment of silence counts as hung or idle, whichever the test asks for.
const FAST: &str = "[pool]\ncgroup = 'off'\nmin_free_disk = '0B'\nmin_free_memory = '0B'\nidle_quiet = '100ms'\n\
                    idle_settle = '100ms'\n[restart]\nbackoff = '50ms'\n";
const REAPER: &str = "[reaper]\ninterval = '100ms'\ngrace = '200ms'\nhung = '500ms'\n";

/// An agent that may be parked and records its input; one that also fills its disk.
const KEEPERS: &str = "[agents.keeper]\ncommand = 'sh'\nargs = ['-c', 'exec cat >>$HOME/got']\nparkable = true\n\
                       [agents.filler]\ncommand = 'sh'\nargs = ['-c', 'head -c 9000000 /dev/zero >filler; exec cat']\n\
                       parkable = true\n";

#[track_caller]
fn pool(more: &str) -> Pool {
    Pool::with(&format!("{FAST}{REAPER}{more}{KEEPERS}"))
}

/// [`pool`] where only `hung` of silence counts as hung.
#[track_caller]
fn slowly(hung: &str, more: &str) -> Pool {
    let reaper = REAPER.replace("'500ms'", &format!("'{hung}'"));
    Pool::with(&format!("{FAST}{reaper}{more}{KEEPERS}"))
}

/// Creates a session with a prompt that cannot be typed, and which does nothing; returns its id.
#[track_caller]
fn hanging(pool: &Pool, name: &str, flags: &[&str]) -> String {
    let script = format!("exec cat >>{}", pool.path(format!("got.{name}")).display());
    let id = pool.ok(&[&["new", name], flags, &["--", "sh", "-c", &script]].concat());
    hang(pool, name);
    id
}

/// Sends it a prompt that cannot be typed: its pane is in copy mode.
#[track_caller]
fn hang(pool: &Pool, name: &str) {
    pool.tmux_text(&["copy-mode", "-t", &format!("={name}:")]);
    pool.ok(&["send", name, "text"]);
}

/// Explanation of each rule about a session, by the rule's name.
#[track_caller]
pub(super) fn explained(pool: &Pool, session: &str) -> Value {
    let told = pool.json(&["reap", "--explain", session]);
    let rules = told["rules"].as_array().unwrap();
    rules
        .iter()
        .map(|rule| (rule["rule"].as_str().unwrap().to_owned(), rule.clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Makes the reaper look `times` times.
#[track_caller]
fn look(pool: &Pool, times: usize) {
    (0..times).for_each(|_| drop(pool.ok(&["reap"])));
}

#[track_caller]
fn await_found(pool: &Pool, session: &str, wanted: &[(&str, &str)]) {
    let began = Instant::now();
    loop {
        let mut found = found(pool, session);
        // Each attempt to type its prompt is a sign of life of the session, after which it may be reported again.
        while found.len() > wanted.len() && found.last() == found.get(wanted.len() - 1) {
            found.pop();
        }
        if found.iter().map(|(rule, action)| (rule.as_str(), action.as_str())).eq(wanted.iter().copied()) {
            return;
        }
        let late = began.elapsed() > PATIENCE;
        assert!(!late, "{session}: {found:?}, not {wanted:?}: {}", explained(pool, session));
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_hangs_is_told_once_and_runs_on() {
    let pool = pool("");
    let other = bystander(&pool);
    let id = hanging(&pool, "web", &[]);
    let agent = pool.pane_pids(&id).0;
    await_found(&pool, &id, &[("hung", "report")]);
    look(&pool, 3);
    assert_eq!(found(&pool, &id).len(), 1);
    assert_eq!((pool.lifecycle(&id).as_str(), pool.pane_pids(&id).0), ("live", agent));
    // The session goes on, and hangs again.
    pool.tmux_text(&["send-keys", "-t", "=web:", "-X", "cancel"]);
    pool.ok(&["send", &id, "--wait", "done", "next"]);
    look(&pool, 1);
    hang(&pool, "web");
    await_found(&pool, &id, &[("hung", "report"), ("hung", "report")]);
    assert!(alive(agent) && alive(other));
    assert_eq!(found(&pool, "bystander"), []);
}

#[test]
fn what_becomes_of_what_hangs_is_said_of_the_session_its_agent_or_the_pool() {
    // Long enough for a prompt to be typed before the restarted session would count as hung.
    let pool = slowly(
        "4s",
        "[reaper.policy]\nhung = 'restart'\n[agents.fragile]\ncommand = 'cat'\nreap = { hung = 'kill' }\n",
    );
    let other = bystander(&pool);
    let by_pool = hanging(&pool, "a", &[]);
    let by_agent = pool.ok(&["new", "b", "--agent", "fragile"]);
    hang(&pool, "b");
    let by_session = hanging(&pool, "c", &["--reap", "hung=report"]);
    let over_agent = pool.ok(&["new", "d", "--agent", "fragile", "--reap", "hung=report"]);
    hang(&pool, "d");
    await_found(&pool, &by_pool, &[("hung", "restart")]);
    await_found(&pool, &by_agent, &[("hung", "kill")]);
    await_found(&pool, &by_session, &[("hung", "report")]);
    await_found(&pool, &over_agent, &[("hung", "report")]);
    assert_eq!(pool.await_lifecycle(&by_agent, "stopped")["reason"], "hung");
    // Restarted, it gets its prompt, once.
    wait_until("it is started again", PATIENCE, || pool.show(&by_pool)["incarnations"].as_u64() > Some(1));
    wait_until("its message came", PATIENCE, || lines_of(&pool, "got.a") == ["text"]);
    pool.await_lifecycle(&by_pool, "live");
    wait_until("that is known", PATIENCE, || pool.show(&by_pool)["active_requests"] == 0);
    for (id, by) in [
        (&by_session, "session"),
        (&over_agent, "session"),
        (&by_pool, "configuration"),
        (&by_agent, "agent"),
    ] {
        assert_eq!(explained(&pool, id)["hung"]["by"], by);
    }
    // Changed while it runs; restarted, it gets its prompt.
    pool.ok(&["update", &by_session, "--reap", "hung=restart"]);
    wait_until("it is started again", PATIENCE, || pool.show(&by_session)["incarnations"].as_u64() > Some(1));
    wait_until("its message came", PATIENCE, || lines_of(&pool, "got.c") == ["text"]);
    pool.ok(&["update", &over_agent, "--reap", "hung=default"]);
    assert_eq!(pool.await_lifecycle(&over_agent, "stopped")["reason"], "hung");
    assert!(alive(other) && found(&pool, "bystander").is_empty());
    assert_eq!(lines_of(&pool, "got.c"), ["text"], "once");
}

#[test]
fn what_was_started_again_too_often_is_only_told() {
    // Long enough for its prompt to be typed before it would count as hung.
    let pool = slowly("4s", "[reaper.policy]\nhung = 'restart'\n");
    let id = hanging(&pool, "web", &["--max-restarts", "1"]);
    await_found(&pool, &id, &[("hung", "restart")]);
    wait_until("its message came", PATIENCE, || lines_of(&pool, "got.web") == ["text"]);
    pool.await_lifecycle(&id, "live");
    let agent = pool.pane_pids(&id).0;
    hang(&pool, "web");
    await_found(&pool, &id, &[("hung", "restart"), ("hung", "report")]);
    let last = events(&pool, &["stale_found"]).pop().unwrap();
    assert!(last["evidence"].as_str().unwrap().contains("too often"), "{last}");
    look(&pool, 3);
    await_found(&pool, &id, &[("hung", "restart"), ("hung", "report")]);
    assert_eq!(pool.pane_pids(&id).0, agent);
}

#[test]
fn what_is_put_aside_because_it_hangs_comes_back_for_its_message() {
    // Long enough for its prompt to be typed before it would be parked again.
    let pool = slowly("4s", "");
    let id = pool.ok(&["new", "web", "--agent", "keeper", "--reap", "hung=park"]);
    hang(&pool, "web");
    await_found(&pool, &id, &[("hung", "park")]);
    wait_until("its message came", PATIENCE, || lines_of(&pool, "home/got") == ["text"]);
    assert_eq!(pool.show(&id)["incarnations"], 2);
    assert!(pool.event_kinds(&id).iter().any(|kind| kind == "session_parked"), "{:?}", pool.event_kinds(&id));
}

#[test]
fn what_is_idle_is_told_put_aside_or_ended_as_was_said() {
    // The prompt it is woken for may take its time to be typed.
    let pool = slowly("1h", "idle_session = '500ms'\n");
    let new = |name: &str, action: &[&str]| pool.ok(&[&["new", name], action, &["--", "cat"]].concat());
    let told = new("told", &[]);
    let parked = pool.ok(&["new", "parked", "--agent", "keeper", "--reap", "idle_session=park"]);
    // A session that could not resume is not parked by a rule.
    let kept = new("kept", &["--reap", "idle_session=park"]);
    let killed = new("killed", &["--reap", "idle_session=kill"]);
    let again = new("again", &["--reap", "idle_session=restart", "--max-restarts", "1"]);
    await_found(&pool, &told, &[("idle_session", "report")]);
    assert_eq!(pool.await_lifecycle(&parked, "parked")["reason"], "idle");
    assert_eq!(pool.await_lifecycle(&killed, "stopped")["reason"], "too_idle");
    await_found(&pool, &again, &[("idle_session", "restart"), ("idle_session", "report")]);
    look(&pool, 3);
    await_found(&pool, &told, &[("idle_session", "report")]);
    await_found(&pool, &parked, &[("idle_session", "park")]);
    await_found(&pool, &kept, &[("idle_session", "report")]);
    await_found(&pool, &killed, &[("idle_session", "kill")]);
    assert_eq!(pool.show(&again)["incarnations"], 2);
    // The parked session is woken, and parked again.
    pool.ok(&["send", &parked, "--wait", "done", "text"]);
    await_found(&pool, &parked, &[("idle_session", "park"), ("idle_session", "park")]);
    pool.await_lifecycle(&parked, "parked");
}

#[test]
fn what_somebody_looks_at_keeps_or_locked_is_left_alone() {
    let pool = pool("idle_session = '500ms'\n[reaper.policy]\nhung = 'kill'\nidle_session = 'kill'\n");
    let new = |name: &str| pool.ok(&["new", name, "--pin", "--", "cat"]);
    let (watched, locked, pinned) = (new("attached"), new("locked"), new("pinned"));
    let held = hold(&pool, &locked, &[]);
    let client = attached(&pool, &watched);
    for name in ["attached", "locked", "pinned"] {
        hang(&pool, name);
    }
    for id in [&watched, &locked] {
        let _unpinned = held.ctl(&pool, &["unpin", id]).expect(0);
    }
    // While others hang and are ended.
    for name in ["x", "y"] {
        // Pinned, so that it does not count as idle before it has something to do.
        let id = hanging(&pool, name, &["--pin"]);
        pool.ok(&["unpin", &id]);
        pool.await_lifecycle(&id, "stopped");
    }
    for (id, why) in [(&watched, "attached"), (&locked, "lock"), (&pinned, "pinned")] {
        let rules = explained(&pool, id);
        for rule in ["hung", "idle_session"] {
            let said = &rules[rule];
            assert_eq!(said["applies"], false, "{said}");
            assert!(said["why"].as_str().unwrap().contains(why), "{said}");
        }
        assert_eq!((pool.lifecycle(id).as_str(), found(&pool, id)), ("live", vec![]), "{rules}");
    }
    // Without client and lock it is treated like any other.
    assert_eq!(held.release(), Some(0));
    client.end();
    for id in [&watched, &locked] {
        assert_eq!(pool.await_lifecycle(id, "stopped")["reason"], "hung");
    }
    assert_eq!(pool.lifecycle(&pinned), "live");
}

#[test]
fn limits_are_told_or_lead_to_a_new_start_as_was_said() {
    let pool = pool("");
    let other = bystander(&pool);
    let told = pool.ok(&[
        "new",
        "told",
        "--max-runtime",
        "400ms",
        "--reap",
        "run_time=report",
        "--",
        "sleep",
        "1000",
    ]);
    let new = ["new", "again", "--max-runtime", "400ms", "--max-restarts", "1", "--reap", "run_time=restart"];
    let again = pool.ok(&[&new[..], &["--", "sleep", "1000"]].concat());
    let script = "echo run >>runs; [ $(wc -l <runs) -gt 1 ] && exec sleep 1000; \
                  (head -c 90000000 /dev/zero; exec sleep 1000) | tail -c 90000000";
    let hog = ["new", "hog", "--limit", "mem=64M", "--reap", "memory=restart", "--", "sh", "-c", script];
    let hog = pool.ok(&hog);
    let disk = ["new", "disk", "--limit", "disk=4M", "--reap", "disk=park", "--agent", "filler"];
    let disk = pool.ok(&disk);
    await_found(&pool, &told, &[("run_time", "report")]);
    await_found(&pool, &again, &[("run_time", "restart"), ("run_time", "report")]);
    await_found(&pool, &hog, &[("memory", "restart")]);
    wait_until("it runs again", PATIENCE, || pool.show(&hog)["incarnations"] == 2);
    await_found(&pool, &disk, &[("disk", "park")]);
    pool.await_lifecycle(&disk, "parked");
    look(&pool, 3);
    await_found(&pool, &told, &[("run_time", "report")]);
    assert_eq!(pool.show(&told)["incarnations"], 1);
    pool.await_lifecycle(&hog, "live");
    assert_eq!(pool.show(&again)["incarnations"], 2);
    assert!(alive(other));
}

#[test]
fn a_dry_run_and_an_explanation_do_nothing() {
    // The reaper does not look by itself.
    let pool = Pool::with(&format!(
        "{FAST}[reaper]\ninterval = '1h'\ngrace = '200ms'\nhung = '200ms'\n[reaper.policy]\nhung = 'kill'\n"
    ));
    let id = hanging(&pool, "web", &[]);
    // Asked twice, so that two samples show its processes to be inactive.
    wait_until("the rule applies", PATIENCE, || explained(&pool, &id)["hung"]["applies"] == true);
    for _ in 0..3 {
        pool.ok(&["reap", "--dry-run"]);
        assert_eq!(explained(&pool, &id)["hung"]["applies"], true);
    }
    let done = events(&pool, &["stale_found", "session_draining", "reap_started", "reap_finished"]);
    assert_eq!((done.as_slice(), pool.lifecycle(&id).as_str()), (&[][..], "live"));
    let done = pool.json(&["reap"]);
    assert_eq!(done["candidates"][0]["session"], json!(id), "{done}");
    assert_eq!(pool.await_lifecycle(&id, "stopped")["reason"], "hung");
}

#[test]
fn each_rule_says_why_it_applies_or_not_and_when_it_would() {
    let pool = Pool::with(&format!("{FAST}[reaper]\ninterval = '100ms'\nhung = '1h'\nidle_session = '2h'\n"));
    pool.ok(&["new", "web", "--limit", "mem=1G", "--max-runtime", "3h", "--reap", "hung=park", "--", "cat"]);
    let rules = explained(&pool, "web");
    let names = [
        "zombie_pane",
        "stale_worker",
        "stale_agent",
        "hung",
        "idle_session",
        "memory",
        "disk",
        "run_time",
        "leftovers",
        "orphans",
        "host_memory",
        "host_disk",
    ];
    for name in names {
        let rule = &rules[name];
        assert_eq!(rule["applies"], false, "{rule}");
        assert!(
            !rule["why"].as_str().unwrap().is_empty() && !rule["action"].as_str().unwrap().is_empty(),
            "{rule}"
        );
    }
    let due = |session: &str, rule: &str, span: &str| {
        let rule = explained(&pool, session)[rule].clone();
        assert!(rule["at"].is_string() && rule["why"].as_str().unwrap().contains(span), "{rule}");
    };
    due("web", "run_time", "10800 s");
    wait_until("it is idle", PATIENCE, || explained(&pool, "web")["idle_session"]["at"].is_string());
    due("web", "idle_session", "7200 s");
    assert_eq!(rules["hung"]["why"], "it has nothing to do");
    assert_eq!((&rules["hung"]["action"], &rules["hung"]["by"]), (&json!("park"), &json!("session")));
    hang(&pool, "web");
    wait_until("it is known that it does nothing", PATIENCE, || {
        explained(&pool, "web")["hung"]["at"].is_string()
    });
    due("web", "hung", "3600 s");
    let table = pool.ok(&["reap", "--explain", "web"]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), names.len() + 1, "{table}");
    assert!(lines[0].starts_with("RULE") && names.iter().all(|name| table.contains(name)), "{table}");
    pool.ok(&["kill", "web"]);
    for name in ["hung", "idle_session", "memory", "run_time", "zombie_pane"] {
        let rule = &explained(&pool, "web")[name];
        assert_eq!((&rule["applies"], &rule["at"]), (&json!(false), &Value::Null), "{rule}");
    }
    let _unknown = pool.ctl(&["reap", "--explain", "nobody"]).expect(3);
}

#[test]
fn so_many_are_ended_in_a_minute_and_no_more_unless_forced() {
    let pool = pool("max_kills_per_minute = 2\n[reaper.policy]\nhung = 'kill'\n");
    let ids: Vec<String> = (0..5).map(|n| hanging(&pool, &format!("s{n}"), &[])).collect();
    let ended = || ids.iter().filter(|id| pool.lifecycle(id) == "stopped").count();
    wait_until("two are ended", PATIENCE, || ended() == 2);
    wait_until("the others would be", PATIENCE, || {
        ids.iter().filter(|id| explained(&pool, id)["hung"]["applies"] == true).count() == 3
    });
    look(&pool, 3);
    assert_eq!(ended(), 2);
    let status = pool.status();
    assert!(status["problems"].to_string().contains("max_kills_per_minute"), "{}", status["problems"]);
    // An end requested by a user is not held back.
    pool.script("own", "exec sleep 1000");
    pool.ok(&["kill", "own"]);
    assert_eq!(ended(), 2);
    // Only those hung at that moment are ended: each attempt to type is a sign of life.
    wait_until("all are ended", PATIENCE, || {
        pool.ok(&["reap", "--force"]);
        ended() == 5
    });
    assert_eq!(events(&pool, &["stale_found"]).len(), 5);
    let status = pool.status();
    assert!(!status["problems"].to_string().contains("max_kills_per_minute"), "{}", status["problems"]);
}

/// A stray process with the mark of an incarnation that has ended, a new one each time.
#[track_caller]
fn orphan(pool: &Pool) -> Ours {
    let tag = over(pool);
    stray(pool, &[("POOL_INCARNATION", &tag), ("POOL_SOCKET", pool.socket().to_str().unwrap())])
}

fn runs(orphan: &Ours) -> bool {
    orphan.0.iter().any(|process| process.runs())
}

#[test]
fn so_many_orphans_are_ended_in_a_minute_and_no_more_unless_forced() {
    let pool = pool("max_kills_per_minute = 2\n");
    let orphans: Vec<Ours> = (0..5).map(|_| orphan(&pool)).collect();
    let left = || orphans.iter().filter(|orphan| runs(orphan)).count();
    wait_until("two are ended", PATIENCE, || left() == 3);
    let said = || pool.status()["problems"].to_string();
    wait_until("it is said that three wait", PATIENCE, || said().contains("holds 3 ends back"));
    look(&pool, 3);
    assert_eq!(left(), 3);
    pool.ok(&["reap", "--force"]);
    wait_until("all are ended", PATIENCE, || left() == 0);
    wait_until("nothing waits", PATIENCE, || !said().contains("ends back"));
    assert_eq!(events(&pool, &["stale_found"]).len(), 5);
}

/// The commands `before` and `after`: each records its input and environment, and `before` refuses while a
/// file exists.
fn hooks(pool: &Pool) -> String {
    let at = pool.path("hook");
    let note =
        format!("env | grep ^POOL_REAP | sort >>{0}.env; cat >>{0}.json; echo >>{0}.json", at.display());
    format!(
        "{FAST}{REAPER}before = ['sh', '-c', '{note}; test ! -e {0}.no']\nafter = ['sh', '-c', '{note}']\n",
        at.display()
    )
}

#[track_caller]
fn configured(pool: &Pool, text: &str) {
    pool.reload(text);
}

/// The commands' environment variables, without those that vary between runs.
fn told(pool: &Pool) -> Vec<String> {
    lines_of(pool, "hook.env")
        .into_iter()
        .filter(|line| !line.contains("EVIDENCE") && !line.contains("PID="))
        .collect()
}

#[test]
fn a_command_before_says_whether_what_a_rule_found_is_ended_and_one_after_is_told_what_came_of_it() {
    let pool = pool("");
    configured(&pool, &hooks(&pool));
    let one = orphan(&pool);
    wait_until("it is ended", PATIENCE, || !runs(&one));
    let of_rule = |word: &str| told(&pool).iter().filter(|line| *line == word).count();
    wait_until("the one after was told", PATIENCE, || of_rule("POOL_REAP_RULE=orphans") == 2);
    let lines = told(&pool);
    assert!(lines.iter().any(|line| line == "POOL_REAP_OUTCOME=gone"), "{lines:#?}");
    let evidence = lines_of(&pool, "hook.env");
    let pid = one.0[0].pid.to_string();
    assert!(
        evidence.iter().any(|line| line.starts_with("POOL_REAP_EVIDENCE=") && line.contains(&pid)),
        "{evidence:?}"
    );
    let candidates: Vec<Value> = lines_of(&pool, "hook.json")
        .iter()
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    assert!(candidates.iter().any(|candidate| candidate["rule"] == "orphans"), "{candidates:#?}");
    // Refused, the process is left alone, and the refusal is reported with its reason.
    fs::write(pool.path("hook.no"), "").unwrap();
    let kept = orphan(&pool);
    let outcomes = || {
        let finished = events(&pool, &["reap_finished"]).into_iter();
        finished
            .map(|event| event["outcome"].to_string())
            .filter(|outcome| outcome.contains("refused"))
            .collect::<Vec<_>>()
    };
    wait_until("it is left alone", PATIENCE, || !outcomes().is_empty());
    assert!(outcomes()[0].contains("exit status: 1"), "{:?}", outcomes());
    assert!(runs(&kept));
    // An end requested by a user happens nevertheless, and the commands are told of it too.
    let id = pool.script("web", "exec sleep 1000");
    pool.ok(&["kill", &id]);
    wait_until("both were told", PATIENCE, || {
        let lines = told(&pool);
        let name = lines.iter().filter(|line| *line == "POOL_REAP_NAME=web").count();
        name == 2 && of_rule("POOL_REAP_RULE=requested") >= 2
    });
    assert!(runs(&kept));
    // A missing command refuses as well.
    configured(
        &pool,
        &format!("{FAST}{REAPER}before = ['/nowhere/program']\nafter = ['/nowhere/program']\n"),
    );
    let other = orphan(&pool);
    wait_until("it is left alone", PATIENCE, || {
        outcomes().iter().any(|outcome| outcome.contains("could not be run"))
    });
    assert!(runs(&kept) && runs(&other));
    pool.script("again", "exec sleep 1000");
    pool.ok(&["kill", "again"]);
    configured(&pool, &format!("{FAST}{REAPER}"));
    // The reaper tries each again after a growing pause.
    wait_until("both are ended", PATIENCE * 2, || !runs(&kept) && !runs(&other));
}

#[test]
fn what_is_wrong_in_the_section_of_the_reaper_is_named() {
    let pool = Pool::bare("");
    for (text, named) in [
        ("[reaper]\ninterval = '1ms'", "interval"),
        ("[reaper]\nhung = 'soon'", "hung"),
        ("[reaper]\nstale_worker = 3", "stale_worker"),
        ("[reaper]\nidle_session = ''", "idle_session"),
        ("[reaper]\nhost_memory = '0%'", "host_memory"),
        ("[reaper]\nhost_disk = 'half'", "host_disk"),
        ("[reaper.policy]\nhost_disk = 'kill'", "park or report"),
        ("[reaper]\nmax_kills_per_minute = -1", "max_kills_per_minute"),
        ("[reaper]\nbefore = 'true'", "before"),
        ("[reaper]\nspeed = 1", "speed"),
        ("[reaper.policy]\nhung = 'bury'", "bury"),
        ("[reaper.policy]\nsleepy = 'kill'", "sleepy"),
        ("[reaper.policy]\norphans = 'restart'", "orphans"),
        ("[agents.x]\ncommand = 'cat'\nreap = { zombie_pane = 'park' }", "zombie_pane"),
    ] {
        pool.configure(text);
        let told = pool.ctl(&["config", "check"]);
        assert!(told.code != 0 && told.stderr.contains(named), "{text}: {told:?}");
    }
    pool.configure(
        "[reaper]\nhung = '1s'\nbefore = ['true']\n[reaper.policy]\norphans = 'report'\nhung = 'park'",
    );
    let _right = pool.ctl(&["config", "check"]).expect(0);
    pool.start_poold();
    for (flag, named) in
        [("sleepy=kill", "sleepy"), ("hung=bury", "restart"), ("orphans=park", "orphans"), ("hung", "=")]
    {
        let told = pool.ctl(&["new", "web", "--reap", flag, "--", "cat"]).expect(2);
        assert!(told.stderr.contains(named), "{told:?}");
    }
}

#[test]
fn what_only_is_to_be_reported_is_told_once_and_left() {
    let pool = pool("[reaper.policy]\norphans = 'report'\n");
    let one = orphan(&pool);
    wait_until("it is told", PATIENCE, || !events(&pool, &["stale_found"]).is_empty());
    look(&pool, 3);
    let told = events(&pool, &["stale_found"]);
    assert_eq!((told.len(), &told[0]["action"], &told[0]["rule"]), (1, &json!("report"), &json!("orphans")));
    assert!(
        runs(&one) && events(&pool, &["reap_started"]).iter().all(|event| event["candidate"] != "orphan")
    );
}
