//! Prompts that were typed but not confirmed, or may have been typed: never typed again, and reported as they
//! are.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;

use super::fakes::{self, Agent};
use crate::faults::support::crash_at;
use crate::harness::{PATIENCE, Pool, Program, send_signal, wait_until};

/// Longer than the pool tries to get an unconfirmed prompt accepted.
const GIVEN_UP: Duration = Duration::from_secs(80);
/// Exit code of an abort.
const ABORTED: i32 = 134;

/// Hook payloads of an agent's accepted prompt and of its turn's end.
fn hooks(agent: &Agent<'_>, prompt: &str) -> [serde_json::Value; 2] {
    let of = |event: &str| json!({ "hook_event_name": event, "session_id": agent.conversation() });
    let (mut taken, mut over) = (of("UserPromptSubmit"), of("Stop"));
    taken["prompt"] = json!(prompt);
    over["last_assistant_message"] = json!("at last");
    [taken, over]
}

#[test]
fn a_lost_hook_leaves_the_prompt_typed_with_a_reason_until_the_agent_or_a_person_says_more() {
    let pool = fakes::pool("");
    let (lost, stuck) = (Agent::claude(&pool), Agent::codex(&pool));
    let (one, two) = (lost.send("LOST one"), stuck.send("STUCK two"));
    let left = |agent: &Agent<'_>, id: &str| {
        let left = agent.await_message(id, GIVEN_UP, |m| m["state"] == "typed" && m["reason"].is_string());
        left["reason"].as_str().unwrap().to_owned()
    };
    assert_eq!(left(&lost, &one), "typed, and the agent has not confirmed it");
    let stands =
        "typed, and it stands in the composer still: press Enter there; none of its hooks has ever reported";
    assert_eq!(left(&stuck, &two), stands);
    assert_eq!((lost.pastes().len(), lost.enters()), (1, 1));
    // One Enter may have been pressed while the agent did not read.
    assert!(lost.lines("strays").len() <= 1, "no Enter where the text is gone");
    assert_eq!((stuck.pastes().len(), stuck.enters()), (1, 6), "Enter, and five times again");
    // Who waits is told, and does not wait for ever.
    for what in [format!("message:{two}"), "queue-empty".to_owned()] {
        let wait = ["wait", &stuck.id, "--for", &what, "--timeout", "60s"];
        let told = pool.ctl(&wait).expect(1).stderr;
        let says = [
            "nothing confirms it",
            "it is left to you",
            &format!("queue resolve {} {two}", stuck.show()["name"].as_str().unwrap()),
        ];
        assert!(says.iter().all(|part| told.contains(part)), "{what}: {told}");
    }
    // A later hook still counts.
    let [taken, over] = hooks(&lost, "LOST one");
    assert_eq!(lost.hook("claude", &taken).expect(0).stdout, "");
    lost.await_state(&one, "accepted");
    assert_eq!(lost.hook("claude", &over).expect(0).stdout, "");
    assert_eq!(lost.await_state(&one, "done")["result"], "at last");
    lost.assert_unharmed();
    // A person's decision ends a prompt as well.
    pool.ok(&["queue", "resolve", &stuck.id, &two, "--as", "dead"]);
    assert_eq!(stuck.state(&two), "dead");
    stuck.keys(&["C-c"]);
    assert_eq!(stuck.tell("three"), "done: three");
    stuck.assert_unharmed();
}

#[test]
fn a_prompt_that_is_only_in_the_agents_own_record_was_accepted() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let id = agent.send("RECORDED");
    let accepted = agent.await_message(&id, PATIENCE, |m| m["state"] != "typed" && m["state"] != "typing");
    assert!(matches!(accepted["state"].as_str(), Some("accepted" | "queued")), "{accepted}");
    agent.await_state(&id, "accepted");
    assert_eq!((agent.pastes().len(), agent.enters()), (1, 1));
}

#[test]
fn a_person_may_end_a_typed_prompt_at_once_and_the_next_one_is_typed() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let one = agent.send_until("LOST one", "typed");
    let two = agent.send("two");
    pool.ok(&["queue", "resolve", &agent.id, &one, "--as", "done"]);
    assert_eq!(agent.state(&one), "done");
    agent.await_state(&two, "done");
    assert_eq!(agent.prompts(), ["LOST one", "two"]);
    agent.assert_unharmed();
}

#[test]
fn enter_is_not_pressed_while_a_dialog_is_shown_nor_once_a_hook_spoke() {
    let pool = fakes::pool("");
    let (dialog, speaks) = (Agent::claude(&pool), Agent::claude(&pool));
    let (one, two) = (dialog.send("DIALOG"), speaks.send("SPEAKS"));
    dialog.await_state(&one, "typed");
    speaks.await_state(&two, "typed");
    // An agent typed to after them gets its second Enter; by then they would have got theirs.
    let other = Agent::claude(&pool);
    for n in 0..2 {
        other.tell(&format!("SWALLOW {n}"));
    }
    assert_eq!((dialog.enters(), speaks.enters(), other.enters()), (1, 1, 4));
    dialog.go();
    dialog.await_state(&one, "done");
    assert_eq!((dialog.pastes().len(), dialog.enters()), (1, 1));
    assert_eq!((speaks.state(&two), speaks.enters()), ("typed".to_owned(), 1));
    dialog.assert_unharmed();
}

/// Waits until it has died, and starts another one.
#[track_caller]
fn restarted(pool: &Pool) {
    assert_eq!(pool.await_end(Program::Poold), ABORTED, "{}", pool.logs());
    pool.kill9(Program::Poold);
    pool.start(Program::Poold);
    // A pool with a message in doubt is not healthy, so only `poold` is awaited.
    pool.await_poold();
}

/// Removes the receipts from the panes, which then say nothing of what was typed.
#[track_caller]
fn forget_receipts(pool: &Pool) {
    assert_eq!(pool.await_end(Program::Poold), ABORTED, "{}", pool.logs());
    for pane in pool.tmux_text(&["list-panes", "-a", "-F", "#{pane_id}"]).lines() {
        pool.tmux(&["set-option", "-p", "-u", "-t", pane, "@pool_typed"]).expect(0);
    }
}

#[test]
fn q06_whatever_the_moment_of_a_crash_an_agent_gets_its_prompt_once_and_nobody_is_asked() {
    for kind in ["claude", "codex"] {
        let pool = fakes::pool("");
        let agent = Agent::new(&pool, kind);
        for (n, point) in ["deliver-typing", "deliver-pasted", "deliver-typed"].into_iter().enumerate() {
            crash_at(&pool, point);
            let one = agent.send(&format!("{point} one"));
            restarted(&pool);
            let two = agent.send(&format!("{point} two"));
            assert_eq!(agent.await_state(&one, "done")["result"], format!("done: {point} one"));
            agent.await_state(&two, "done");
            assert_eq!((agent.pastes().len(), agent.enters()), (2 * n + 2, 2 * n + 2), "{kind} {point}");
            assert!(agent.show()["ask"].is_null(), "no person is asked");
        }
        agent.assert_unharmed();
    }
}

#[test]
fn q06_what_somebody_said_by_hand_while_poold_was_away_is_not_the_prompt_that_it_was_about_to_type() {
    let pool = fakes::pool("");
    for (text, said) in [("run the tests", "do not run the tests today"), ("continue", "continue")] {
        let agent = Agent::claude(&pool);
        crash_at(&pool, "deliver-typing");
        let id = agent.send(text);
        assert_eq!(pool.await_end(Program::Poold), ABORTED, "{}", pool.logs());
        for hook in hooks(&agent, said) {
            agent.hook("claude", &hook).expect(0);
        }
        assert_eq!(agent.spooled(), 2);
        restarted(&pool);
        assert_eq!(agent.await_state(&id, "done")["result"], format!("done: {text}"));
        assert_eq!((agent.pastes().len(), agent.enters()), (1, 1));
        agent.assert_unharmed();
        pool.ok(&["rm", &agent.id, "--force"]);
    }
}

#[test]
fn q06_of_a_prompt_of_which_its_pane_tells_nothing_a_person_is_asked() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    crash_at(&pool, "deliver-typing");
    let id = agent.send("hello");
    let next = agent.id.clone();
    forget_receipts(&pool);
    restarted(&pool);
    agent.await_state(&id, "in_doubt");
    let shown = agent.show();
    assert_eq!((&shown["activity"], &shown["activity_source"]), (&json!("attention"), &json!("queue")));
    assert_eq!(shown["ask"]["kind"], "message");
    pool.ctl(&["wait", &next, "--for", "attention"]).expect(0);
    assert_eq!(pool.ctl(&["approve", &next]).code, 4, "no permission is asked for");
    // The prompt in doubt holds its lane.
    let two = agent.send("two");
    assert_eq!((agent.state(&two), agent.pastes()), ("queued".to_owned(), Vec::new()));
    pool.ok(&["queue", "resolve", &agent.id, &id, "--as", "retry"]);
    agent.await_state(&two, "done");
    assert_eq!(agent.prompts(), ["hello", "two"]);
    assert_eq!(agent.show()["activity"], "idle");
    agent.assert_unharmed();
}

#[test]
fn q06_a_prompt_that_is_to_die_in_doubt_asks_nobody_and_the_next_one_goes() {
    for (config, flags) in [("", &["--in-doubt", "dead"][..]), ("[queue]\nin_doubt = 'dead'\n", &[])] {
        let pool = fakes::pool(config);
        let agent = Agent::claude(&pool);
        crash_at(&pool, "deliver-typing");
        let id = pool.ok(&[&["send", &agent.id, "hello"], flags].concat());
        forget_receipts(&pool);
        restarted(&pool);
        let two = agent.send("two");
        let dead = agent.await_state(&id, "dead");
        assert_eq!((&dead["reason_code"], &dead["attempts"]), (&json!("no_receipt"), &json!(1)), "{dead}");
        agent.await_state(&two, "done");
        assert_eq!(agent.prompts(), ["two"]);
        assert_eq!(pool.lines(&["events", "--kind", "message_in_doubt"]).len(), 1);
        agent.assert_unharmed();
    }
}

#[test]
fn q06_a_prompt_that_is_to_arrive_at_least_once_is_typed_again_and_nobody_is_asked() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    crash_at(&pool, "deliver-typing");
    let id = pool.ok(&["send", &agent.id, "hello", "--in-doubt", "retry"]);
    forget_receipts(&pool);
    restarted(&pool);
    let two = agent.send("two");
    let wait = ["wait", &agent.id, "--for", &format!("message:{id}"), "--timeout", "60s"];
    pool.ctl(&wait).expect(0);
    let steps = pool.json(&["queue", "show", &agent.id, &id])["history"].clone();
    let codes: Vec<_> = steps.as_array().unwrap().iter().map(|step| step["reason_code"].clone()).collect();
    assert!(codes.contains(&json!("no_receipt")) && codes.contains(&json!("typed_again")), "{steps}");
    agent.await_state(&two, "done");
    assert_eq!(agent.prompts(), ["hello", "two"]);
    agent.assert_unharmed();
}

#[test]
fn q06_what_the_agents_hooks_left_while_poold_was_away_says_what_became_of_a_prompt() {
    let pool = fakes::pool("");
    for (kind, text) in [("claude", "hello"), ("codex", "TOOL now")] {
        let agent = Agent::new(&pool, kind);
        crash_at(&pool, "deliver-typed");
        let id = agent.send(text);
        assert_eq!(pool.await_end(Program::Poold), ABORTED, "{}", pool.logs());
        agent.await_prompts(&[text]);
        wait_until("its hooks left what they say", PATIENCE, || !agent.lines("overs").is_empty());
        restarted(&pool);
        let done = agent.await_state(&id, "done");
        assert!(done["result"].is_string(), "{done}");
        agent.await_all_read();
        assert_eq!((agent.pastes().len(), agent.enters()), (1, 1), "{kind}");
        agent.assert_unharmed();
        pool.ok(&["rm", &agent.id, "--force"]);
    }
}

#[test]
fn q06_while_it_is_not_decided_whether_a_prompt_was_typed_hooks_leave_what_they_say() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    crash_at(&pool, "deliver-typed");
    let id = agent.send("LOST hello");
    assert_eq!(pool.await_end(Program::Poold), ABORTED, "{}", pool.logs());
    let tmux = pool.tmux_pid().unwrap();
    send_signal(tmux, Signal::SIGSTOP);
    pool.kill9(Program::Poold);
    pool.start(Program::Poold);
    wait_until("it answers", PATIENCE, || pool.ctl(&["show", &agent.id]).code == 0);
    for hook in hooks(&agent, "LOST hello") {
        agent.hook("claude", &hook).expect(0);
    }
    assert_eq!((agent.state(&id), agent.spooled()), ("typing".to_owned(), 2));
    send_signal(tmux, Signal::SIGCONT);
    assert_eq!(agent.await_state(&id, "done")["result"], "at last");
    assert_eq!((agent.pastes().len(), agent.enters()), (1, 1));
    agent.assert_unharmed();
}

#[test]
fn what_an_agent_left_in_a_file_goes_before_the_end_of_the_turn_that_it_tells_of() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    for n in 0..5 {
        let text = format!("LOST {n}");
        let id = agent.send_until(&text, "typed");
        let [taken, over] = hooks(&agent, &text);
        agent.unheard("claude", &taken);
        agent.hook("claude", &over).expect(0);
        assert_eq!(agent.await_state(&id, "done")["result"], "at last");
    }
    agent.assert_unharmed();
}

/// Appends a line to the agent's own record of its conversation.
#[track_caller]
fn record(agent: &Agent<'_>, mut line: serde_json::Value) {
    line["timestamp"] = json!("2100-01-01T00:00:00.000Z");
    let mut file = File::options().create(true).append(true).open(agent.path("record.jsonl")).unwrap();
    writeln!(file, "{line}").unwrap();
}

#[test]
fn a_prompt_that_waits_in_the_agents_own_queue_is_not_accepted_yet() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let id = agent.send_until("LOST hello", "typed");
    record(&agent, json!({ "type": "queue-operation", "operation": "enqueue", "content": "LOST hello" }));
    let usage = json!({ "input_tokens": 7, "output_tokens": 0 });
    record(&agent, json!({ "type": "assistant", "message": { "usage": usage } }));
    agent.await_shown("its record was read", |shown| shown["tokens"] == 7);
    // The end of the turn that ran meanwhile.
    let [taken, mut over] = hooks(&agent, "LOST hello");
    over["last_assistant_message"] = json!("of the turn before");
    agent.hook("claude", &over).expect(0);
    assert_eq!(agent.state(&id), "typed");
    agent.hook("claude", &taken).expect(0);
    over["last_assistant_message"] = json!("at last");
    agent.hook("claude", &over).expect(0);
    assert_eq!(agent.await_state(&id, "done")["result"], "at last");
}

#[test]
fn what_hooks_left_in_files_goes_before_what_the_agent_recorded_and_before_its_next_start() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    for n in 0..4 {
        let text = format!("LOST {n}");
        let id = agent.send_until(&text, "typed");
        for hook in hooks(&agent, &text) {
            agent.unheard("claude", &hook);
        }
        match n {
            3 => drop(pool.ok(&["restart", &agent.id])),
            _ => {
                record(&agent, json!({ "type": "user", "message": { "role": "user", "content": text } }));
                record(&agent, json!({ "type": "system", "subtype": "turn_duration" }));
            }
        }
        assert_eq!(agent.await_state(&id, "done")["result"], "at last");
    }
}

#[test]
fn a_kill_of_poold_while_a_prompt_is_typed_types_nothing_again() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let id = agent.send_until("LOST hello", "typed");
    for _ in 0..3 {
        pool.restart_poold();
        assert_eq!(agent.state(&id), "typed");
    }
    for hook in hooks(&agent, "LOST hello") {
        agent.hook("claude", &hook).expect(0);
    }
    agent.await_state(&id, "done");
    assert_eq!((agent.pastes().len(), agent.enters()), (1, 1));
    let slow = agent.send_until("SLOW work", "accepted");
    pool.restart_poold();
    assert_eq!(agent.state(&slow), "accepted");
    agent.go();
    agent.await_state(&slow, "done");
    assert_eq!((agent.pastes().len(), agent.enters()), (2, 2));
    assert_eq!(agent.tell("two"), "done: two");
    agent.assert_unharmed();
}

#[test]
fn a_turn_that_ends_while_poold_is_away_is_over_when_it_is_back() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let one = agent.send_until("SLOW one", "accepted");
    let two = agent.send("two");
    agent.await_all_read();
    pool.kill9(Program::Poold);
    agent.go();
    wait_until("its hook left what it says", PATIENCE, || agent.spooled() == 1);
    pool.start(Program::Poold);
    pool.await_complete();
    assert_eq!(agent.await_state(&one, "done")["result"], "done: SLOW one");
    agent.await_state(&two, "done");
    assert_eq!(agent.prompts(), ["SLOW one", "two"]);
    agent.assert_unharmed();
}

#[test]
fn q06_a_text_that_stands_in_the_composer_after_a_kill_gets_its_enter_and_is_not_typed_again() {
    let pool = fakes::pool("");
    for kind in ["claude", "codex"] {
        let agent = Agent::new(&pool, kind);
        let text = "a prompt that takes a moment until its Enter; ".repeat(8);
        let id = agent.send(&text);
        // poold pauses between a text and its Enter.
        while agent.pastes().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        pool.kill9(Program::Poold);
        let standing = agent.enters() == 0;
        pool.start_poold();
        agent.await_state(&id, "done");
        assert_eq!(agent.pastes().len(), 1, "{kind}");
        assert!(!standing || agent.enters() == 1, "{} Enters", agent.enters());
        agent.assert_unharmed();
    }
}

#[test]
fn q06_a_word_of_the_agent_ends_a_doubt() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    crash_at(&pool, "deliver-typing");
    let id = agent.send("hello");
    forget_receipts(&pool);
    restarted(&pool);
    agent.await_state(&id, "in_doubt");
    let [taken, over] = hooks(&agent, "hello");
    agent.hook("claude", &taken).expect(0);
    agent.await_state(&id, "accepted");
    agent.hook("claude", &over).expect(0);
    agent.await_state(&id, "done");
    assert_eq!(agent.pastes(), [""; 0]);
}
