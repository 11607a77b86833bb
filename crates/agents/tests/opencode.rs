//! Screens of OpenCode 1.18.33 (`screens/opencode-*.ansi` are captures of it), and prompts for OpenCode and
//! Aider 0.86.2.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use agents::Adapter::{Aider, Opencode};
use agents::prompt::{TextMatch, compare, escape, is_command, make_distinct};
use agents::screen::{self, Composer, Screen};
use agents::wiring::{WiringOptions, wire};

fn capture(name: &str) -> Screen {
    let path = format!("{}/tests/screens/opencode-{name}.ansi", env!("CARGO_MANIFEST_DIR"));
    Screen::new(&std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}")))
}

/// Reads a screen with this cursor: the composer, the name of the dialog, true if the agent is working.
fn seen(name: &str, cursor: (u16, u16)) -> (Composer, Option<String>, Option<bool>) {
    let screen = capture(name);
    let dialog = screen::dialog(Opencode, &screen).map(|dialog| dialog.name);
    (screen::composer(Opencode, &screen, cursor), dialog, screen::is_working(Opencode, &screen))
}

#[test]
fn its_composer_is_read() {
    assert_eq!(
        seen("home", (16, 15)),
        (Composer::Empty, None, Some(false)),
        "a placeholder is nobody's text"
    );
    assert_eq!(seen("idle", (5, 24)), (Composer::Empty, None, Some(false)));
    assert_eq!(seen("busy", (5, 24)), (Composer::Empty, None, Some(true)));
    assert_eq!(seen("escape", (5, 24)), (Composer::Empty, None, Some(true)));
    let holds = |text: &str| (Composer::Holds(text.to_owned()), None, Some(false));
    assert_eq!(seen("draft", (10, 24)), holds("lines"));
    assert_eq!(seen("menu", (6, 24)), holds("/"));
}

#[test]
fn what_stands_over_its_composer_takes_the_keys() {
    assert_eq!(
        seen("help", (100, 29)),
        (Composer::Hidden, None, Some(false)),
        "its cursor is not in the composer"
    );
    assert_eq!(seen("shell", (5, 24)).0, Composer::Hidden, "its shell would take the line");
    let asks = seen("permission", (98, 28));
    assert_eq!(asks, (Composer::Hidden, Some("permission".to_owned()), None));
    let text = screen::dialog(Opencode, &capture("permission")).unwrap().text;
    assert!(text.starts_with("△ Permission required"), "{text}");
}

#[test]
fn what_would_make_it_leave_arrives_as_a_prompt() {
    for word in ["exit", "quit", ":q"] {
        let typed = escape(Opencode, word);
        assert!(is_command(Opencode, word) && !is_command(Opencode, &typed), "{typed:?}");
        assert_eq!(compare(Opencode, word, &typed, false), TextMatch::Exact);
    }
    assert_eq!(escape(Opencode, "/help"), " /help");
    assert_eq!(escape(Opencode, "read @package.json"), "read @package.json ");
    assert_eq!(compare(Opencode, "a\tb", "a    b", false), TextMatch::Altered, "it keeps tabs");
}

/// Aider does not record a prompt that is equal to the previous one.
#[test]
fn the_same_prompt_is_typed_for_aider_as_another() {
    let typed = |n| make_distinct(Aider, b"go on".to_vec(), n);
    assert!((0..60).all(|n| typed(n) != typed(60) && typed(n) != b"go on"));
    let taken = String::from_utf8(typed(3)).unwrap();
    assert_eq!(compare(Aider, "go on", &taken, false), TextMatch::Exact);
    assert_eq!(make_distinct(Opencode, b"go on".to_vec(), 3), b"go on");
}

#[test]
fn what_aider_would_take_for_a_command_arrives_as_a_prompt() {
    for (text, typed) in [("/add x", " /add x"), ("!ls", " !ls"), ("{", " {"), ("exit", "exit")] {
        assert_eq!(escape(Aider, text), typed);
        assert_eq!(compare(Aider, text, typed, false), TextMatch::Exact);
    }
}

/// Stands for the start of `poolctl` in the plugin: prints the event and the text of each report.
const SPAWN: &str = r#"
const spawn = () => ({
  stdin: { on() {}, end: (report) => print(JSON.parse(report)) },
  stdout: { on() {} },
  on: (event, then) => event === "close" && setImmediate(then),
  kill() {},
})
const print = ({ event, text }) => console.log(text === undefined ? event : `${event}: ${text}`)
"#;

/// OpenCode's calls of the plugin.
const CALLS: &str = r#"
const sessionID = "ses_1"
const plugin = await TmuxPool({ client: { session: { get: async () => ({}) } } })
const on = (type, properties) => plugin.event({ event: { type, properties: { sessionID, ...properties } } })
const prompt = (id, text) => plugin["chat.message"]({ sessionID }, { message: { id }, parts: [{ type: "text", text }] })
const answer = async (id, parentID, text) => {
  await on("session.status", { status: { type: "busy" } })
  await on("message.updated", { info: { id, parentID, sessionID, role: "assistant" } })
  await on("message.part.updated", { part: { id: `part of ${id}`, type: "text", messageID: id, text } })
}
"#;

/// Returns the reports of the plugin, a line each; none without `node`.
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn reports(calls: &str) -> Option<String> {
    let dir = Path::new("/state/s1");
    let options =
        WiringOptions { poolctl: Path::new("/poolctl"), dir, own_dir: dir, approve_ms: 0, hook_ms: 1 };
    let files = wire(Opencode, &options).files;
    let (_, plugin) = files.iter().find(|(name, _)| name.ends_with(".mjs")).unwrap();
    let plugin = String::from_utf8(plugin.clone()).unwrap();
    let import = "import { spawn } from \"node:child_process\"\n";
    assert!(plugin.contains(import));
    let script = [plugin.replace(import, SPAWN).as_str(), CALLS, calls].concat();
    let mut node = Command::new("node");
    node.args(["--input-type=module", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut node) = node.env_remove("TMUX_POOL_OPENCODE").spawn() else {
        println!("skipped: no node");
        return None;
    };
    node.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = node.wait_with_output().unwrap();
    assert!(output.status.success());
    Some(String::from_utf8(output.stdout).unwrap())
}

#[track_caller]
fn assert_reports(calls: &str, expected: &[&str]) {
    if let Some(said) = reports(calls) {
        assert_eq!(
            said.lines().collect::<Vec<_>>(),
            [&["started: startup", "started: startup"], expected].concat()
        );
    }
}

#[test]
fn a_prompt_that_comes_in_a_turn_has_its_turn_once_its_answer_begins() {
    let calls = r#"
        await prompt("msg_1", "the first")
        await answer("msg_2", "msg_1", "its answer")
        await prompt("msg_3", "typed by hand")
        await answer("msg_2", "msg_1", "its answer, longer")
        await answer("msg_4", "msg_3", "another")
        await on("session.idle", {})
        await prompt("msg_5", "the next")
        await on("session.idle", {})
    "#;
    let expected = [
        "prompt: the first",
        "idle: its answer, longer",
        "prompt: typed by hand",
        "idle: another",
        "prompt: the next",
        "idle: ",
    ];
    assert_reports(calls, &expected);
}

#[test]
fn prompts_that_are_answered_together_have_one_turn() {
    let calls = r#"
        await prompt("msg_1", "one")
        await prompt("msg_2", "two")
        await prompt("msg_3", "three")
        await on("session.error", { error: { name: "MessageAbortedError" } })
        await answer("msg_5", "msg_4", "to a prompt of its own")
        await on("session.idle", {})
    "#;
    let expected =
        ["prompt: one", "interrupted", "prompt: two", "prompt: three", "idle: to a prompt of its own"];
    assert_reports(calls, &expected);
}
