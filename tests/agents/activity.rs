//! Activity of agents, from every source of evidence, and its delivery to those who wait for it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Output, PATIENCE, Pool, Talk, eventually, wait_until};

/// A shell that marks its prompts (OSC 133), as shells do that are set up for it; an agent kind whose
/// start-up dialog is known.
fn config() -> String {
    let screens = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/agents/tests/screens");
    format!(
        r#"
[pool]
idle_quiet = "1s"
[reaper]
grace = "200ms"
[agents.marked]
command = "sh"
args = ["-c", '''
while printf '\033]133;A\007$ \033]133;B\007'; read -r line; do
  printf '\033]133;C\007'
  eval "$line"
  printf '\033]133;D;%s\007' $?
done
''']
confirm = "prompt"
[agents.trusting]
adapter = "claude"
hooks = false
command = "sh"
args = ["-c", '''
stty raw -echo opost onlcr
cat {0}/$DIALOG.ansi
while [ ! -e answered ]; do sleep 0.05; done
printf '\033[?2004h\033[H\033[2J'
cat {0}/$IDLE.ansi
printf '\033[3H'
exec cat >out
''']
[agents.trusting-codex]
adapter = "codex"
hooks = false
command = "sh"
args = ["-c", '''
stty raw -echo opost onlcr
cat {0}/codex-trust.ansi
while [ ! -e answered ]; do sleep 0.05; done
printf '\033[?2004h\033[H\033[2J'
cat {0}/codex-idle.ansi
printf "\033[$(grep -n '›' {0}/codex-idle.ansi | tail -n 1 | cut -d: -f1)H"
exec cat >out
''']
"#,
        screens.display()
    )
}

fn pool() -> Pool {
    Pool::with(&config())
}

/// Waits until the session has this activity from this source; returns its document.
#[track_caller]
fn await_activity(pool: &Pool, session: &str, state: &str, source: &str) -> Value {
    let mut last = Value::Null;
    eventually(&format!("{session} is {state} by {source}"), PATIENCE, || {
        last = pool.show(session);
        let is = last["activity"] == state && last["activity_source"] == source;
        is.then(|| last.clone())
    })
}

/// State and source of each of a session's activity events.
fn activities(pool: &Pool, session: &str) -> Vec<(String, String)> {
    let events = pool.lines(&["events", "--session", session, "--kind", "activity_changed"]);
    let word = |event: &Value, key: &str| event[key].as_str().unwrap().to_owned();
    events.iter().map(|event| (word(event, "state"), word(event, "source"))).collect()
}

/// A session whose program reports its own activity; the test makes the reports on its behalf.
struct Reporter<'a> {
    pool: &'a Pool,
    id: String,
    place: Vec<(String, String)>,
}

impl<'a> Reporter<'a> {
    #[track_caller]
    fn new(pool: &'a Pool, name: &str) -> Self {
        let place = pool.path(format!("{name}-place"));
        let script = format!("env | grep ^POOL_ >{0}.new; mv {0}.new {0}; exec cat", place.display());
        let id = pool.script(name, &script);
        let text = String::from_utf8(pool.await_file(&place, |_| true)).unwrap();
        let pair = |line: &str| line.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        Self { pool, id, place: text.lines().filter_map(pair).collect() }
    }

    #[track_caller]
    fn says(&self, event: &str, text: &str) {
        let mut command = self.pool.poolctl();
        command.args(["hook", "generic"]).envs(self.place.iter().map(|(key, value)| (key, value)));
        let told = Output::of(&mut command, json!({"event": event, "text": text}).to_string().as_bytes());
        assert_eq!((told.code, told.stdout.as_str()), (0, ""), "{told:?}");
    }

    /// Runs `wait`, expects the exit code `code`.
    #[track_caller]
    fn wait(&self, wanted: &[&str], code: i32) -> Value {
        let flags = wanted.iter().flat_map(|wanted| ["--for", wanted]);
        let args: Vec<&str> =
            ["--json", "--timeout", "30s", "wait", &self.id].into_iter().chain(flags).collect();
        self.pool.ctl(&args).expect(code).json()
    }
}

#[test]
fn a_shell_that_marks_its_prompts_confirms_and_its_terminal_tells_what_it_does() {
    let pool = pool();
    let id = pool.ok(&["new", "sh", "--agent", "marked", "--cwd", "."]);
    let shown = await_activity(&pool, &id, "idle", "terminal");
    assert_eq!((&shown["confirm"], &shown["status"]), (&json!("prompt"), &json!("idle")), "{shown}");
    // First a command typed by hand, then a prompt.
    let by_hand = "while [ ! -e go ]; do sleep 0.05; done";
    pool.tmux_text(&["send-keys", "-t", "=sh:", "-l", by_hand]);
    pool.ok(&["keys", &id, "Enter"]);
    let busy = await_activity(&pool, &id, "busy", "terminal");
    assert_eq!((&busy["status"], &busy["rest_state"]), (&json!("active"), &json!("active")));
    let first = pool.ok(&["send", &id, "echo done-$((6*7)) >said; while [ ! -e went ]; do sleep 0.05; done"]);
    let waits = || {
        let listed = pool.json(&["queue", "show", &id, &first]);
        (listed["state"] == "queued" && listed["reason"] == "its agent is busy (terminal)").then_some(())
    };
    eventually("it waits for the prompt", PATIENCE, waits);
    assert_eq!(pool.show(&id)["waits"], "its agent is busy (terminal)");
    fs::write(pool.path("work/go"), "").unwrap();
    pool.await_file("work/said", |bytes| bytes == b"done-42\n");
    let accepted = || pool.json(&["queue", "show", &id, &first])["state"] == "accepted";
    wait_until("its prompt went", PATIENCE, accepted);
    await_activity(&pool, &id, "busy", "terminal");
    fs::write(pool.path("work/went"), "").unwrap();
    pool.ok(&["wait", &id, "--for", &format!("message:{first}")]);
    let history = pool.json(&["queue", "show", &id, &first]);
    let states: Vec<&str> =
        history["history"].as_array().unwrap().iter().map(|step| step["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["queued", "typing", "typed", "accepted", "done"], "{history}");
    assert_eq!((&history["state"], &history["reason"]), (&json!("done"), &json!("its prompt came back")));
    assert!(history["accepted_at"].is_string());
    // The detail on the last command stays until the next one.
    pool.ok(&["send", &id, "--wait", "done", "(exit 3)"]);
    eventually("it says how its command ended", PATIENCE, || {
        (pool.show(&id)["activity_detail"] == "its last command ended with 3").then_some(())
    });
    let told = activities(&pool, &id);
    assert!(told.contains(&("busy".into(), "terminal".into())), "{told:?}");
    assert_eq!(told.last(), Some(&("idle".into(), "terminal".into())), "{told:?}");
}

#[test]
fn a_plain_shell_is_busy_while_another_program_is_in_its_foreground() {
    let pool = pool();
    let id = pool.ok(&["new", "sh", "--agent", "shell", "--cwd", "."]);
    await_activity(&pool, &id, "idle", "process");
    pool.ok(&["send", &id, "sleep 1000"]);
    let busy = await_activity(&pool, &id, "busy", "process");
    assert_eq!(busy["current_command"], "sleep");
    pool.ok(&["keys", &id, "C-c"]);
    await_activity(&pool, &id, "idle", "process");
}

#[test]
fn any_other_program_is_busy_while_it_writes_and_idle_when_it_is_silent() {
    let pool = pool();
    let quiet = pool.path("quiet");
    let script = format!("while [ ! -e {} ]; do echo x; sleep 0.1; done; exec cat", quiet.display());
    let id = pool.script("writer", &script);
    await_activity(&pool, &id, "busy", "output");
    // A program may read while it writes: its prompts do not wait.
    pool.ok(&["send", "--wait", "queued", &id, "text"]);
    fs::write(quiet, "").unwrap();
    await_activity(&pool, &id, "idle", "output");
    let events = pool.lines(&["events", "--session", &id, "--kind", "activity_changed"]);
    let idle = events.iter().rfind(|event| event["state"] == "idle").unwrap();
    assert!(idle["since"].as_str().unwrap() < idle["at"].as_str().unwrap(), "since it is silent: {idle}");
}

#[test]
fn the_bell_asks_for_a_person_and_holds_no_prompt_back() {
    let pool = pool();
    let out = pool.path("out");
    let id = pool.script("ringer", &format!("stty raw -echo; printf '\\a'; exec cat >{}", out.display()));
    let asks = await_activity(&pool, &id, "attention", "terminal");
    assert_eq!((&asks["ask"]["kind"], &asks["ask"]["text"]), (&json!("bell"), &json!("it rang the bell")));
    assert_eq!(asks["ask"]["answerable"], false);
    pool.ok(&["send", "--wait", "done", &id, "text"]);
    assert_eq!(pool.await_file(&out, |bytes| bytes.ends_with(b"\r")), b"text\r");
}

#[test]
fn a_dialog_at_the_start_is_shown_by_its_name_and_prompts_wait_until_it_is_answered() {
    let pool = pool();
    for (name, agent, dialog, idle, shows) in [
        ("trust", "trusting", "claude-trust", "claude-idle", "trust"),
        ("bypass", "trusting", "claude-bypass", "claude-idle", "bypass"),
        ("codex", "trusting-codex", "codex-trust", "codex-idle", "trust"),
    ] {
        let cwd = pool.path(name);
        fs::create_dir(&cwd).unwrap();
        let (dialog, idle) = (format!("DIALOG={dialog}"), format!("IDLE={idle}"));
        let place = ["--cwd", cwd.to_str().unwrap(), "--size", "120x41", "--env", &dialog, "--env", &idle];
        let id = pool.ok(&[&["new", name, "--agent", agent], &place[..]].concat());
        let asks = await_activity(&pool, &id, "attention", "screen");
        assert_eq!(
            (&asks["activity_detail"], &asks["ask"]["kind"]),
            (&json!(shows), &json!("dialog")),
            "{asks}"
        );
        assert_eq!((&asks["ask"]["answerable"], &asks["status"]), (&json!(false), &json!("idle")), "{asks}");
        assert!(asks["ask"]["text"].as_str().is_some_and(|text| text.len() > 20), "{asks}");
        let message = pool.ok(&["send", &id, "text"]);
        eventually("it waits for a person", PATIENCE, || {
            (pool.show(&id)["waits"] == "it waits for a person: dialog").then_some(())
        });
        pool.ctl(&["approve", &id]).expect(4);
        assert!(!cwd.join("out").exists(), "only its user answers it");
        fs::write(cwd.join("answered"), "").unwrap();
        pool.ok(&["wait", &id, "--for", &format!("message:{message}")]);
        let out = pool.await_file(cwd.join("out"), |bytes| bytes.ends_with(b"\r"));
        assert_eq!(String::from_utf8(out).unwrap(), "\x1b[200~text\x1b[201~\r");
        assert_ne!(pool.show(&id)["activity"], "attention");
    }
}

#[test]
fn what_a_program_says_of_itself_is_what_it_does_and_who_waits_for_it_hears_it() {
    let pool = pool();
    let web = Reporter::new(&pool, "web");
    // Earlier activity, busy for a moment after the start, is over.
    await_activity(&pool, &web.id, "idle", "output");
    pool.ok(&["thought", "set", &web.id, "--state", "sleeping"]);
    for (event, text, state, status) in [
        ("prompt", "do it", "busy", "active"),
        ("idle", "done", "idle", "idle"),
        ("working", "make", "busy", "active"),
        ("attention", "may I?", "attention", "idle"),
        ("error", "no more", "error", "idle"),
        ("idle", "", "idle", "idle"),
    ] {
        let mut waiter = Talk::start(pool.poolctl().args(["--json", "wait", &web.id, "--for", state]));
        web.says(event, text);
        assert_eq!(waiter.await_end(), Some(0), "{state}: {}", waiter.errors());
        let came: Value = serde_json::from_str(&waiter.lines()[0]).unwrap();
        assert_eq!((&came["came"], &came["activity"]), (&json!(state), &json!(state)), "{came}");
        // A state that holds already returns at once.
        assert_eq!(web.wait(&[state], 0)["came"], state);
        let shown = pool.show(&web.id);
        assert_eq!(
            (&shown["activity_source"], &shown["status"]),
            (&json!("hook"), &json!(status)),
            "{shown}"
        );
        // The agent rests only while it is idle; how deep, its last thought says.
        assert_eq!(shown["rest_state"], if state == "idle" { "sleeping" } else { "active" }, "{shown}");
    }
    let told = activities(&pool, &web.id);
    let told: Vec<&str> =
        told.iter().filter(|(_, source)| source == "hook").map(|(state, _)| state.as_str()).collect();
    assert_eq!(told, ["busy", "idle", "busy", "attention", "error", "idle"]);
    let events = pool.lines(&["events", "--session", &web.id, "--kind", "activity_changed"]);
    let asked = events.iter().find(|event| event["state"] == "attention").unwrap();
    assert_eq!(asked["ask"]["text"], "may I?", "{asked}");
    for key in ["seq", "at", "kind", "session", "state", "source", "since", "ask", "detail", "limited_until"]
    {
        assert!(asked.get(key).is_some(), "{key}: {asked}");
    }
}

#[test]
fn of_several_states_the_one_that_comes_has_its_exit_code() {
    let pool = pool();
    let web = Reporter::new(&pool, "web");
    let ends = ["idle", "attention", "error"];
    for (event, state, code) in [("idle", "idle", 0), ("attention", "attention", 10), ("error", "error", 11)]
    {
        web.says("prompt", "go on");
        web.wait(&["busy"], 0);
        let list = ends.join(",");
        let mut waiters = [
            Talk::start(pool.poolctl().args([
                "wait",
                &web.id,
                "--for",
                "idle",
                "--for",
                "attention",
                "--for",
                "error",
            ])),
            Talk::start(pool.poolctl().args(["wait", &web.id, "--any", "--for", &list])),
            Talk::start(pool.poolctl().args(["wait", &web.id, "--for", &list, "--for", "output:never this"])),
        ];
        web.says(event, "text");
        for waiter in &mut waiters {
            assert_eq!(waiter.await_end(), Some(code), "{state}: {}", waiter.errors());
            assert_eq!(waiter.lines(), [state]);
        }
        // Level-triggered: asked afterwards the answer is the same, and a single state returns 0.
        assert_eq!(web.wait(&ends, code)["came"], state);
        assert_eq!(web.wait(&[state], 0)["came"], state);
    }
    let late =
        pool.ctl(&["--json", "--timeout", "2s", "wait", &web.id, "--for", "idle", "--for", "busy"]).expect(6);
    assert_eq!(late.error()["code"], "timeout");
}

#[test]
fn what_cannot_come_any_more_is_not_waited_for() {
    let pool = pool();
    let web = Reporter::new(&pool, "web");
    web.says("working", "");
    web.wait(&["busy"], 0);
    let wants = |what: &str| Talk::start(pool.poolctl().args(["wait", &web.id, "--for", what]));
    let mut waiters = ["idle", "attention", "error", "output:never this"].map(wants);
    pool.ok(&["kill", &web.id]);
    for waiter in &mut waiters {
        assert_eq!(waiter.await_end(), Some(1), "{}", waiter.errors());
    }
    for what in ["idle", "busy", "attention", "error", "idle,attention"] {
        assert_eq!(
            pool.ctl(&["--json", "wait", &web.id, "--for", what]).expect(1).error()["code"],
            "failed",
            "{what}"
        );
    }
    let shown = pool.show(&web.id);
    assert_eq!((&shown["status"], &shown["rest_state"]), (&Value::Null, &json!("deep_sleep")), "{shown}");
    assert_eq!((&shown["activity"], &shown["ask"]), (&json!("unknown"), &Value::Null), "{shown}");
}

#[test]
fn what_is_written_is_waited_for_by_an_expression() {
    let pool = pool();
    let id = pool.script("web", "echo early-17; while read -r line; do echo \"$line\"; done");
    let wait = |what: &str| pool.ctl(&["--json", "--timeout", "30s", "wait", &id, "--for", what]);
    let early = wait(r"output:early-(\d+)").expect(0).json();
    assert_eq!(
        (&early["came"], &early["match"]),
        (&json!(r"output:early-(\d+)"), &json!("early-17")),
        "{early}"
    );
    let mut waiter =
        Talk::start(pool.poolctl().args(["--json", "wait", &id, "--for", r"output:ready,\s+port \d{4,5}"]));
    pool.ok(&["send", &id, "ready, port 80"]);
    pool.ctl(&["--timeout", "2s", "wait", &id, "--for", r"output:ready,\s+port \d{4,5}"]).expect(6);
    pool.ok(&["send", &id, "ready, port 8080"]);
    assert_eq!(waiter.await_end(), Some(0), "{}", waiter.errors());
    let came: Value = serde_json::from_str(&waiter.lines()[0]).unwrap();
    assert_eq!(came["match"], "ready, port 8080");
    pool.ctl(&["wait", &id, "--for", "output:("]).expect(2);
    pool.ok(&["kill", &id]);
    // The log of a session that has ended is searched too.
    wait("output:8080").expect(0);
    wait("output:9090").expect(1);
}

#[test]
fn what_an_earlier_run_wrote_is_not_waited_for() {
    let pool = pool();
    let go = pool.path("go");
    let second = format!("[ -e second ] && until [ -e '{}' ]; do sleep 0.1; done", go.display());
    let id = pool.script("srv", &format!("{second}; touch second; echo Listening on :3000; sleep 1000"));
    let wait = |more: &[&str]| {
        let args = [&["--timeout", "30s", "wait", &id, "--for", "output:Listening"], more].concat();
        pool.ctl(&args)
    };
    wait(&[]).expect(0);
    pool.ok(&["restart", &id]);
    pool.ctl(&["--timeout", "300ms", "wait", &id, "--for", "output:Listening"]).expect(6);
    std::fs::write(go, "").unwrap();
    wait(&[]).expect(0);
    wait(&["--since", "1h"]).expect(0);
    pool.ctl(&["wait", &id, "--for", "idle", "--since", "1h"]).expect(2);
}
