//! The activity, thoughts and questions of agents: `wait`, `thought`, `send --wait`, `show` and `ls`.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;

use protocol::reply::{InboxItem, LogFiles, Sent, Theme};
use protocol::request::{Until, Wait};
use protocol::thought::{Publish, StreamPosition, Thought, ThoughtState};
use protocol::{
    Activity, ActivityState, Ask, AskKind, ErrorCode, Exit, Lifecycle, MessageState, Request, Response,
    SessionView, Source, Timestamp, logs,
};
use serde_json::{Value, json};

use crate::fake::{Answer, Pool, Ran, lines, ok, refused, shown};
use crate::samples::{message, session};

crate::tests! {
    the_first_of_several_states_is_told, a_state_that_cannot_come_is_a_failure,
    output_is_found_wherever_it_is, output_and_the_end_are_told_apart,
    output_is_not_waited_for_longer_than_asked, send_waits_for_the_end_of_a_message,
    send_prints_what_came_of_it, a_thought_is_published_as_it_was_given, a_thought_is_read,
    a_session_shows_what_its_agent_does, a_session_shows_that_its_output_cannot_be_read,
    attention_stands_out_in_a_list, a_full_list_has_the_output_of_each,
    a_plan_is_shown_alone, several_sessions_are_dismissed,
}

fn doing(state: ActivityState) -> SessionView {
    let mut view = session("web");
    view.activity = Activity { state, source: Source::Hook, since: Timestamp(1000), ..Activity::default() };
    view
}

fn over(code: i32) -> SessionView {
    let mut view = session("web");
    view.session.lifecycle = Lifecycle::Stopped;
    view.session.exit = Some(Exit { code: Some(code), signal: None, at: Timestamp(0) });
    view
}

fn ended(ran: &Ran) -> (i32, &str, &str) {
    (ran.code, &ran.out, &ran.err)
}

fn the_first_of_several_states_is_told() {
    let pool = |state| Pool::new(move |_| shown(doing(state)));
    let attention = pool(ActivityState::Attention);
    let ran = attention.run("wait web --for idle,attention --for exit,queue-empty,error");
    // The queue is empty as well, but that condition was named later.
    assert_eq!(ended(&ran), (10, "attention\n", ""));
    let Request::Wait(wait) = attention.request() else { panic!() };
    let state = Until::Activity;
    let (idle, waits, failed) = (ActivityState::Idle, ActivityState::Attention, ActivityState::Error);
    assert_eq!(wait.until, [Until::Exit, Until::QueueEmpty, state(idle), state(waits), state(failed)]);
    assert_eq!((wait.session.0.as_str(), wait.timeout_ms), ("web", None));
    assert_eq!(ended(&attention.run("wait web --for attention")), (0, "", ""));
    assert_eq!(
        ended(&pool(ActivityState::Error).run("wait web --any --for busy,error")),
        (11, "error\n", "")
    );
    assert_eq!(ended(&pool(ActivityState::Idle).run("wait web --for idle,error")), (0, "idle\n", ""));
    let ran = attention.run("wait web --for idle,attention --json");
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &document["came"], &document["match"]), (10, &json!("attention"), &Value::Null));
    assert_eq!((&document["activity"], &document["activity_source"]), (&json!("attention"), &json!("hook")));
}

fn a_state_that_cannot_come_is_a_failure() {
    let over_already = Pool::new(|_| refused(ErrorCode::Failed, "sess_1 is stopped"));
    assert_eq!(ended(&over_already.run("wait web --for idle,busy")), (1, "", "poolctl: sess_1 is stopped\n"));
    let slow = Pool::new(|_| refused(ErrorCode::Timeout, "not in time"));
    assert_eq!(slow.run("wait web --for idle --timeout 1").code, 6);
    assert_eq!(slow.run("wait web --for exit,idle --timeout 1").code, 125);
    let ended_so = Pool::new(|_| shown(over(42)));
    assert_eq!(ended(&ended_so.run("wait web --for idle,exit")), (42, "exit\n", ""));
    assert_eq!(ended_so.run("wait web --for idle,started").code, 1);
}

/// A session with a log.
struct Logged {
    dir: tempfile::TempDir,
}

impl Logged {
    fn new(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tag = session("web").session.incarnation.unwrap().tag;
        std::fs::write(dir.path().join(logs::TIMES), format!("1500 0 {tag}\n")).unwrap();
        drop(File::create(dir.path().join(logs::LOCK)).unwrap());
        let logged = Self { dir };
        write(&logged.log(), text);
        logged
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("output.log")
    }

    /// A pool whose daemon shows this view, and gives this answer to a wait.
    fn pool(&self, view: SessionView, waited: impl Fn() -> Answer + Send + Sync + 'static) -> Pool {
        let dir = self.dir.path().into();
        let files = LogFiles { dir };
        Pool::new(move |call| match &call.request {
            Request::Show(_) => shown(view.clone()),
            Request::Logs(_) => ok(Response::Logs(files.clone())),
            Request::Capture(_) => ok(Response::Screen("on the screen\n".into())),
            Request::Wait(_) => waited(),
            // Asked why nothing answers.
            Request::Status => Answer::Silence,
            other => panic!("{other:?}"),
        })
    }
}

fn write(log: &Path, text: &str) {
    let mut log = File::options().create(true).append(true).open(log).unwrap();
    log.write_all(text.as_bytes()).unwrap();
}

fn output_is_found_wherever_it_is() {
    let logged = Logged::new(&format!("long ago\r\n{}\x1b[1mread\x1b[0my 12\r\n", "x".repeat(70_000)));
    let pool = logged.pool(session("web"), || Answer::Silence);
    assert_eq!(ended(&pool.run("wait web --timeout 20s --for output:^on.the.screen$")), (0, "", ""));
    let ran = pool.run("wait web --timeout 20s --json --for idle --for output:ready\\s[0-9]{1,2}");
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &document["match"]), (0, &json!("ready 12")));
    assert_eq!(document["came"], "output:ready\\s[0-9]{1,2}");
    // Output older than the end of the log is not searched, new output is.
    let command =
        pool.poolctl(["wait", "web", "--for", "output:long ago", "--timeout", "20s"]).spawn().unwrap();
    crate::fake::until("the log is followed", || {
        pool.calls().iter().filter(|call| matches!(call.request, Request::Capture(_))).count() == 3
    });
    write(&logged.log(), "long a");
    write(&logged.log(), "go\r\n");
    assert_eq!(ended(&Ran::new(&command.wait_with_output().unwrap())), (0, "", ""));
}

fn output_and_the_end_are_told_apart() {
    let logged = Logged::new("starting\r\nready\r\n");
    let pool = logged.pool(over(3), || shown(over(3)));
    let ran = pool.run("wait web --timeout 20s --for exit,output:ready");
    assert_eq!(ended(&ran), (0, "output:ready\n", ""), "it wrote that before it ended");
    assert_eq!(ended(&pool.run("wait web --timeout 20s --for output:never --for exit")), (3, "exit\n", ""));
    let never = "poolctl: the session has ended, and its output does not match\n";
    assert_eq!(ended(&pool.run("wait web --timeout 20s --for output:never")), (1, "", never));
    // The output is still searched after the activity cannot come any more.
    let pool = logged.pool(over(3), || refused(ErrorCode::Failed, "it is over"));
    assert_eq!(ended(&pool.run("wait web --for idle,output:ready")), (0, "output:ready\n", ""));
    assert_eq!(pool.run("wait web --for idle,output:never").code, 1);
}

fn output_is_not_waited_for_longer_than_asked() {
    let logged = Logged::new("starting\r\n");
    let pool = logged.pool(session("web"), || Answer::Silence);
    assert_eq!(pool.run("wait web --for output:never --timeout 2s").code, 6);
    assert_eq!(pool.run("wait web --for idle,output:never --timeout 2s").code, 6);
}

fn sent() -> Answer {
    ok(Response::Sent(Box::new(Sent { message: message(7), held_back: None })))
}

/// A pool whose message has the first state when it is accepted, and the second at its end.
fn comes_to(accepted: MessageState, end: MessageState) -> Pool {
    Pool::new(move |call| {
        let Request::Wait(wait) = &call.request else { return sent() };
        let mut message = message(7);
        message.status.state = if matches!(wait.until[..], [Until::Accepted(_)]) { accepted } else { end };
        message.status.result = (message.status.state == MessageState::Done).then(|| "It is\ngreen.".into());
        ok(Response::Message(Box::new(message)))
    })
}

fn send_waits_for_the_end_of_a_message() {
    let expired = comes_to(MessageState::Accepted, MessageState::Expired);
    let ran = expired.run("send web hi --wait done");
    assert_eq!(ended(&ran), (1, "7\n", "poolctl: message 7 is expired\n"));
    let waited: Vec<Until> = expired
        .calls()
        .into_iter()
        .filter_map(|call| match call.request {
            Request::Wait(Wait { until, .. }) => until.into_iter().next(),
            _ => None,
        })
        .collect();
    let id = message(7).id;
    assert_eq!(waited, [Until::Accepted(id), Until::Message(id)]);
    assert_eq!(ended(&expired.run("send web hi --wait accepted")), (0, "7\n", ""));
    let doubtful = comes_to(MessageState::InDoubt, MessageState::Done);
    for stage in ["accepted", "done"] {
        let ran = doubtful.run(&format!("send web hi --wait {stage}"));
        assert_eq!((ran.code, ran.out.as_str()), (1, "7\n"));
        assert!(
            ran.err.contains("is in doubt; look at it with") && ran.err.contains("queue resolve web 7"),
            "{}",
            ran.err
        );
    }
    // Nothing confirms it any more.
    let ran = comes_to(MessageState::Typed, MessageState::Done).run("send web hi --wait done");
    assert!(ran.code == 1 && ran.err.contains("is typed; look at it with"), "{ran:?}");
    let dead = comes_to(MessageState::Dead, MessageState::Done);
    assert_eq!(ended(&dead.run("send web hi --wait done")), (1, "7\n", "poolctl: message 7 is dead\n"));
}

fn send_prints_what_came_of_it() {
    let pool = comes_to(MessageState::Accepted, MessageState::Done);
    assert_eq!(pool.run("send web /clear --raw --result").success(), "It is\ngreen.\n");
    let Request::Send(send) = pool.calls()[0].request.clone() else { panic!() };
    assert!(send.raw && send.body == "/clear".into());
    let document = pool.json("send web hi --result --json");
    assert_eq!((&document["result"], &document["state"]), (&json!("It is\ngreen."), &json!("done")));
    assert_eq!(pool.run("send web hi --wait done").success(), "7\n");
    let silent = Pool::new(|call| {
        let Request::Wait(_) = &call.request else { return sent() };
        let mut message = message(7);
        message.status.state = MessageState::Done;
        ok(Response::Message(Box::new(message)))
    });
    let note = "poolctl: message 7 has no result: nothing reports it\n";
    assert_eq!(ended(&silent.run("send web hi --result")), (0, "", note));
    assert_eq!(ended(&silent.run("--quiet send web hi --result")), (0, "", ""));
}

fn thinking() -> SessionView {
    let mut view = session("web");
    view.thought = Some(Thought {
        text: Some("Reading\x1b[2J it".into()),
        state: ThoughtState::Active,
        token_count: 5,
        place: Some(StreamPosition { stream: "s".into(), seq: 3 }),
        updated_at: Timestamp(1000),
        ..Thought::default()
    });
    view
}

fn a_thought_is_published_as_it_was_given() {
    let mut view = thinking();
    view.thought.as_mut().unwrap().text = Some("Läse\x1b[2J es".into());
    let pool = Pool::new(move |_| shown(view.clone()));
    let mut child = pool
        .poolctl([
            "thought", "set", "%3", "-", "--tokens", "5", "--stream", "s", "--seq", "3", "--op-id", "x",
        ])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all("Läse\x1b[2J es\n".as_bytes()).unwrap();
    let text = Ran::new(&child.wait_with_output().unwrap()).success();
    assert_eq!(text, "sess_1  web  active  Läse\\x1b[2J es\n");
    let Request::Publish(published) = pool.request() else { panic!() };
    let Publish { target, text, token_count, place, updated_at, .. } = *published;
    assert_eq!((target.0.as_str(), text.as_deref(), token_count), ("%3", Some("Läse\x1b[2J es"), Some(5)));
    assert_eq!((place, updated_at), (Some(StreamPosition { stream: "s".into(), seq: 3 }), None));
    let ran = pool.run("thought set web --stream s --seq 2 old");
    assert!(ran.code == 0 && ran.err.contains("nothing was changed"), "{}", ran.err);
    assert_eq!(pool.run("thought set web --at 5m").code, 2);
    let document = pool.json("thought set web x --json");
    assert_eq!((&document["thought"]["seq"], &document["tokens"]), (&json!(3), &json!(5)));
}

fn a_thought_is_read() {
    let pool = Pool::new(|_| shown(thinking()));
    let document = pool.json("thought get web --json");
    let expected = json!({
        "text": "Reading\u{1b}[2J it", "state": "active", "source": "carry_forward", "token_count": 5,
        "context_limit": null, "objective_changed_at": null, "commit_candidate": false,
        "updated_at": "1970-01-01T00:00:01.000Z", "rest_state": null, "objective": null, "stream": "s", "seq": 3
    });
    assert_eq!(document, expected);
    assert_eq!(pool.run("thought get web -q").success(), "Reading\x1b[2J it\n");
    let text = pool.run("thought get web").success();
    assert!(text.contains("\nstate    active\n") && text.contains("\nstream   s 3\n"), "{text}");
    let nothing = Pool::new(|_| shown(session("web")));
    assert_eq!(nothing.run("thought get web --json").success(), "null\n");
    assert_eq!(nothing.run("thought get web").success(), "no thought was published yet\n");
}

fn asking() -> SessionView {
    let mut view = doing(ActivityState::Attention);
    view.activity.ask = Some(Ask {
        id: 5,
        kind: AskKind::Permission,
        text: "rm -rf build\n\x1b[2J".into(),
        tool: Some("Bash".into()),
        answerable: true,
    });
    view.waits = Some("a permission is asked for".into());
    view.confirm = "hook".into();
    view.notes.tokens = Some(1234);
    view.notes.skill = Some("review".into());
    view.session.spec.context_limit = Some(200_000);
    let colour = |text: &str| text.to_owned();
    view.theme = Some(Theme {
        of: "/src".into(),
        body: colour("#102030"),
        outline: colour("#405060"),
        accent: colour("#708090"),
        shirt: colour("#a0b0c0"),
        sprite: None,
        own: true,
    });
    view
}

fn a_session_shows_what_its_agent_does() {
    let logged = Logged::new(&format!("{}\r\n\x1b[31mred\x1b[0m\r\n", "日".repeat(600)));
    let pool = logged.pool(asking(), || Answer::Silence);
    let document = pool.json("show web --json");
    let ask = json!({
        "id": "5", "kind": "permission", "text": "rm -rf build\n\u{1b}[2J", "tool": "Bash", "answerable": true
    });
    assert_eq!(document["ask"], ask);
    let keys = ["waits", "confirm", "tokens", "context_limit", "skill", "rest_state"];
    let values = keys.map(|key| document[key].clone());
    let expected = json!(["a permission is asked for", "hook", 1234, 200_000, "review", "active"]);
    assert_eq!(json!(values), expected);
    assert_eq!(document["replay"], format!("{}\nred\n", "日".repeat(495)));
    assert_eq!((&document["theme"]["body"], &document["theme"]["own"]), (&json!("#102030"), &json!(true)));
    let text = pool.run("show web").success();
    for line in [
        "activity       attention (hook, 1970-01-01T00:00:01.000Z)\n",
        "prompt waits   a permission is asked for\n",
        "confirmed      by its agent's hook\n",
        "tokens         1234 of 200000\n",
        "asks: permission for Bash\n  rm -rf build\n  \\x1b[2J\n",
        "answer it with `poolctl approve web`, `poolctl approve web --deny`, or `poolctl attach web`\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(text.ends_with("  red\n"), "{text}");
}

fn a_session_shows_that_its_output_cannot_be_read() {
    let logged = Logged::new("ERR one\r\n");
    let pool = |patterns: &[&str]| {
        let error_patterns = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        logged.pool(SessionView { error_patterns, ..session("web") }, || Answer::Silence)
    };
    let text = pool(&["ERR"]).run("show web").success();
    assert!(text.contains("\nerrors         1, the last one") && text.ends_with("  ERR one\n"), "{text}");
    let text = pool(&["("]).run("show web").success();
    assert!(text.contains("\nerrors cannot be counted: ") && text.contains("\n  ERR one\n"), "{text}");
    // Not even root reads it.
    std::fs::remove_file(logged.log()).unwrap();
    std::fs::create_dir(logged.log()).unwrap();
    let text = pool(&["ERR"]).run("show web").success();
    assert!(text.contains("\noutput cannot be read: ") && text.ends_with("is not a file\n"), "{text}");
    let ran = pool(&[]).run("show web --json");
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &document["errors"], &document["replay"]), (0, &Value::Null, &Value::Null));
    assert!(ran.err.starts_with("poolctl: web: output cannot be read: "), "{}", ran.err);
}

fn attention_stands_out_in_a_list() {
    let pool = Pool::new(|_| ok(Response::Sessions(vec![asking(), doing(ActivityState::Busy), over(0)])));
    let text = pool.run("ls").success();
    let column: Vec<&str> = text.lines().map(|line| line.split_whitespace().nth(5).unwrap()).collect();
    assert_eq!(column, ["ACTIVITY", "attention", "busy", "-"]);
    let text = pool.run("ls --color always").success();
    assert!(text.contains("\x1b[33mattention\x1b[0m  0 ") && text.contains("  busy       0 "), "{text:?}");
}

fn a_full_list_has_the_output_of_each() {
    let pool = Pool::new(|_| {
        let view = SessionView { replay: Some("red\x1b[2J\n".into()), ..asking() };
        ok(Response::Sessions(vec![view, over(0)]))
    });
    let text = pool.run("ls --full --all").success();
    assert!(text.contains("red\\x1b[2J") && text.matches("workspace").count() == 2, "{text}");
    let Request::Snapshot(list) = pool.request() else { panic!() };
    assert!(list.all);
    let documents = lines(&pool.run("ls --full --json").success());
    assert_eq!((&documents[0]["replay"], &documents[1]["replay"]), (&json!("red\u{1b}[2J\n"), &Value::Null));
    assert_eq!(documents[0]["transport_health"]["state"], "unobserved");
}

fn a_plan_is_shown_alone() {
    let pool =
        Pool::new(|_| shown(SessionView { plan: Some("# Plan\n\x1b[2Jdo it\n".into()), ..session("web") }));
    assert_eq!(pool.run("show web --plan").success(), "# Plan\n\\x1b[2Jdo it\n");
    let none = Pool::new(|_| shown(session("web"))).run("show web --plan");
    assert!(none.code == 3 && none.err.contains("no plan"), "{}", none.err);
}

fn several_sessions_are_dismissed() {
    let asks = Mutex::new(0);
    let item = |kind: &str, next: &str| InboxItem {
        session: session("web").session.id,
        name: "web".parse().unwrap(),
        kind: kind.into(),
        since: Timestamp(0),
        text: "why".into(),
        next: next.into(),
    };
    let failing = item("failing", "poolctl queue retry web --kind a");
    let (bell, stays) = (item("bell", "poolctl attach web"), failing.clone());
    let pool = Pool::new(move |call| match call.request {
        Request::Inbox => {
            let mut asks = asks.lock().unwrap();
            *asks += 1;
            // The inbox before and after the bell is dismissed; in later requests only what stays.
            let left = [vec![bell.clone()], vec![], vec![stays.clone()], vec![stays.clone()]];
            ok(Response::Inbox(left.get(*asks - 1).cloned().unwrap_or_default()))
        }
        _ => shown(session("web")),
    });
    assert_eq!(pool.run("dismiss web www").success(), "sess_1  web  dismissed\nsess_1  web  dismissed\n");
    let calls = pool.calls().into_iter().filter(|call| call.request != Request::Inbox);
    let mut asked: Vec<_> = calls.map(|call| (call.op.is_some(), call.request)).collect();
    // The two requests are made at the same time.
    asked.sort_by_key(|(_, request)| format!("{request:?}"));
    let dismiss = |name: &str| (true, Request::Dismiss(protocol::SessionRef(name.into())));
    assert_eq!(asked, [dismiss("web"), dismiss("www")]);
    let ran = pool.run("dismiss web");
    let why = format!("poolctl: web: failing stays until it is mended: `{}`\n", failing.next);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (1, "", why.as_str()));
    assert_eq!(pool.run("dismiss web").success(), "sess_1  web  nothing to dismiss\n");
    assert_eq!(pool.run("dismiss web www --op-id x").code, 2);
}
