//! A shell that runs something in itself, `read` or a function, takes no prompt, and its line is looked at before
//! Enter.

use serde_json::Value;

use crate::agents::gates::{await_done, await_reason, prompt_waits_until};
use crate::agents::person::Person;
use crate::harness::{PATIENCE, Pool, children, wait_until};

const CONFIG: &str = "
[pool]
typing_pause = '100ms'
";

const REASON: &str = "its shell runs a command";

/// Creates a shell that edits its lines, and is at its prompt.
fn shell(pool: &Pool) {
    pool.ok(&["new", "sh", "--agent", "shell", "--env", "PS1=$ ", "--", "bash", "--norc", "-i"]);
    wait_until("its prompt is there", PATIENCE, || screen(pool).ends_with('$'));
    pool.ok(&["send", "--wait", "done", "sh", "true"]);
}

fn screen(pool: &Pool) -> String {
    pool.ok(&["capture", "sh"]).trim_end().to_owned()
}

#[test]
fn a_prompt_waits_while_a_shell_reads_an_answer_or_computes_also_over_a_restart() {
    let pool = Pool::with(CONFIG);
    shell(&pool);
    let asks = pool.ok(&["send", "sh", "read -p 'sure? ' answer"]);
    wait_until("it asks", PATIENCE, || screen(&pool).ends_with("sure?"));
    let behind = pool.ok(&["send", "sh", "echo \"got [$answer]\""]);
    pool.restart_poold();
    wait_until("it works", PATIENCE, || pool.show("sh")["activity"] == "busy");
    assert_eq!(pool.json(&["queue", "show", "sh", &asks])["state"], "accepted");
    pool.ok(&["keys", "sh", "y", "e", "s", "Enter"]);
    await_done(&pool, "sh", &asks);
    await_done(&pool, "sh", &behind);
    wait_until("it has the answer", PATIENCE, || screen(&pool).contains("\ngot [yes]"));
    // A `read` that begins after a long silence.
    let late = pool.ok(&["send", "sh", "sleep 4; read late"]);
    wait_until("it reads", PATIENCE, || {
        let (shell, _) = pool.pane_pids("sh");
        screen(&pool).ends_with("late") && children(shell).is_empty() && pool.show("sh")["activity"] == "busy"
    });
    pool.ok(&["keys", "sh", "Enter"]);
    await_done(&pool, "sh", &late);
    // A `read` that a person has begun.
    for key in [&["r", "e", "a", "d", "Space", "x"][..], &["Enter"]] {
        pool.ok(&[&["keys", "sh"], key].concat());
    }
    wait_until("it reads", PATIENCE, || pool.show("sh")["activity"] == "busy");
    prompt_waits_until(&pool, REASON, "Enter");
}

#[test]
fn a_key_that_a_shell_asks_for_is_not_taken_from_the_next_prompt() {
    let pool = Pool::with(CONFIG);
    shell(&pool);
    let asks = pool.ok(&["send", "sh", "read -n1 -p 'sure? ' answer"]);
    wait_until("it asks", PATIENCE, || screen(&pool).ends_with("sure?"));
    let behind = pool.ok(&["send", "sh", "echo \"got [$answer]\""]);
    wait_until("it works", PATIENCE, || pool.show("sh")["activity"] == "busy");
    pool.restart_poold();
    wait_until("it works", PATIENCE, || pool.show("sh")["activity"] == "busy");
    assert_eq!(pool.json(&["queue", "show", "sh", &asks])["state"], "accepted");
    pool.ok(&["keys", "sh", "y"]);
    await_done(&pool, "sh", &asks);
    await_done(&pool, "sh", &behind);
    wait_until("it has the answer", PATIENCE, || screen(&pool).contains("\ngot [y]"));
    // A `read` without echo that a person has begun.
    for key in [&["r", "e", "a", "d", "Space", "-", "s", "n", "1"][..], &["Enter"]] {
        pool.ok(&[&["keys", "sh"], key].concat());
    }
    wait_until("it reads", PATIENCE, || pool.show("sh")["activity"] == "busy");
    prompt_waits_until(&pool, REASON, "y");
}

#[test]
fn what_the_start_file_of_a_shell_asks_is_not_answered_by_a_prompt() {
    let pool = Pool::with(CONFIG);
    let rc = pool.path("rc");
    std::fs::write(&rc, "PS1='$ '\nread -p 'update? ' answer\n").unwrap();
    pool.ok(&["new", "sh", "--agent", "shell", "--", "bash", "--rcfile", rc.to_str().unwrap(), "-i"]);
    wait_until("it asks", PATIENCE, || screen(&pool).ends_with("update?"));
    let message = pool.ok(&["send", "sh", "echo \"[$answer]\" >prompt"]);
    await_reason(&pool, "sh", &message, REASON);
    pool.ok(&["keys", "sh", "n", "Enter"]);
    await_done(&pool, "sh", &message);
    assert_eq!(std::fs::read_to_string(pool.dir("sh").join("work/prompt")).unwrap(), "[n]\n");
}

#[test]
fn no_enter_follows_where_the_line_of_a_shell_shows_nothing_of_the_text() {
    let pool = Pool::with(CONFIG);
    shell(&pool);
    pool.ok(&["send", "--wait", "done", "sh", "set -o vi"]);
    pool.ok(&["keys", "sh", "Escape"]);
    let message = pool.ok(&["send", "sh", "pwd"]);
    let shown = || pool.json(&["queue", "show", "sh", &message]);
    wait_until("it is in doubt", PATIENCE, || shown()["state"] == "in_doubt");
    assert_eq!(shown()["reason_code"], "altered_line");
}

#[test]
fn marks_of_a_prompt_that_a_command_writes_are_not_those_of_its_shell() {
    let pool = Pool::with(CONFIG);
    let rc = pool.path("rc");
    let marks =
        r#"PS1='\[\e]133;A\a\]$ \[\e]133;B\a\]'; PS0='\[\e]133;C\a\]'; PROMPT_COMMAND='printf "\e]133;D\a"'"#;
    std::fs::write(&rc, marks).unwrap();
    pool.ok(&["new", "sh", "--agent", "shell", "--", "bash", "--rcfile", rc.to_str().unwrap(), "-i"]);
    pool.ok(&["send", "--wait", "done", "sh", "true"]);
    let command = "printf '\\e]133;A\\a'; until [ -e go ]; do sleep 0.2; done";
    let message = pool.ok(&["send", "--wait", "accepted", "sh", command]);
    pool.ctl(&["wait", "sh", "--timeout", "2s", "--for", "idle"]).expect(6);
    assert_eq!(pool.json(&["queue", "show", "sh", &message])["state"], "accepted");
    std::fs::write(pool.dir("sh").join("work/go"), "").unwrap();
    await_done(&pool, "sh", &message);
}

/// Sends a text that the shell's editor takes as commands. Returns the message, which waits for the end of what is left
/// of it.
fn altered(pool: &Pool, text: &str) -> String {
    pool.ok(&["send", "--wait", "done", "sh", "set -o vi"]);
    pool.ok(&["keys", "sh", "Escape"]);
    let message = pool.ok(&["send", "sh", text]);
    let shown = || pool.json(&["queue", "show", "sh", &message]);
    wait_until("it is in doubt", PATIENCE, || shown()["state"] == "in_doubt");
    assert!(shown()["reason"].as_str().unwrap().contains("shows another text"), "{}", shown());
    pool.ok(&["queue", "resolve", "sh", &message, "--as", "retry"]);
    await_reason(pool, "sh", &message, "somebody left an unfinished line in it");
    message
}

#[test]
fn no_enter_follows_where_the_line_of_a_shell_shows_another_text() {
    let pool = Pool::with(CONFIG);
    shell(&pool);
    let message = altered(&pool, "touch alpha beta");
    pool.ok(&["keys", "sh", "C-c"]);
    await_done(&pool, "sh", &message);
    let work = pool.dir("sh").join("work");
    let mut made: Vec<_> = std::fs::read_dir(work).unwrap().map(|found| found.unwrap().file_name()).collect();
    made.sort_unstable();
    assert_eq!(made, ["alpha", "beta"]);
    assert_eq!(pool.show("sh")["waits"], Value::Null);
}

#[test]
fn a_line_that_the_pool_left_is_cleared_by_a_person_as_well() {
    let pool = Pool::with(CONFIG);
    shell(&pool);
    let message = altered(&pool, "touch made");
    let mut person = Person::attached(&pool, "sh");
    person.types(b"\x03");
    wait_until("the line is given up", PATIENCE, || screen(&pool).ends_with('$'));
    drop(person);
    await_done(&pool, "sh", &message);
    assert!(pool.dir("sh").join("work/made").exists());
}

#[test]
fn a_wait_for_a_prompt_ends_where_its_session_is_over() {
    let pool = Pool::with(CONFIG);
    pool.ok(&["new", "sh", "--agent", "shell", "--", "bash", "--norc", "-i"]);
    let quits = pool.ok(&["send", "sh", "until [ -e over ]; do sleep 0.1; done; exit"]);
    wait_until("it runs", PATIENCE, || pool.json(&["queue", "show", "sh", &quits])["state"] == "accepted");
    let message = pool.ok(&["send", "sh", "echo behind"]);
    let condition = format!("message:{message}");
    let lines = [
        &["send", "sh", "x", "--wait", "done"][..],
        &["send", "sh", "x", "--wait", "accepted"],
        &["wait", "sh", "--for", "queue-empty"],
        &["wait", "sh", "--for", &condition],
    ];
    std::thread::scope(|scope| {
        for line in lines {
            let pool = &pool;
            scope.spawn(move || {
                let refused = pool.ctl(line).expect(1);
                assert!(refused.stderr.contains("poolctl restart sh"), "{line:?}: {}", refused.stderr);
            });
        }
        wait_until("the prompts are queued", PATIENCE, || pool.lines(&["queue", "ls", "sh"]).len() == 4);
        std::fs::write(pool.dir("sh").join("work/over"), "").unwrap();
    });
}
