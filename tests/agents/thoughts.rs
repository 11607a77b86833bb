//! Thoughts published about a session, the colours of its repository, the last output, and its first prompt.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::harness::{Output, PATIENCE, Pool, Program, Talk, eventually, wait_until};

#[track_caller]
fn set(pool: &Pool, session: &str, words: &[&str]) -> Output {
    let args: Vec<&str> =
        ["--timeout", "30s", "thought", "set", session].into_iter().chain(words.iter().copied()).collect();
    pool.ctl(&args).expect(0)
}

#[track_caller]
fn thought(pool: &Pool, session: &str) -> Value {
    pool.json(&["thought", "get", session])
}

fn published(pool: &Pool, session: &str) -> Vec<Value> {
    pool.lines(&["events", "--session", session, "--kind", "thought_published"])
}

/// Every file below a directory, with size, mode and times of last change of content and of metadata.
fn everything(dir: &Path) -> BTreeMap<std::path::PathBuf, (u64, u32, i64, i64)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let about = entry.metadata().unwrap();
        if about.is_dir() {
            found.extend(everything(&entry.path()));
        }
        found.insert(entry.path(), (about.len(), about.mode(), about.mtime_nsec(), about.ctime_nsec()));
    }
    found
}

#[test]
fn w22_w36_w38_all_fields_of_a_thought_are_in_get_show_and_ls() {
    let pool = Pool::new();
    let id = pool.ok(&["new", "web", "--", "cat"]);
    assert_eq!((thought(&pool, &id), pool.show(&id)["thought"].clone()), (Value::Null, Value::Null));
    let words = "--state active --source llm --rest-state drowsy --tokens 12 --context-limit 192000 --objective obj-1 \
        --objective-changed-at 2026-03-08T14:00:01Z --commit-candidate --stream run-a --seq 3 --at 2026-03-08T14:00:05Z reading logs";
    set(&pool, "web", &words.split_whitespace().collect::<Vec<_>>());
    let wanted = json!({
        "text": "reading logs", "state": "active", "source": "llm", "rest_state": "drowsy", "token_count": 12,
        "context_limit": 192_000, "objective": "obj-1", "objective_changed_at": "2026-03-08T14:00:01.000Z",
        "commit_candidate": true, "updated_at": "2026-03-08T14:00:05.000Z", "stream": "run-a", "seq": 3
    });
    assert_eq!(thought(&pool, &id), wanted);
    assert_eq!(pool.show(&id)["thought"], wanted);
    let listed = pool.lines(&["ls"]);
    assert_eq!(listed[0]["thought"], wanted, "by ls as well");
    assert_eq!((&listed[0]["tokens"], &listed[0]["context_limit"]), (&json!(12), &json!(192_000)));
    let events = published(&pool, &id);
    assert_eq!((events.len(), &events[0]["text"]), (1, &json!("reading logs")));
    assert!(pool.ok(&["show", "web"]).contains("reading logs"));
    // A session that has ended keeps its thought, and takes another.
    pool.ok(&["kill", &id]);
    assert_eq!(pool.lines(&["ls", "--all"])[0]["thought"], wanted);
    set(&pool, &id, &["it is over"]);
    assert_eq!(thought(&pool, &id)["text"], "it is over");
    pool.ctl(&["thought", "get", "nobody"]).expect(3);
    pool.ctl(&["thought", "set", "nobody", "x"]).expect(3);
}

#[test]
fn w24_w27_w37_what_is_not_said_is_carried_forward() {
    let pool = Pool::new();
    let id = pool.ok(&["new", "web", "--", "cat"]);
    let say = |words: &[&str]| {
        set(&pool, &id, words);
        thought(&pool, &id)
    };
    // Nothing was published yet.
    let first = say(&["--tokens", "5"]);
    assert_eq!((&first["state"], &first["source"]), (&json!("holding"), &json!("carry_forward")));
    assert_eq!((&first["text"], &first["objective_changed_at"]), (&Value::Null, &Value::Null));
    let second = say(&["--state", "active", "--objective", "obj-1", "--commit-candidate", "first thought"]);
    assert_eq!((&second["token_count"], &second["source"]), (&json!(5), &json!("llm")));
    assert_eq!(second["objective_changed_at"], Value::Null, "the first objective is no change");
    // The time of an objective's change stays until the next change.
    let third = say(&["--objective", "obj-2", "--objective-changed-at", "2026-03-08T14:00:05Z"]);
    assert_eq!(third["objective_changed_at"], "2026-03-08T14:00:05.000Z");
    assert_eq!((&third["text"], &third["source"]), (&json!("first thought"), &json!("carry_forward")));
    let fourth = say(&["--objective", "obj-2", "--tokens", "0", "--context-limit", "0", "later thought"]);
    assert_eq!(fourth["objective_changed_at"], "2026-03-08T14:00:05.000Z");
    assert_eq!(
        (&fourth["token_count"], &fourth["commit_candidate"]),
        (&json!(5), &json!(true)),
        "0 is not known"
    );
    assert_eq!((&fourth["state"], &fourth["text"]), (&json!("active"), &json!("later thought")));
    let fifth = say(&["--objective", "obj-3"]);
    assert!(fifth["objective_changed_at"].as_str().unwrap() > "2026-03-08T14:00:05.000Z", "{fifth}");
    // A fixed text for a sleeping agent is no thought; neither are blanks.
    let sleeps = say(&["--source", "static_sleeping", "--state", "sleeping", "zzz"]);
    let kept = (&sleeps["text"], &sleeps["source"], &sleeps["state"]);
    assert_eq!(kept, (&json!("later thought"), &json!("carry_forward"), &json!("sleeping")));
    assert_eq!(say(&["--commit-candidate=false", " "])["text"], "later thought");
    assert_eq!(thought(&pool, &id)["commit_candidate"], false);
    // Also over restarts of the session and of `poold`.
    pool.ok(&["restart", &id]);
    let last = thought(&pool, &id);
    pool.restart_poold();
    assert_eq!(thought(&pool, &id), last);
    assert_eq!(last["text"], "later thought");
}

#[test]
fn w28_what_was_acknowledged_is_there_after_a_kill() {
    let pool = Pool::new();
    let id = pool.ok(&["new", "web", "--", "cat"]);
    for n in 1..=5 {
        let (text, seq) = (format!("thought {n}"), n.to_string());
        set(&pool, &id, &["--stream", "run", "--seq", &seq, &text]);
        pool.restart_poold();
        let kept = thought(&pool, &id);
        assert_eq!((&kept["text"], &kept["seq"]), (&json!(text), &json!(n)));
    }
    assert_eq!(published(&pool, &id).len(), 5, "each once in the journal");
    // A publication that changes nothing is no event.
    for _ in 0..3 {
        set(&pool, &id, &["--at", "2026-03-08T14:00:05Z", "the same"]);
    }
    assert_eq!(published(&pool, &id).len(), 6);
    // A repeated operation id is the same operation.
    for _ in 0..3 {
        set(&pool, &id, &["--op-id", "once", "by operation"]);
    }
    assert_eq!(published(&pool, &id).len(), 7);
}

#[test]
fn w27_w30_within_a_stream_only_what_is_newer_counts_and_a_new_stream_always_does() {
    let pool = Pool::new();
    let id = pool.ok(&["new", "web", "--", "cat"]);
    let say = |stream: &str, seq: &str, text: &str| {
        let told = set(&pool, &id, &["--stream", stream, "--seq", seq, text]);
        let now = thought(&pool, &id);
        // A repeat succeeds like the first time; one that comes too late, or says something else, is told so.
        let repeat =
            now["stream"] == stream && now["seq"] == seq.parse::<u64>().unwrap() && now["text"] == text;
        assert_eq!(told.stderr.is_empty(), repeat, "what changed nothing says so: {told:?}");
        now["text"].as_str().unwrap().to_owned()
    };
    assert_eq!(say("a", "7", "a7"), "a7");
    assert_eq!(say("a", "7", "a7 again"), "a7");
    assert_eq!(say("a", "6", "a6"), "a7");
    pool.restart_poold();
    assert_eq!(say("a", "3", "a3"), "a7", "over a restart too");
    assert_eq!(say("a", "9", "a9"), "a9");
    // Another run of a publisher starts at 1 and counts, wherever the last one stopped.
    assert_eq!(say("b", "1", "b1"), "b1");
    assert_eq!(say("b", "1", "b1 again"), "b1");
    assert_eq!(say("b", "2", "b2"), "b2");
    assert_eq!(say("a", "8", "a8"), "b2", "the last stream is not forgotten");
    // A thought outside of any stream counts, and leaves the stream's position.
    set(&pool, &id, &["by hand"]);
    assert_eq!(thought(&pool, &id)["text"], "by hand");
    assert_eq!(say("b", "2", "b2 again"), "by hand");
    assert_eq!(say("b", "3", "b3"), "b3");
    pool.ctl(&["thought", "set", &id, "--stream", "c", "--seq", "0", "x"]).expect(2);
    pool.ctl(&["thought", "set", &id, "--stream", "c", "x"]).expect(2);
}

#[test]
fn w22_w23_a_thought_for_a_pane_is_its_sessions_and_for_no_other_pane_anybodys() {
    let pool = Pool::new();
    // A name of digits is a name.
    let (web, two) = (pool.ok(&["new", "web", "--", "cat"]), pool.ok(&["new", "2", "--", "cat"]));
    let pane = |id: &str| pool.show(id)["tmux"]["pane_id"].as_str().unwrap().to_owned();
    set(&pool, &pane(&web), &["by pane"]);
    set(&pool, &format!("tmux:2:0.0:{}", pane(&two)), &["by key"]);
    assert_eq!(
        (&thought(&pool, &web)["text"], &thought(&pool, &two)["text"]),
        (&json!("by pane"), &json!("by key"))
    );
    // A pane of another session than the one named: the publisher's list is outdated or of another server.
    let refused = pool.ctl(&["thought", "set", &format!("tmux:web:0.0:{}", pane(&two)), "x"]).expect(4);
    let why = format!("the pane {} is in 2, and not in web", pane(&two));
    assert!(refused.stderr.contains(&why), "{}", refused.stderr);
    pool.ctl(&["thought", "set", &format!("web:{}", pane(&two)), "x"]).expect(3);
    // A user's own pane in the same session does not belong to the pool.
    let other = pool.tmux_text(&["split-window", "-d", "-t", "=web:", "-P", "-F", "#{pane_id}", "cat"]);
    pool.ctl(&["thought", "set", &other, "x"]).expect(3);
    pool.ctl(&["thought", "set", &format!("tmux:web:0.1:{other}"), "x"]).expect(3);
    pool.ctl(&["thought", "set", "%999", "x"]).expect(3);
    pool.tmux_text(&["kill-pane", "-t", &other]);
    // A pane of a session that has ended has no thought either.
    let gone = pane(&two);
    pool.ok(&["kill", &two]);
    pool.ctl(&["thought", "set", &gone, "x"]).expect(3);
    assert_eq!(
        (&thought(&pool, &web)["text"], &thought(&pool, &two)["text"]),
        (&json!("by pane"), &json!("by key"))
    );
}

#[test]
fn w22_the_list_is_answered_while_tmux_is_not() {
    let pool = Pool::new();
    let id = pool.ok(&["new", "web", "--", "cat"]);
    set(&pool, &id, &["Reading"]);
    let server = pool.tmux_pid().unwrap();
    crate::harness::send_signal(server, Signal::SIGSTOP);
    let listed = pool.ctl(&["--json", "ls"]);
    let shown = pool.ctl(&["--json", "show", "web"]);
    crate::harness::send_signal(server, Signal::SIGCONT);
    assert_eq!(listed.expect(0).json_lines()[0]["thought"]["text"], "Reading");
    assert_eq!(shown.expect(0).json()["thought"]["text"], "Reading");
}

#[test]
fn w24_what_is_idle_sleeps_only_where_a_thought_says_so() {
    let pool = Pool::with("[pool]\nidle_quiet = '300ms'\n[reaper]\ngrace = '500ms'\n");
    let id = pool.ok(&["new", "web", "--", "cat"]);
    pool.ok(&["wait", &id, "--for", "idle"]);
    let rest = || {
        let (shown, listed) = (pool.show(&id), pool.lines(&["ls"]).remove(0));
        assert_eq!(shown["rest_state"], listed["rest_state"]);
        shown["rest_state"].as_str().unwrap().to_owned()
    };
    assert!(["active", "drowsy"].contains(&rest().as_str()), "only a thought says that it sleeps");
    let last = pool.show(&id)["last_activity_at"].clone();
    set(&pool, &id, &["--state", "sleeping", "Need your approval to continue."]);
    assert_eq!(rest(), "sleeping");
    set(&pool, &id, &["--rest-state", "deep_sleep"]);
    assert_eq!(rest(), "deep_sleep");
    set(&pool, &id, &["--state", "holding"]);
    assert_eq!(rest(), "drowsy");
    assert_eq!(pool.show(&id)["last_activity_at"], last, "a thought is no activity");
    assert_eq!(thought(&pool, &id)["text"], "Need your approval to continue.");
    // A busy session does not rest, whatever its thought says.
    set(&pool, &id, &["--state", "sleeping"]);
    let busy = pool.script("busy", "while :; do echo x; sleep 0.05; done");
    set(&pool, &busy, &["--state", "sleeping", "zzz"]);
    let works = || Some(pool.show(&busy)).filter(|shown| shown["activity"] == "busy");
    assert_eq!(eventually("it is seen at work", PATIENCE, works)["rest_state"], "active");
    // A session that has ended is only in the list of all.
    pool.ok(&["kill", &id]);
    assert_eq!(pool.show(&id)["rest_state"], "deep_sleep");
    let names = |flags: &[&str]| {
        let listed = pool.lines(&[&["ls"], flags].concat());
        listed.iter().map(|session| session["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((names(&[]), names(&["--all"])), (vec![busy.clone()], vec![id, busy]));
}

#[test]
fn w29_who_was_answered_before_a_stop_has_its_thought_kept_and_who_waits_for_thoughts_misses_none() {
    let pool = Pool::new();
    let ids = ["a", "b", "c"].map(|name| pool.ok(&["new", name, "--", "cat"]));
    let mut follow = pool.poolctl();
    follow.args(["--json", "--timeout", "300s", "events", "--follow", "--kind", "thought_published"]);
    let follower = Talk::start(&mut follow);
    wait_until("it follows", PATIENCE, || !follower.lines().is_empty());
    // Publishes until refused; returns the last sequence number acknowledged.
    let publish = |id: &str| {
        let said = |seq: u64| {
            let (text, seq) = (format!("thought {seq}"), seq.to_string());
            let words = ["--timeout", "10s", "thought", "set", id, "--stream", "run", "--seq", &seq, &text];
            pool.ctl(&words).code == 0
        };
        (1..).take_while(|seq| said(*seq)).last().unwrap_or_default()
    };
    let answered: Vec<u64> = std::thread::scope(|scope| {
        let publishers = ids.each_ref().map(|id| scope.spawn(|| publish(id)));
        let many = || ids.iter().all(|id| published(&pool, id).len() >= 5);
        wait_until("each has said something", PATIENCE, many);
        pool.end(Program::Poold, Signal::SIGTERM);
        publishers.map(|publisher| publisher.join().unwrap()).to_vec()
    });
    pool.start_poold();
    let texts = |id: &str, events: &[Value]| -> Vec<String> {
        let own = events.iter().filter(|event| event["session"] == id);
        own.map(|event| event["text"].as_str().unwrap().to_owned()).collect()
    };
    let heard = |id: &str| {
        let lines = follower.lines();
        let events = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let new = events.filter(|event| event["kind"] == "thought_published" && event["snapshot"] != true);
        texts(id, &new.collect::<Vec<_>>())
    };
    for (id, answered) in ids.iter().zip(answered) {
        let kept = thought(&pool, id);
        let last = kept["seq"].as_u64().unwrap();
        assert!(last == answered || last == answered + 1, "{answered} were answered: {kept}");
        let mut said: Vec<String> = (1..=last).map(|seq| format!("thought {seq}")).collect();
        assert_eq!(kept["text"], said.last().unwrap().as_str());
        assert_eq!(texts(id, &published(&pool, id)), said, "each once, in order");
        wait_until(&format!("the follower has {said:?}"), PATIENCE, || heard(id) == said);
        // Each thought arrives by itself: no later event is needed.
        for n in 0..3 {
            said.push(format!("alone {n}"));
            set(&pool, id, &[said.last().unwrap()]);
            wait_until(&format!("the follower has {said:?}"), PATIENCE, || heard(id) == said);
        }
    }
}

#[test]
fn w30_where_streams_stand_is_said_and_kept_while_tmux_does_not_answer() {
    let pool = Pool::new();
    let ids = ["a", "b", "c", "d"].map(|name| pool.ok(&["new", name, "--", "cat"]));
    let server = pool.tmux_pid().unwrap();
    crate::harness::send_signal(server, Signal::SIGSTOP);
    let publish = |id: &str, seqs: std::ops::RangeInclusive<u64>| {
        for seq in seqs {
            let (stream, text, seq) = (format!("of {id}"), format!("thought {seq}"), seq.to_string());
            set(&pool, id, &["--stream", &stream, "--seq", &seq, &text]);
        }
    };
    std::thread::scope(|scope| ids.iter().for_each(|id| drop(scope.spawn(|| publish(id, 1..=5)))));
    // The next `poold` knows it without having seen the server.
    pool.restart_poold();
    std::thread::scope(|scope| ids.iter().for_each(|id| drop(scope.spawn(|| publish(id, 4..=6)))));
    let listed = pool.lines(&["ls"]);
    crate::harness::send_signal(server, Signal::SIGCONT);
    let stand = |session: &Value| {
        let thought = &session["thought"];
        json!([session["id"], thought["stream"], thought["seq"], thought["text"]])
    };
    let wanted = ids.each_ref().map(|id| json!([id, format!("of {id}"), 6, "thought 6"]));
    assert_eq!(listed.iter().map(stand).collect::<Vec<_>>(), wanted);
    assert_eq!(published(&pool, &ids[0]).len(), 6, "what was there already is no event");
}

#[test]
fn w36_thoughts_go_with_their_session_and_no_namesake_has_them() {
    let pool = Pool::new();
    let id = pool.ok(&["new", "web", "--", "cat"]);
    set(&pool, "web", &["--stream", "a", "--seq", "9", "the old one's"]);
    pool.ok(&["kill", "web"]);
    pool.ok(&["rm", "web"]);
    pool.ctl(&["thought", "get", &id]).expect(3);
    let next = pool.ok(&["new", "web", "--", "cat"]);
    assert_ne!(next, id);
    assert_eq!(thought(&pool, "web"), Value::Null);
    set(&pool, "web", &["--stream", "a", "--seq", "1", "the new one's"]);
    assert_eq!(thought(&pool, "web")["text"], "the new one's");
    pool.restart_poold();
    let rows = pool.lines(&["export"]);
    let kept = rows.iter().filter(|row| row["table"] == "thoughts");
    assert_eq!(kept.count(), 1, "none of the one that is gone");
    pool.ctl(&["thought", "get", &id]).expect(3);
}

#[test]
fn w26_the_replay_is_the_last_500_characters_whatever_they_are_made_of() {
    let pool = Pool::new();
    let script = "printf '\\033[31m'; i=0; while [ $i -lt 700 ]; do printf 漢; i=$((i+1)); done; printf '\\033[0m\\033]0;x\\007'; printf é🦀; exec cat";
    let id = pool.script("web", script);
    let mut replay = String::new();
    wait_until("all of it is there", PATIENCE, || {
        replay = pool.json(&["show", &id])["replay"].as_str().unwrap_or_default().to_owned();
        replay.ends_with("é🦀")
    });
    assert_eq!(replay, format!("{}é🦀", "漢".repeat(498)));
    assert_eq!(pool.lines(&["ls"])[0]["replay"], Value::Null, "of one that is asked for alone");
    // Sessions that have ended, and sessions that never wrote.
    pool.ok(&["kill", &id]);
    assert!(pool.json(&["show", &id])["replay"].as_str().unwrap().starts_with('漢'));
    let silent = pool.ok(&["new", "silent", "--", "sleep", "1000"]);
    assert_eq!(pool.json(&["show", &silent])["replay"], "");
}

#[test]
fn w25_the_colours_of_a_repository_are_its_own_or_made_of_its_path_and_nothing_is_written() {
    let pool = Pool::new();
    let (own, plain) = (pool.path("work/own"), pool.path("work/plain"));
    for dir in [own.join(".swimmers"), own.join("deep/er"), plain.join(".git"), plain.join("sub")] {
        fs::create_dir_all(dir).unwrap();
    }
    let colours = r##"{"palette":{"body":"#B89875","outline":"#3d2f24","accent":"#1D1914","shirt":"#aa9370"},"sprite":"jelly"}"##;
    fs::write(own.join(".swimmers/colors.json"), colours).unwrap();
    let before = everything(&pool.path("work"));
    let theme = |name: &str, dir: &Path| {
        pool.ok(&["new", name, "--cwd", dir.to_str().unwrap(), "--", "cat"]);
        // The current directory is known a moment after the start.
        let seen = || pool.show(name)["current_directory"] == dir.to_str().unwrap();
        wait_until("it is seen where it works", PATIENCE, seen);
        pool.show(name)["theme"].clone()
    };
    let mine = theme("own", &own.join("deep/er"));
    assert_eq!(
        (&mine["body"], &mine["accent"], &mine["sprite"]),
        (&json!("#b89875"), &json!("#1d1914"), &json!("jelly"))
    );
    assert_eq!((&mine["own"], &mine["of"]), (&json!(true), &json!(own.to_str().unwrap())));
    let made = theme("plain", &plain);
    assert_eq!(made["own"], false);
    assert_eq!(theme("sub", &plain.join("sub")), made, "one repository, one set of colours");
    assert_ne!(theme("elsewhere", &pool.path("home"))["body"], made["body"]);
    pool.restart_poold();
    assert_eq!(pool.show("plain")["theme"], made, "always the same");
    assert_eq!(everything(&pool.path("work")), before);
    // Broken, strange or missing files count as absent.
    for (n, strange) in ["{", "[]", "{\"palette\":{\"body\":\"red\"}}"].iter().enumerate() {
        fs::write(own.join(".swimmers/colors.json"), strange).unwrap();
        assert_eq!(pool.show("own")["theme"]["own"], false, "{n}");
    }
    fs::remove_file(own.join(".swimmers/colors.json")).unwrap();
    fs::create_dir(own.join(".swimmers/colors.json")).unwrap();
    assert_eq!(pool.show("own")["theme"]["own"], false);
    fs::remove_dir_all(&own).unwrap();
    assert_eq!(pool.lifecycle("own"), "live");
}

#[test]
fn w16_w17_w18_what_a_new_session_is_told_arrives_once_and_as_it_is() {
    let pool = Pool::new();
    let out = pool.path("out");
    let reader = format!("stty raw -echo; exec cat >>{}", out.display());
    let prompt = "fix Bob's tmux startup\n$(touch made) `id` \"quoted\" #{pid};";
    let made = pool.json(&["new", "web", "--prompt", prompt, "--op-id", "one", "--", "sh", "-c", &reader]);
    // The repeat returns the same session, and its prompt is not typed again.
    let again = pool.json(&["new", "web", "--prompt", prompt, "--op-id", "one", "--", "sh", "-c", &reader]);
    assert_eq!(made["id"], again["id"]);
    pool.ok(&["wait", "web", "--for", "queue-empty"]);
    let arrived = pool.await_file("out", |bytes| bytes.ends_with(b"\r"));
    assert_eq!(String::from_utf8(arrived).unwrap(), format!("{prompt}\r"));
    assert_eq!(
        (&pool.show("web")["total_requests"], pool.lines(&["queue", "ls", "web"]).len()),
        (&json!(1), 1)
    );
    assert!(!pool.path("work/made").exists());
    // No part of it is in a command line or in the record's command.
    assert!(!pool.show("web")["command"].to_string().contains("Bob"));
    // A blank prompt is refused, and no session is created.
    pool.ctl(&["new", "blank", "--prompt", " \n ", "--agent", "claude"]).expect(2);
    pool.ctl(&["show", "blank"]).expect(3);
    let none = pool.json(&["new", "none", "--", "cat"]);
    assert_eq!(none["queue"]["queued"], 0);
}
