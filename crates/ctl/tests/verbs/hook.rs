//! `hook` and `approve`: reports of agents, and the answers to them.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use process::runtime::awake::awake;
use protocol::hook::{Decision, Hook, HookEvent, SpooledHook};
use protocol::{
    ActivityState, Ask, AskKind, ErrorCode, Refusal, Request, Response, SessionId, SessionView, Tag, millis,
};
use serde_json::{Value, json};

use crate::fake::{Answer, Pool, Ran, ok, until};
use crate::samples::session;

crate::tests! {
    a_hook_reports_what_its_agent_says, a_hook_stamps_its_report_with_the_time_awake,
    a_hook_says_it_in_its_last_argument_too, a_report_waits_for_a_daemon_that_is_away,
    a_report_that_is_not_taken_in_for_sure_is_left_as_well, a_report_that_is_refused_for_good_is_not_left,
    a_hook_outside_a_session_does_nothing, an_installed_hook_leaves_it_to_those_of_the_launch,
    nothing_that_a_hook_meets_is_a_trouble_of_its_agent, a_hook_says_what_it_meets_only_where_it_is_asked,
    input_without_an_end_is_not_waited_for, a_long_input_is_read_to_its_end,
    a_decision_is_printed_for_the_agent, without_a_decision_the_terminal_decides,
    a_hook_whose_agent_turned_away_ends, approve_answers_what_is_asked, approve_says_how_else_to_answer,
    hooks_are_installed_and_taken_out, hooks_are_installed_where_they_belong,
    a_configuration_that_is_not_understood_is_left_alone,
}

const STOP: &str = r#"{"session_id":"c1","transcript_path":"/t.jsonl","cwd":"/","hook_event_name":"Stop","prompt_id":"p1","stop_hook_active":false,"last_assistant_message":"done so"}"#;
const PERMISSION: &str = r#"{"session_id":"c1","hook_event_name":"PermissionRequest","tool_name":"Bash","tool_input":{"command":"touch x"},"prompt_id":"p1"}"#;
const TAG: &str = "07070707070707070707070707070707";

/// A `poolctl` that an agent of `sess_1` calls.
fn hook(pool: &Pool, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    std::fs::create_dir_all(pool.dir.path().join("sessions/sess_1")).unwrap();
    let mut command = pool.poolctl(["hook"]);
    command.args(args).env("POOL_SESSION", "sess_1").env("POOL_INCARNATION", TAG);
    command.env_remove("POOL_STATE_DIR").env("POOL_SOCKET", pool.socket()).stdin(Stdio::piped());
    // The fake daemon answers, however slow the machine is.
    command.env("POOL_HOOK_LIMIT_MS", "20000");
    command
}

/// The same with a short time limit, for a daemon that does not answer.
fn unanswered(pool: &Pool, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = hook(pool, args);
    command.env("POOL_HOOK_LIMIT_MS", "2000");
    command
}

/// Runs it with this input.
fn say(mut command: Command, input: impl AsRef<[u8]>) -> Ran {
    let mut child = command.spawn().unwrap();
    // It need not read its input.
    drop(child.stdin.take().unwrap().write_all(input.as_ref()));
    Ran::new(&child.wait_with_output().unwrap())
}

fn reports(pool: &Pool) -> Vec<Hook> {
    let hook = |request| match request {
        Request::Hook(hook) => Some(*hook),
        Request::DecisionTaken { .. } => None,
        other => panic!("{other:?}"),
    };
    pool.calls().into_iter().filter_map(|call| hook(call.request)).collect()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(found) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut found: Vec<PathBuf> = found.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// The reports in the spool.
fn left(pool: &Pool) -> Vec<Hook> {
    let read =
        |path: PathBuf| serde_json::from_slice::<SpooledHook>(&std::fs::read(path).unwrap()).unwrap().hook;
    files(&pool.dir.path().join("sessions/sess_1/hooks")).into_iter().map(read).collect()
}

fn refusing(code: ErrorCode) -> Pool {
    Pool::new(move |_| Answer::Reply(Err(Refusal::new(code, "no"))))
}

fn a_hook_reports_what_its_agent_says() {
    let pool = Pool::new(|_| ok(Response::Done));
    assert_eq!(say(hook(&pool, ["claude"]), STOP).success(), "");
    let reports = reports(&pool);
    let [report] = &reports[..] else { panic!("{reports:?}") };
    assert_eq!((report.session, report.tag, report.agent.as_str()), (SessionId(1), Tag([7; 16]), "claude"));
    assert_eq!(
        (report.conversation.as_deref(), report.transcript.clone()),
        (Some("c1"), Some("/t.jsonl".into()))
    );
    assert_eq!(report.signal, HookEvent::TurnOver { turn: Some("p1".into()), said: Some("done so".into()) });
    assert_eq!(left(&pool), []);
    assert_eq!(say(hook(&pool, ["claude"]), STOP).success(), "");
    assert_ne!(self::reports(&pool)[1].id, report.id, "another report");
}

fn a_hook_stamps_its_report_with_the_time_awake() {
    let pool = Pool::new(|_| ok(Response::Done));
    let before = millis(awake());
    assert_eq!(say(hook(&pool, ["claude"]), STOP).success(), "");
    let while_it_ran = before..=millis(awake());
    let reports = reports(&pool);
    let stamp = reports[0].awake.as_ref().unwrap();
    assert_eq!(stamp.boot, process::identity::boot_id().unwrap());
    assert!(while_it_ran.contains(&stamp.ms), "{while_it_ran:?} {stamp:?}");
}

fn a_hook_says_it_in_its_last_argument_too() {
    let pool = Pool::new(|_| ok(Response::Done));
    let said = r#"{"event":"idle","text":"finished"}"#;
    let mut command = hook(&pool, ["generic", "an earlier one", said]);
    assert_eq!(Ran::new(&command.stdin(Stdio::null()).output().unwrap()).success(), "");
    let reports = reports(&pool);
    assert_eq!(reports[0].agent, "generic");
    assert_eq!(reports[0].signal, HookEvent::TurnOver { turn: None, said: Some("finished".into()) });
}

fn a_report_waits_for_a_daemon_that_is_away() {
    let pool = Pool::empty();
    assert_eq!(say(hook(&pool, ["claude"]), STOP).success(), "");
    let left = left(&pool);
    assert_eq!(left[0].signal, HookEvent::TurnOver { turn: Some("p1".into()), said: Some("done so".into()) });
    let elsewhere = pool.dir.path().join("elsewhere");
    let mut command = hook(&pool, ["claude"]);
    command.env("POOL_HOOKS", &elsewhere);
    assert_eq!(say(command, STOP).success(), "");
    let (found, name) = (files(&elsewhere), |hook: &Hook| format!("{:016}-{:016x}.json", hook.at.0, hook.id));
    let hook: SpooledHook = serde_json::from_slice(&std::fs::read(&found[0]).unwrap()).unwrap();
    assert_eq!(found, [elsewhere.join(name(&hook.hook))]);
    assert_eq!(self::left(&pool).len(), 1);
}

fn a_report_that_is_not_taken_in_for_sure_is_left_as_well() {
    let troubled = [ErrorCode::Storage, ErrorCode::Unavailable, ErrorCode::Timeout, ErrorCode::Failed];
    let pools = troubled.into_iter().map(refusing);
    let pools = pools.chain([Pool::new(|_| Answer::Silence), Pool::new(|_| Answer::HangUp)]);
    for pool in pools {
        assert_eq!(say(unanswered(&pool, ["claude"]), STOP).success(), "");
        let (told, left) = (reports(&pool), left(&pool));
        assert_eq!((told.len(), &told), (1, &left), "the same report, so that it is taken in once");
    }
}

fn a_report_that_is_refused_for_good_is_not_left() {
    for code in [ErrorCode::NotFound, ErrorCode::Conflict, ErrorCode::Refused, ErrorCode::Usage] {
        let pool = refusing(code);
        assert_eq!(say(hook(&pool, ["claude"]), STOP).success(), "");
        assert_eq!((reports(&pool).len(), left(&pool)), (1, vec![]));
    }
}

fn a_hook_outside_a_session_does_nothing() {
    let pool = Pool::new(|_| ok(Response::Done));
    for missing in ["POOL_SESSION", "POOL_INCARNATION"] {
        let mut command = hook(&pool, ["claude"]);
        let mut child = command.env_remove(missing).spawn().unwrap();
        let held_open = child.stdin.take();
        assert_eq!(ended(&mut child).code(), Some(0), "without {missing}");
        drop(held_open);
    }
    assert_eq!((pool.calls().len(), left(&pool)), (0, vec![]));
}

/// Waits for the end of a child.
fn ended(child: &mut Child) -> std::process::ExitStatus {
    let mut status = None;
    until("the end of a hook", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

fn an_installed_hook_leaves_it_to_those_of_the_launch() {
    let pool = Pool::new(|_| ok(Response::Done));
    let of_the_launch = |args: &[&str]| {
        let mut command = hook(&pool, args);
        command.env("POOL_HOOKED", "1");
        assert_eq!(say(command, STOP).success(), "");
    };
    of_the_launch(&["claude", "--installed"]);
    assert_eq!(pool.calls().len(), 0);
    of_the_launch(&["claude"]);
    assert_eq!(pool.calls().len(), 1);
    assert_eq!(say(hook(&pool, ["claude", "--installed"]), STOP).success(), "");
    assert_eq!(pool.calls().len(), 2);
}

fn nothing_that_a_hook_meets_is_a_trouble_of_its_agent() {
    let pool = Pool::empty();
    let odd: [&[&str]; 8] = [
        &["claude"],
        &["claude", "--wait", "soon"],
        &["codex", "--wait"],
        &["gemini", "--of-tomorrow", "x"],
        &["generic", "--wait=-1", "--json"],
        &["clod"],
        &["codex", "{\"type\":"],
        &["claude", "--socket", "nowhere", ""],
    ];
    let inputs: [&[u8]; 8] = [
        b"",
        b"{",
        b"null",
        b"[1,2]",
        b"\xff\xfe\0",
        b"{\"hook_event_name\":7,\"session_id\":[]}",
        b"{\"hook_event_name\":\"OfTomorrow\",\"session_id\":\"c1\"}",
        &STOP.as_bytes()[..STOP.len() / 2],
    ];
    for args in odd {
        for input in inputs {
            let ran = say(hook(&pool, args), input);
            assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "", ""), "{args:?} {input:?}");
            let told = say(hook(&pool, args.iter().chain(&["-v"])), input);
            assert!(told.code == 0 && !told.err.contains("panicked"), "{args:?} {input:?}: {}", told.err);
        }
    }
    let broken =
        [("POOL_SOCKET", "relative"), ("POOL_SOCKET", "/"), ("POOL_HOOKS", "/dev/null"), ("POOL_HOOKS", "x")];
    for (name, value) in broken.into_iter().chain([("POOL_SESSION", "sess_x"), ("POOL_INCARNATION", "7")]) {
        let mut command = hook(&pool, ["claude"]);
        command.env(name, value).env("HOME", pool.dir.path().join("none"));
        assert_eq!(say(command, STOP).success(), "", "{name}={value}");
    }
}

fn a_hook_says_what_it_meets_only_where_it_is_asked() {
    let pool = refusing(ErrorCode::NotFound);
    let ran = say(hook(&pool, ["claude", "-v"]), STOP);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "", "no\n"));
    let ran = say(hook(&pool, ["claude", "-v"]), "{");
    assert_eq!((ran.code, ran.err.contains("cannot be parsed")), (0, true), "{}", ran.err);
}

fn input_without_an_end_is_not_waited_for() {
    let pool = Pool::new(|_| ok(Response::Done));
    let (theirs, mut stdin) = std::io::pipe().unwrap();
    // Written before the start, so that it arrives in time.
    stdin.write_all(STOP.as_bytes()).unwrap();
    let mut child = hook(&pool, ["claude"]).stdin(theirs).spawn().unwrap();
    assert_eq!(ended(&mut child).code(), Some(0));
    assert_eq!(reports(&pool).len(), 1, "what came until then is reported");
    drop(stdin);
}

fn a_long_input_is_read_to_its_end() {
    let pool = Pool::new(|_| ok(Response::Done));
    for length in [(1 << 20) + 1, 3 << 20] {
        let mut child = hook(&pool, ["claude"]).spawn().unwrap();
        let text = "x".repeat(length);
        let said = format!(
            r#"{{"session_id":"c1","hook_event_name":"UserPromptSubmit","prompt_id":"p","prompt":"{text}"}}"#
        );
        child.stdin.take().unwrap().write_all(said.as_bytes()).unwrap();
        assert_eq!(Ran::new(&child.wait_with_output().unwrap()).success(), "");
        let last = reports(&pool).pop().unwrap();
        let HookEvent::Prompt { text, cut, .. } = last.signal else { panic!("{:?}", last.signal) };
        assert_eq!((text.len(), cut), (protocol::hook::PROMPT_MAX, true));
    }
}

fn a_decision_is_printed_for_the_agent() {
    let decided = |allow, reason: Option<&str>| {
        let decision = Decision { allow, reason: reason.map(str::to_owned), answers: Vec::new() };
        let pool = Pool::new(move |_| ok(Response::Decided(decision.clone())));
        let printed = say(hook(&pool, ["claude", "--wait", "60s"]), PERMISSION).success();
        let reports = reports(&pool);
        assert_eq!(
            reports[0].signal,
            HookEvent::Permission { tool: "Bash".into(), text: "touch x".into(), wait_ms: 60_000 }
        );
        assert_eq!(left(&pool), []);
        serde_json::from_str::<Value>(&printed).unwrap()
    };
    let printed = |decision: Value| json!({"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}});
    assert_eq!(decided(true, None), printed(json!({"behavior": "allow"})));
    assert_eq!(decided(false, Some("no \"x\"")), printed(json!({"behavior": "deny", "message": "no \"x\""})));
}

fn without_a_decision_the_terminal_decides() {
    let waiting = ["claude", "--wait", "50ms"];
    let pool = Pool::new(|_| ok(Response::Done));
    assert_eq!(say(hook(&pool, waiting), PERMISSION).success(), "");
    assert_eq!(left(&pool), []);
    assert_eq!(say(hook(&pool, ["claude"]), PERMISSION).success(), "");
    let HookEvent::Permission { wait_ms, .. } = reports(&pool)[1].signal else { panic!() };
    assert_eq!(wait_ms, 0, "it does not wait where it is not told to");
    for pool in [Pool::new(|_| Answer::Silence), Pool::new(|_| Answer::HangUp), Pool::empty()] {
        assert_eq!(say(unanswered(&pool, waiting), PERMISSION).success(), "");
        let HookEvent::Permission { wait_ms, .. } = left(&pool)[0].signal else { panic!() };
        assert_eq!(wait_ms, 0, "nobody waits for an answer any more");
    }
}

fn a_hook_whose_agent_turned_away_ends() {
    let pool = Pool::new(|_| Answer::Silence);
    let asking = |asked: usize| {
        let mut child = hook(&pool, ["claude", "--wait", "1h"]).spawn().unwrap();
        child.stdin.take().unwrap().write_all(PERMISSION.as_bytes()).unwrap();
        until("the question", || pool.calls().len() == asked);
        child
    };
    let mut child = asking(1);
    drop(child.stdout.take());
    assert_eq!(ended(&mut child).code(), Some(0));
    let mut child = asking(2);
    child.kill().unwrap();
    assert_eq!(ended(&mut child).signal(), Some(9));
    assert_eq!(left(&pool), [], "it was told");
}

/// A session that waits for a person.
fn asking(kind: AskKind, answerable: bool) -> SessionView {
    let mut view = session("web");
    let tool = (kind == AskKind::Permission).then(|| "Bash".to_owned());
    view.activity.state = ActivityState::Attention;
    view.activity.ask = Some(Ask { id: 7, kind, text: "touch x\x1b".into(), tool, answerable });
    view
}

fn approve_answers_what_is_asked() {
    let view = || asking(AskKind::Permission, true);
    let pool = Pool::new(move |call| match &call.request {
        Request::Approve(_) => ok(Response::Session(Box::new(session("web")))),
        _ => ok(Response::Session(Box::new(view()))),
    });
    let answered = |line: &str| {
        let out = pool.run(line).success();
        let Some(Request::Approve(approve)) = pool.calls().pop().map(|call| call.request) else {
            panic!("{line}")
        };
        (out, approve)
    };
    let (out, approve) = answered("approve web");
    assert_eq!(out, "sess_1  web  asks: Bash: touch x\\x1b\nallowed\n");
    assert_eq!((approve.session, approve.deny, approve.ask), (SessionId(1).into(), false, Some(7)));
    assert!(matches!(pool.calls().pop().unwrap().op, Some(protocol::OpId::Random(_))), "safe to repeat");
    let (out, approve) = answered("approve web --deny --reason because --ask 7");
    assert_eq!(out, "sess_1  web  asks: Bash: touch x\\x1b\ndenied\n");
    assert_eq!((approve.deny, approve.reason.as_deref()), (true, Some("because")));
    let (out, _) = answered("approve web --json");
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["name"], "web");
}

fn approve_says_how_else_to_answer() {
    let table = [
        (None, "approve web", "asks for nothing"),
        (Some(asking(AskKind::Bell, false)), "approve web", "poolctl attach web"),
        (Some(asking(AskKind::Dialog, false)), "approve web --deny", "poolctl attach web"),
        (Some(asking(AskKind::Message, false)), "approve web", "poolctl queue resolve"),
    ];
    for (view, line, said) in table {
        let view = view.unwrap_or_else(|| session("web"));
        let pool = Pool::new(move |_| ok(Response::Session(Box::new(view.clone()))));
        let ran = pool.run(line);
        assert_eq!((ran.code, ran.out.as_str(), pool.calls().len()), (4, "", 1), "{line}");
        assert!(ran.err.contains(said), "{line}: {}", ran.err);
    }
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn hooks_are_installed_and_taken_out() {
    let pool = Pool::empty();
    let dir = pool.dir.path().join(".claude");
    std::fs::create_dir(&dir).unwrap();
    let (path, backup) = (dir.join("settings.json"), dir.join("settings.json.before-tmux-pool"));
    let theirs = r#"{"model":"x","hooks":{"Stop":[{"hooks":[{"type":"command","command":"beep"}]}]}}"#;
    std::fs::write(&path, theirs).unwrap();
    let dry = pool.run("hook install claude --dry-run").success();
    assert!(dry.starts_with(&format!("would write {}:\n", path.display())), "{dry}");
    assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), backup.exists()), (theirs, false));

    let said = pool.run("hook install claude").success();
    let wrote = format!(
        "wrote {}: added the hooks of tmux-pool\nbackup of the old file: {}\n",
        path.display(),
        backup.display()
    );
    assert!(said.starts_with(&wrote) && said.contains("confirm = \"hook\""), "{said}");
    let installed = std::fs::read_to_string(&path).unwrap();
    assert!(dry.contains(&installed), "as it was shown before");
    assert_eq!(std::fs::read_to_string(&backup).unwrap(), theirs);
    let now = read(&path);
    assert_eq!(
        (&now["model"], &now["hooks"]["Stop"][0]["hooks"][0]["command"]),
        (&json!("x"), &json!("beep"))
    );
    assert!(installed.contains("--installed") && now["hooks"]["UserPromptSubmit"].is_array(), "{installed}");

    let again = pool.run("hook install claude").success();
    assert!(
        again.starts_with(&format!("unchanged: {} has the hooks of tmux-pool\n", path.display())),
        "{again}"
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), installed);
    let out = pool.run("hook install claude --uninstall --json").success();
    let out: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&out["done"], &out["backup"]), (&json!("uninstalled"), &Value::Null));
    assert_eq!(read(&path), serde_json::from_str::<Value>(theirs).unwrap());
    let again = pool.run("hook install claude --uninstall").success();
    assert_eq!(again, format!("unchanged: {} has no hooks of tmux-pool\n", path.display()));
}

fn hooks_are_installed_where_they_belong() {
    let pool = Pool::empty();
    let home = pool.dir.path();
    let installed = |args: &[&str], own: Option<(&str, PathBuf)>| {
        let mut command = pool.poolctl(["hook", "install"]);
        command.args(args).arg("--json").envs(own).current_dir(home);
        let out: Value = serde_json::from_str(&Ran::new(&command.output().unwrap()).success()).unwrap();
        assert_eq!(out["done"], "installed");
        let path = PathBuf::from(out["path"].as_str().unwrap());
        assert!(read(&path)["hooks"].is_object(), "{out}");
        (std::fs::canonicalize(path).unwrap(), out["hint"].as_str().unwrap_or_default().to_owned())
    };
    let home = std::fs::canonicalize(home).unwrap();
    assert_eq!(installed(&["claude"], None).0, home.join(".claude/settings.json"));
    assert_eq!(
        installed(&["claude", "--user"], Some(("CLAUDE_CONFIG_DIR", home.join("c")))).0,
        home.join("c/settings.json")
    );
    let (path, hint) = installed(&["codex"], Some(("CODEX_HOME", home.join("x"))));
    assert_eq!((path, hint.contains("/hooks")), (home.join("x/hooks.json"), true));
    assert_eq!(
        installed(&["codex", "--project"], Some(("CODEX_HOME", home.join("x")))).0,
        home.join(".codex/hooks.json")
    );
    let (path, hint) = installed(&["gemini"], Some(("GEMINI_CLI_HOME", home.join("g"))));
    assert_eq!((path, hint.contains("confirm")), (home.join("g/.gemini/settings.json"), true));
    assert_eq!(installed(&["gemini"], None).0, home.join(".gemini/settings.json"));
    assert!(pool.run("hook install codex").success().ends_with("use /hooks there.\n"));
    // A file that was created for our hooks is removed with them.
    let said = pool.run("hook install codex --uninstall").success();
    assert!(said.starts_with("removed "), "{said}");
    assert!(!home.join(".codex/hooks.json").exists());
}

fn a_configuration_that_is_not_understood_is_left_alone() {
    let pool = Pool::empty();
    let dir = pool.dir.path().join(".claude");
    std::fs::create_dir(&dir).unwrap();
    let path = dir.join("settings.json");
    for text in ["{\"hooks\": {", "[]", "{\"hooks\": 7}"] {
        std::fs::write(&path, text).unwrap();
        let ran = pool.run("hook install claude");
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{text}");
        assert!(ran.err.contains("settings.json") && ran.err.contains("nothing was changed"), "{}", ran.err);
        assert_eq!(files(&dir), std::slice::from_ref(&path));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
}
