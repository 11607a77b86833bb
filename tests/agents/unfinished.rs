//! A line that a person began in a shell and left: no prompt is appended to it.

use std::time::Duration;

use crate::agents::gates::{await_done, await_reason, prompt_waits_until};
use crate::agents::person::Person;
use crate::harness::{PATIENCE, Pool, children, wait_until};

/// A short typing pause: only the line itself holds a prompt back.
const CONFIG: &str = "
[pool]
typing_pause = '100ms'
";

/// The pause in its output by which a shell's prompt is told from what is typed behind it.
const PAUSE: Duration = Duration::from_millis(1200);

/// Creates a shell that is attached to and silent since it drew its prompt, `prompt`.
fn shell_with_person(pool: &Pool, name: &str, prompt: &str) -> Person {
    pool.ok(&[
        "new",
        name,
        "--agent",
        "shell",
        "--env",
        &format!("PS1={prompt}"),
        "--",
        "bash",
        "--norc",
        "-i",
    ]);
    let person = Person::attached(pool, name);
    wait_until("its prompt is there", PATIENCE, || screen(pool, name).ends_with(prompt.trim_end()));
    await_silence(pool, name);
    person
}

fn await_silence(pool: &Pool, name: &str) {
    let log = pool.dir(name).join("logs").join(protocol::logs::CURRENT);
    wait_until("it is silent", PATIENCE, || {
        let written = std::fs::metadata(&log).and_then(|found| found.modified()).unwrap();
        written.elapsed().is_ok_and(|ago| ago > PAUSE)
    });
}

fn screen(pool: &Pool, name: &str) -> String {
    pool.ok(&["capture", name]).trim_end().to_owned()
}

const REASON: &str = "somebody left an unfinished line in it";

#[test]
fn a_prompt_waits_until_a_line_that_somebody_began_in_a_shell_is_finished_or_erased() {
    let pool = Pool::with(CONFIG);
    let mut person = shell_with_person(&pool, "sh", "$ ");
    person.types(b"echo half >line; ");
    wait_until("it is echoed", PATIENCE, || screen(&pool, "sh").ends_with("line;"));
    let message = pool.ok(&["send", "sh", "touch prompt"]);
    await_reason(&pool, "sh", &message, REASON);
    // The person leaves; the line stays.
    drop(person);
    wait_until("nobody is attached", PATIENCE, || pool.show("sh")["attached_clients"] == 0);
    await_reason(&pool, "sh", &message, REASON);
    let work = pool.dir("sh").join("work");
    assert!(!work.join("prompt").exists());
    // Erased: its row is that of the prompt again.
    pool.ok(&["keys", "sh", "C-u"]);
    await_done(&pool, "sh", &message);
    assert!(work.join("prompt").exists() && !work.join("line").exists());
}

#[test]
fn a_line_that_somebody_left_holds_prompts_back_although_the_log_is_emptied() {
    let pool = Pool::with(CONFIG);
    let mut person = shell_with_person(&pool, "sh", "$ ");
    person.types(b"echo half >line; ");
    wait_until("it is echoed", PATIENCE, || screen(&pool, "sh").ends_with("line;"));
    pool.ok(&["clear", "sh"]);
    prompt_waits_until(&pool, REASON, "C-c");
    assert!(!pool.dir("sh").join("work/line").exists());
}

#[test]
fn a_line_that_was_typed_in_a_view_of_its_session_that_is_gone_is_somebodys() {
    let pool = Pool::with(CONFIG);
    drop(shell_with_person(&pool, "sh", "$ "));
    wait_until("nobody is attached", PATIENCE, || pool.show("sh")["attached_clients"] == 0);
    await_silence(&pool, "sh");
    let mut view = pool.command("tmux");
    view.arg("-S").arg(pool.tmux_socket()).args([
        "new-session",
        "-t",
        "=sh",
        "-s",
        "view",
        ";",
        "set-option",
        "destroy-unattached",
        "on",
    ]);
    let mut person = Person::at(&pool, "sh", view);
    person.types(b"echo half >line; ");
    wait_until("it is echoed", PATIENCE, || screen(&pool, "sh").ends_with("line;"));
    drop(person);
    wait_until("the view is gone", PATIENCE, || pool.show("sh")["attached_clients"] == 0);
    prompt_waits_until(&pool, REASON, "C-c");
    assert!(!pool.dir("sh").join("work/line").exists());
}

#[test]
fn who_only_attached_or_finished_the_line_and_other_output_hold_no_prompt_back() {
    let pool = Pool::with(CONFIG);
    // The terminal of the person has another width, so that the shell draws its prompt again.
    let mut person = shell_with_person(&pool, "sh", "a long prompt $ ");
    pool.ok(&["send", "--wait", "done", "sh", "true"]);
    wait_until("its prompt is back", PATIENCE, || screen(&pool, "sh").ends_with("prompt $"));
    person.types(b"touch line\r");
    let work = pool.dir("sh").join("work");
    wait_until("it has run", PATIENCE, || work.join("line").exists());
    pool.ok(&["send", "--wait", "done", "sh", "touch prompt"]);
    assert!(work.join("prompt").exists());
    // A program in the background writes behind the prompt, and nobody is there.
    pool.ok(&["send", "--wait", "done", "sh", "(sleep 2; printf later) &"]);
    wait_until("it has written", PATIENCE, || screen(&pool, "sh").ends_with("later"));
    pool.ok(&["send", "--wait", "done", "sh", "touch behind"]);
    assert!(work.join("behind").exists());
}

#[test]
fn a_prompt_waits_for_the_end_of_a_line_that_was_begun_by_keys() {
    let pool = Pool::with(CONFIG);
    drop(shell_with_person(&pool, "sh", "$ "));
    wait_until("nobody is attached", PATIENCE, || pool.show("sh")["attached_clients"] == 0);
    pool.ok(&["keys", "sh", "h", "a", "l", "f"]);
    wait_until("it is echoed", PATIENCE, || screen(&pool, "sh").ends_with("half"));
    // That they were pressed is on record.
    pool.restart_poold();
    prompt_waits_until(&pool, REASON, "C-u");
}

#[test]
fn a_prompt_waits_for_the_end_of_a_line_that_keys_began_while_a_command_ran() {
    let pool = Pool::with(CONFIG);
    drop(shell_with_person(&pool, "sh", "$ "));
    wait_until("nobody is attached", PATIENCE, || pool.show("sh")["attached_clients"] == 0);
    let work = pool.dir("sh").join("work");
    pool.ok(&["send", "sh", "touch begun; until [ -e over ]; do sleep 0.1; done"]);
    wait_until("it runs", PATIENCE, || work.join("begun").exists());
    pool.ok(&["keys", "sh", "r", "m", "Space", "-", "r"]);
    let message = pool.ok(&["send", "sh", "touch prompt"]);
    std::fs::write(work.join("over"), "").unwrap();
    await_reason(&pool, "sh", &message, REASON);
    pool.ok(&["keys", "sh", "C-u"]);
    await_done(&pool, "sh", &message);
    assert!(work.join("prompt").exists());
}

#[test]
fn a_program_that_a_person_ended_without_a_newline_is_no_line_of_theirs() {
    let pool = Pool::with(CONFIG);
    let mut person = shell_with_person(&pool, "sh", "$ ");
    person.types(b"cat\r");
    let (shell, _) = pool.pane_pids("sh");
    wait_until("it runs", PATIENCE, || !children(shell).is_empty());
    await_silence(&pool, "sh");
    person.types(b"\x04");
    wait_until("its prompt is back", PATIENCE, || screen(&pool, "sh").ends_with("cat\n$"));
    pool.ok(&["send", "--wait", "done", "sh", "touch prompt"]);
    assert!(pool.dir("sh").join("work/prompt").exists());
}

#[test]
fn a_line_that_somebody_left_below_a_list_of_completions_holds_a_prompt_back() {
    let pool = Pool::with(CONFIG);
    let mut person = shell_with_person(&pool, "sh", "$ ");
    let work = pool.dir("sh").join("work");
    for name in ["beta-1", "beta-2"] {
        std::fs::write(work.join(name), "").unwrap();
    }
    person.types(b"echo b\t");
    wait_until("it is completed", PATIENCE, || screen(&pool, "sh").ends_with("echo beta-"));
    person.types(b"\t\t");
    wait_until("the list is there", PATIENCE, || screen(&pool, "sh").contains("beta-1  beta-2"));
    drop(person);
    wait_until("nobody is attached", PATIENCE, || pool.show("sh")["attached_clients"] == 0);
    prompt_waits_until(&pool, REASON, "C-c");
}

#[test]
fn half_a_line_that_keys_left_in_a_program_without_hooks_holds_a_prompt_back() {
    let pool = Pool::with(CONFIG);
    pool.ok(&["new", "cat", "--", "cat"]);
    pool.ok(&["keys", "cat", "h", "a", "l", "f"]);
    wait_until("it is echoed", PATIENCE, || screen(&pool, "cat") == "half");
    let message = pool.ok(&["send", "cat", "prompt"]);
    await_reason(&pool, "cat", &message, REASON);
    // A key that is refused ends no line.
    pool.tmux_text(&["copy-mode", "-t", "=cat:"]);
    pool.ctl(&["keys", "cat", "Enter"]).expect(1);
    pool.tmux_text(&["send-keys", "-t", "=cat:", "-X", "cancel"]);
    await_reason(&pool, "cat", &message, REASON);
    pool.ok(&["keys", "cat", "Enter"]);
    await_done(&pool, "cat", &message);
    wait_until("it is a line of its own", PATIENCE, || {
        screen(&pool, "cat").lines().any(|line| line == "prompt")
    });
}
