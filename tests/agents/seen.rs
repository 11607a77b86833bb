//! Agents seen from outside: dialogs that the configuration answers, prompts that return at once.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{PATIENCE, Pool, Program, eventually, wait_until};

/// An agent that starts with a dialog, takes one key as the answer, and then waits for its first prompt.
fn asking(dialogs: &str) -> String {
    let screens = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/agents/tests/screens");
    format!(
        r#"
[agents.asking]
adapter = "claude"
hooks = false
dialogs = {dialogs}
command = "sh"
args = ["-c", '''
stty raw -echo opost onlcr
cat {0}/$DIALOG.ansi
dd bs=1 count=1 of=answer 2>dd
printf '\033[?2004h\033[H\033[2J'
cat {0}/claude-idle.ansi
printf '\033[3H'
exec cat >out
''']
"#,
        screens.display()
    )
}

/// Creates a session of it that shows this dialog.
fn begin(pool: &Pool, name: &str, dialog: &str) -> String {
    let cwd = pool.path(name);
    fs::create_dir(&cwd).unwrap();
    let (dialog, cwd) = (format!("DIALOG={dialog}"), cwd.to_str().unwrap());
    pool.ok(&["new", name, "--agent", "asking", "--cwd", cwd, "--size", "120x40", "--env", &dialog])
}

#[test]
fn a_dialog_at_the_start_is_answered_as_the_configuration_says_once_and_no_other_is() {
    let pool = Pool::with(&asking("{ trust = ['Enter'] }"));
    let (id, other) = (begin(&pool, "trust", "claude-trust"), begin(&pool, "bypass", "claude-bypass"));
    assert!(!pool.ok(&["send", &id, "--wait", "done", "text"]).is_empty());
    let read =
        |name: &str, file: &str| String::from_utf8(fs::read(pool.path(name).join(file)).unwrap()).unwrap();
    assert_eq!(read("trust", "answer"), "\r");
    pool.await_file(pool.path("trust").join("out"), |bytes| bytes.ends_with(b"\r"));
    assert_eq!(read("trust", "out"), "\x1b[200~text\x1b[201~\r", "one key, and then the prompt");
    // Any other dialog waits for a person.
    let asks =
        eventually("it asks", PATIENCE, || Some(pool.show(&other)).filter(|s| s["activity"] == "attention"));
    assert_eq!((&asks["activity_detail"], &asks["ask"]["kind"]), (&json!("bypass"), &json!("dialog")));
    assert_eq!(read("bypass", "answer"), "");
    assert!(!pool.path("bypass/out").exists());
}

#[test]
fn only_dialogs_that_come_by_themselves_may_be_answered_by_configuration() {
    let pool = Pool::bare("");
    for (dialogs, says) in [
        ("{ trsut = ['Enter'] }", "did you mean trust?"),
        ("{ permission = ['Enter'] }", "claude does not ask this by itself"),
    ] {
        pool.configure(&asking(dialogs));
        let said = pool.ctl(&["config", "check"]).expect(2);
        assert!(said.stderr.contains(says), "{said:?}");
    }
}

#[test]
fn a_prompt_of_a_shell_that_comes_back_at_once_is_seen() {
    let config = r#"
[agents.marked]
command = 'sh'
args = ['-c', '''
while printf '\033]133;A\007$ \033]133;B\007'; read -r line; do
  printf '\033]133;C\007'
  eval "$line"
  printf '\033]133;D;%s\007' $?
done
''']
confirm = 'prompt'
"#;
    let pool = Pool::with(config);
    let id = pool.ok(&["new", "sh", "--agent", "marked", "--cwd", "."]);
    pool.ok(&["wait", &id, "--for", "idle"]);
    for _ in 0..3 {
        let message = pool.json(&["send", &id, "--wait", "done", ":"]);
        let shown = pool.json(&["queue", "show", &id, &message["id"].to_string()]);
        assert_eq!(shown["reason"], "its prompt came back", "{shown}");
    }
}

#[test]
fn all_that_hooks_left_is_read_at_the_start_in_its_order_and_nothing_that_is_still_written() {
    let pool = Pool::with("");
    let id = pool.script("web", "env | grep ^POOL_ >place.new; mv place.new place; exec cat");
    let dir = pool.dir(&id);
    let place = String::from_utf8(pool.await_file(dir.join("work/place"), |_| true)).unwrap();
    let tag = place.lines().find_map(|line| line.strip_prefix("POOL_INCARNATION=")).unwrap().to_owned();
    pool.kill9(Program::Poold);
    let hooks = dir.join("hooks");
    fs::create_dir_all(&hooks).unwrap();
    let began = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let leave = |name: String, number: u64, signal: Value| {
        let at = u64::try_from(began).unwrap() + number;
        let hook = json!({
            "session": id, "tag": tag, "id": number, "at": at, "agent": "generic", "conversation": null,
            "transcript": null, "signal": signal,
        });
        fs::write(hooks.join(name), json!({ "version": 1, "hook": hook }).to_string()).unwrap();
    };
    for number in 0..600 {
        let signal = json!({ "working": { "what": format!("step {number}"), "skill": null } });
        leave(format!("{number:04}.json"), number, signal);
    }
    leave(".9999.json".to_owned(), 9999, json!({ "ended": { "reason": "no" } }));
    nix::unistd::mkfifo(&hooks.join("0300-pipe.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    pool.start(Program::Poold);
    pool.await_complete();
    let left =
        || fs::read_dir(&hooks).unwrap().map(|file| file.unwrap().file_name()).collect::<BTreeSet<_>>();
    let kept = [".9999.json", "0300-pipe.json.bad"].map(std::ffi::OsString::from);
    wait_until("they are read", PATIENCE, || left() == BTreeSet::from(kept.clone()));
    let shown = pool.show(&id);
    assert_eq!(
        (&shown["activity"], &shown["activity_detail"]),
        (&json!("busy"), &json!("step 599")),
        "{shown}"
    );
}
