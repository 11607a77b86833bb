//! Workers that the pool starts by itself: for a message, within a budget, and never twice for one message.

use std::fs;

use serde_json::{Value, json};

use super::support::{await_state, events, session, shown, state};
use crate::harness::{PATIENCE, Pool, eventually, gone, send_signal, wait_until};

/// A pool with all daemons, these workers and a session `web`.
#[track_caller]
fn pool(config: &str) -> Pool {
    let pool = Pool::with(&format!("[restart]\nbackoff = \"20ms\"\n{config}"));
    session(&pool, "web");
    pool
}

/// A worker as `worker ls --json` prints it.
#[track_caller]
fn worker(pool: &Pool, name: &str) -> Value {
    let all = pool.lines(&["worker", "ls"]);
    all.into_iter().find(|worker| worker["name"] == name).unwrap_or(Value::Null)
}

#[track_caller]
fn await_worker(pool: &Pool, name: &str, wanted: &str) -> Value {
    eventually(&format!("worker {name} is {wanted}"), PATIENCE, || {
        Some(worker(pool, name)).filter(|worker| worker["state"] == wanted)
    })
}

#[track_caller]
fn send(pool: &Pool, session: &str, kind: &str) -> String {
    pool.ok(&["send", session, "--kind", kind, "text"])
}

#[test]
fn c15_a_message_starts_a_worker_and_silence_ends_it() {
    let config = "[pool]\nmax_sessions = 1\n[workers.shout]\ncommand = ['sh', '-c', 'tr a-z A-Z; echo seen >&2']\n\
                  kinds = ['shout']\nidle_end = '300ms'\nresult = true\n";
    let pool = pool(config);
    assert_eq!(worker(&pool, "shout")["state"], "waiting");
    for starts in [1, 2] {
        let id = send(&pool, "web", "shout");
        await_state(&pool, &id, "done");
        assert_eq!(shown(&pool, &id)["result"], "TEXT");
        let waits = await_worker(&pool, "shout", "waiting");
        assert_eq!(
            (&waits["starts"], &waits["pid"], &waits["failures"]),
            (&json!(starts), &json!(null), &json!(0))
        );
    }
    assert_eq!(pool.lines(&["ls", "--all"]).len(), 1, "its session is hidden");
    let status = pool.status();
    assert_eq!((&status["healthy"], &status["slots"]["used"]), (&json!(true), &json!(1)), "{status}");
    let log = pool.ok(&["worker", "logs", "shout"]);
    assert_eq!(log.lines().filter(|line| *line == "seen").count(), 2, "{log}");
    pool.ctl(&["new", "other", "--", "true"]).expect(5);
}

#[test]
fn c15_a_host_whose_message_waits_for_a_free_handler_stays_for_it() {
    let pool = pool(
        "[pool]\nmax_processes = 1\n[workers.long]\nkinds = ['long']\nidle_end = '300ms'\n\
         command = ['sh', '-c', 'until test -e go; do sleep 0.1; done']\n\
         [workers.short]\ncommand = ['true']\nkinds = ['short']\nidle_end = '300ms'\n",
    );
    let long = send(&pool, "web", "long");
    await_state(&pool, &long, "claimed");
    let short = send(&pool, "web", "short");
    await_worker(&pool, "short", "running");
    // Several times its idle time has to pass.
    std::thread::sleep(std::time::Duration::from_secs(3));
    let host = worker(&pool, "long")["session"].as_str().unwrap().to_owned();
    fs::write(pool.state().join("sessions").join(host).join("work/go"), "").unwrap();
    await_state(&pool, &long, "done");
    await_state(&pool, &short, "done");
    let waits = await_worker(&pool, "short", "waiting");
    assert_eq!((&waits["starts"], &waits["failures"]), (&json!(1), &json!(0)), "{waits}");
}

#[test]
fn c15_a_worker_that_crashes_is_restarted_within_its_budget_and_then_status_says_so() {
    let config = |command: &str| {
        format!(
            "[restart]\nbackoff = '20ms'\n[workers.w]\ncommand = ['{command}']\nkinds = ['a']\nmax_restarts = 2\n"
        )
    };
    let pool = Pool::with(&config("/nowhere/handler"));
    session(&pool, "web");
    let id = send(&pool, "web", "a");
    let failed = await_worker(&pool, "w", "failed");
    assert_eq!((&failed["starts"], &failed["last_exit"]), (&json!(3), &json!(1)), "{failed}");
    let status = pool.ctl(&["status"]).expect(1);
    let said = status.text();
    assert!(said.contains("worker w: ") && said.contains("`poolctl worker start w` tries again"), "{said}");
    assert_eq!((state(&pool, &id).as_str(), &shown(&pool, &id)["attempts"]), ("queued", &json!(0)));
    let log = pool.ok(&["worker", "logs", "w"]);
    assert!(log.contains("cannot run /nowhere/handler"), "{log}");
    // A mistake in the file leaves all as it is; the right command counts from the next start.
    pool.configure("[workers.w]\ncommand = ['true']\nkinds = ['prompt']\n");
    pool.ctl(&["config", "reload"]).expect(2);
    pool.reload(&config("true"));
    pool.ok(&["worker", "start", "w"]);
    await_state(&pool, &id, "done");
    assert_eq!(pool.status()["healthy"], true);
    // Taken out of the configuration, it ends and goes away.
    pool.reload("");
    wait_until("the worker is removed", PATIENCE, || worker(&pool, "w") == Value::Null);
}

#[test]
fn c15_a_worker_that_is_added_outlives_poold_until_it_is_removed() {
    let pool = pool("[workers.fixed]\ncommand = ['true']\nkinds = ['f']\n");
    let own = ["worker", "add", "own", "--own-queue", "--idle-end", "200ms", "--", "sh", "-c", "cat >&2"];
    pool.ok(&own);
    pool.ctl(&own).expect(4);
    pool.ctl(&["worker", "add", "fixed", "--all", "--", "true"]).expect(4);
    pool.ctl(&["worker", "add", "lost", "--all", "--fallback", "none", "--", "true"]).expect(3);
    let which = pool.ctl(&["worker", "add", "none", "--", "true"]).expect(2).stderr;
    assert!(which.contains("--own-queue") && which.contains("--all"), "{which}");
    let nowhere =
        pool.ctl(&["worker", "add", "nowhere", "--all", "--cwd", "/no/dir", "--", "true"]).expect(2);
    assert!(nowhere.stderr.contains("/no/dir is not a directory"), "{nowhere:?}");
    pool.ctl(&["worker", "add", "bad", "--all", "--kind", "prompt", "--", "true"]).expect(2);
    pool.ctl(&["worker", "add", "bad", "--session", "web", "--session", "nobody", "--", "true"]).expect(3);
    pool.restart_poold();
    pool.ok(&["worker", "stop", "own"]);
    let id = send(&pool, "@own", "any");
    assert_eq!(worker(&pool, "own")["state"], "stopped");
    let waiting = pool.json(&["queue", "show", "@own", &id]);
    assert_eq!(waiting["state"], "queued");
    pool.ok(&["worker", "start", "own"]);
    wait_until("it is worked", PATIENCE, || pool.json(&["queue", "show", "@own", &id])["state"] == "done");
    assert!(pool.ok(&["worker", "logs", "own", "-n", "5"]).contains("text"));
    pool.ctl(&["send", "@own", "a prompt"]).expect(2);
    pool.ctl(&["send", "@fixed", "--kind", "f", "no queue of its own"]).expect(2);
    pool.ctl(&["send", "@lost", "--kind", "f", "text"]).expect(3);
    pool.ctl(&["worker", "rm", "fixed"]).expect(5);
    pool.ok(&["worker", "rm", "own"]);
    let names: Vec<Value> =
        pool.lines(&["worker", "ls"]).into_iter().map(|worker| worker["name"].clone()).collect();
    assert_eq!(names, ["fixed"]);
}

/// A handler that writes a line, then waits for a file.
fn held_handler(pool: &Pool) -> Vec<String> {
    let (log, go) = (pool.path("began"), pool.path("go"));
    let script = format!(
        "echo $POOL_MESSAGE_ID >>{}; until [ -e {} ]; do sleep 0.02; done",
        log.display(),
        go.display()
    );
    ["worker", "add", "w", "--all", "--kind", "a", "--", "sh", "-c", &script].map(str::to_owned).to_vec()
}

#[test]
fn c15_a_kill_of_poold_leaves_the_host_of_a_worker_and_its_handler_alone() {
    let pool = pool("");
    pool.ok(&held_handler(&pool));
    let id = send(&pool, "web", "a");
    pool.await_file("began", |text| !text.is_empty());
    let before = worker(&pool, "w");
    pool.restart_poold();
    assert_eq!(worker(&pool, "w")["pid"], before["pid"], "the same host");
    fs::write(pool.path("go"), "").unwrap();
    await_state(&pool, &id, "done");
    let again = send(&pool, "web", "a");
    await_state(&pool, &again, "done");
    assert_eq!(fs::read_to_string(pool.path("began")).unwrap(), format!("{id}\n{again}\n"), "each once");
    assert_eq!(worker(&pool, "w")["starts"], 1);
}

#[test]
fn c15_what_a_killed_host_had_in_work_waits_until_its_handlers_are_proved_gone() {
    let pool = pool("[queue]\nretry_backoff = '0s'\n");
    pool.ok(&held_handler(&pool));
    let id = send(&pool, "web", "a");
    pool.await_file("began", |text| !text.is_empty());
    let host = u32::try_from(worker(&pool, "w")["pid"].as_u64().unwrap()).unwrap();
    let handler = crate::harness::descendants(host);
    assert!(!handler.is_empty());
    send_signal(host, nix::sys::signal::Signal::SIGKILL);
    wait_until("another host has it", PATIENCE, || {
        let again = fs::read_to_string(pool.path("began")).unwrap().lines().count() == 2;
        assert!(!again || handler.iter().all(|pid| gone(*pid)), "two handlers at once");
        again
    });
    fs::write(pool.path("go"), "").unwrap();
    await_state(&pool, &id, "done");
    assert_eq!(shown(&pool, &id)["attempts"], 2);
}

#[test]
fn the_host_of_a_worker_is_left_to_the_commands_of_workers() {
    let pool = pool("[workers.w]\ncommand = ['true']\nkinds = ['a']\n");
    let changes: [&[&str]; 9] = [
        &["rm", "@w"],
        &["rm", "@w", "--purge", "--force"],
        &["rm", "@w", "--keep-tmux"],
        &["rename", "@w", "x"],
        &["park", "@w"],
        &["drain", "@w"],
        &["unpin", "@w"],
        &["label", "@w", "a=b"],
        &["update", "@w", "--restart", "no"],
    ];
    for change in changes {
        let refused = pool.ctl(change).expect(5).stderr;
        assert!(refused.contains("`poolctl worker stop w`"), "{change:?}: {refused}");
    }
    let id = send(&pool, "web", "a");
    await_state(&pool, &id, "done");
}

#[test]
fn a_worker_that_its_user_stops_has_not_failed_and_one_that_the_pool_pauses_goes_on() {
    let pool = pool("[queue]\nbreaker_failures = 1\n[reaper]\ngrace = '200ms'\n");
    pool.ok(&held_handler(&pool));
    let id = send(&pool, "web", "a");
    let began = |count: usize| {
        pool.await_file("began", |text| text.iter().filter(|byte| **byte == b'\n').count() == count)
    };
    let waits = |pool: &Pool| {
        let shown = shown(pool, &id);
        assert_eq!((&shown["state"], &shown["attempts"]), (&json!("queued"), &json!(0)), "{shown}");
        assert_eq!(events(pool, &["breaker_opened"]).len(), 0);
    };
    began(1);
    assert_eq!(pool.json(&["queue", "show", "web", &id])["claim"]["pid"], worker(&pool, "w")["pid"]);
    let text = pool.ctl(&["queue", "show", "web", &id]).expect(0).stdout;
    assert!(text.contains(" of @w, pid "), "{text}");
    pool.ok(&["worker", "stop", "w"]);
    waits(&pool);
    assert_eq!(worker(&pool, "w")["queued"], 1);
    pool.ok(&["worker", "start", "w"]);
    began(2);
    // Parks the host as `down --stop-sessions` does.
    pool.ok(&["park", "--force", "@w"]);
    waits(&pool);
    pool.restart_poold();
    fs::write(pool.path("go"), "").unwrap();
    await_state(&pool, &id, "done");
    assert_eq!(shown(&pool, &id)["attempts"], 1);
}

#[test]
fn c15_a_handler_that_runs_for_too_long_is_ended_and_a_fallback_gets_the_message() {
    let config = "[workers.slow]\ncommand = ['sleep', '1000']\nkinds = ['a']\ntimeout = '200ms'\n\
                  fallback = ['quick']\nfallback_after = 1\n\
                  [workers.quick]\ncommand = ['true']\nsessions = 'pool'\n[queue]\nretry_backoff = '0s'\n";
    let pool = pool(config);
    let id = send(&pool, "web", "a");
    await_state(&pool, &id, "done");
    let done = shown(&pool, &id);
    assert_eq!(done["attempts"], 2, "{done}");
    assert!(done["history"].to_string().contains("ran for longer than 200ms"), "{done}");
}

#[test]
fn a_message_that_a_handler_gives_up_goes_to_no_fallback_and_holds_nothing_back() {
    let config = "[workers.picky]\ncommand = ['sh', '-c', 'grep -q good || exit 65']\nkinds = ['a']\n\
                  fallback = ['rest']\nfallback_after = 1\n\
                  [workers.rest]\ncommand = ['true']\nsessions = 'pool'\n[queue]\nbreaker_failures = 1\n";
    let pool = pool(config);
    let ids = ["bad", "good"].map(|text| pool.ok(&["send", "web", "--kind", "a", text]));
    await_state(&pool, &ids[1], "done");
    let dead = shown(&pool, &ids[0]);
    assert_eq!((&dead["state"], &dead["reason"]), (&json!("dead"), &json!("exit 65")), "{dead}");
    assert_eq!((&worker(&pool, "rest")["starts"], events(&pool, &["breaker_opened"]).len()), (&json!(0), 0));
    assert_eq!(worker(&pool, "picky")["failures"], 0);
}

#[test]
fn one_worker_serves_several_sessions_in_turn_and_ends_when_it_is_idle() {
    let pool = pool("");
    session(&pool, "api");
    pool.ok(&["label", "api", "team=x"]);
    for session in ["web", "api"] {
        for _ in 0..3 {
            send(&pool, session, "a");
        }
    }
    let sessions: Vec<String> =
        ["web", "api"].iter().map(|name| pool.show(name)["id"].as_str().unwrap().to_owned()).collect();
    let script = "echo $POOL_SESSION";
    let work = |scope: &[&str]| {
        let rest = ["--idle-end", "100ms", "--", "sh", "-c", script];
        pool.ctl(&[&["work"], scope, &rest[..]].concat()).expect(0).text().to_owned()
    };
    let worked = work(&["web", "api"]);
    let (first, second) = (sessions[0].as_str(), sessions[1].as_str());
    assert_eq!(worked.lines().collect::<Vec<_>>(), [first, second].repeat(3), "each in turn");
    send(&pool, "web", "a");
    send(&pool, "api", "a");
    assert_eq!(work(&["--label", "team=x"]), second);
    assert_eq!(work(&["--all"]), first);
    pool.ctl(&["work", "web", "--host", "--", "true"]).expect(2);
    pool.ctl(&["work", "nothing", "--idle-end", "1s", "--", "true"]).expect(3);
}

#[test]
fn a_worker_runs_within_the_environment_the_directory_and_the_limits_of_its_section() {
    let pool = Pool::bare("");
    let dir = pool.path("work").canonicalize().unwrap();
    // The first attempt of a `hog` takes more memory than its worker may have.
    let script = "if [ $POOL_MESSAGE_KIND$POOL_MESSAGE_ATTEMPT = hog1 ]; then \
                  (head -c 90000000 /dev/zero; exec sleep 1000) | tail -c 90000000; fi; echo $A $(pwd) $(ulimit -n)";
    let dir = dir.to_str().unwrap();
    pool.configure(&format!(
        "[pool]\ncgroup = 'off'\n[reaper]\ngrace = '200ms'\n[restart]\nbackoff = '20ms'\n\
         [queue]\nretry_backoff = '10ms'\n[workers.w]\ncommand = ['sh', '-c', '''{script}''']\n\
         env = {{ A = 'b' }}\ncwd = '{dir}'\nlimits = 'mem=64M,nofile=99'\nresult = true\n"
    ));
    pool.start_all();
    let other = session(&pool, "web");
    for (kind, attempts) in [("calm", 1), ("hog", 2)] {
        let id = send(&pool, "web", kind);
        await_state(&pool, &id, "done");
        let done = shown(&pool, &id);
        assert_eq!((&done["result"], &done["attempts"]), (&format!("b {dir} 99\n").into(), &attempts.into()));
    }
    let exceeded = events(&pool, &["limit_exceeded"]);
    let host = &worker(&pool, "w")["session"];
    assert_eq!(exceeded.len(), 1, "{exceeded:#?}");
    assert_eq!((&exceeded[0]["session"], &exceeded[0]["limit"]), (host, &"memory".into()));
    let shown = pool.show(&other);
    assert_eq!((&shown["lifecycle"], &shown["incarnations"]), (&"live".into(), &1.into()), "{shown}");
}
