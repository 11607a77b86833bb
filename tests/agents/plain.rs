//! Agents described by data: OpenCode by its plugin's reports, Aider by its prompt history, any other by a
//! configured description of its screen and by `poolctl hook generic`.

use std::fs;

use super::fakes::{self, Agent};
use crate::harness::{PATIENCE, Pool, wait_until};

const SCRIPT: &str = include_str!("plain.sh");
const KINDS: [&str; 3] = ["opencode", "aider", "mine"];
/// A user's configuration of an agent that the pool does not know.
const MINE: &str = "confirm = 'hook'\nparkable = true\n\
    screen = { composer = '^mine: ?(.*)\\z', works = '^mine works', dialog = '^.*\\(Y\\)es/\\(N\\)o.*\\z' }\n";

#[track_caller]
fn pool() -> Pool {
    let pool = fakes::bare("");
    let script = pool.path("plain.sh");
    fs::write(&script, SCRIPT).unwrap();
    let table = |kind: &str| {
        let more = if kind == "mine" { MINE } else { "" };
        let (script, poolctl) = (script.display(), env!("CARGO_BIN_EXE_poolctl"));
        format!(
            "[agents.{kind}]\ncommand = 'bash'\nargs = ['{script}', '{kind}']\nenv = {{ POOLCTL = '{poolctl}' }}\n{more}"
        )
    };
    fakes::configure(&pool, &KINDS.map(table).concat());
    pool.start_all();
    pool
}

#[test]
fn what_they_are_sent_arrives_as_it_is_and_is_confirmed() {
    let pool = pool();
    for kind in KINDS {
        let agent = Agent::new(&pool, kind);
        let texts = ["hello", "hello", "a\tb\n\nc", "two words", "two words"];
        for text in texts {
            pool.ok(&["send", &agent.id, "--wait", "done", text]);
        }
        // Trailing blanks are not part of the prompt.
        let taken: Vec<String> = agent.prompts().iter().map(|text| text.trim_end().to_owned()).collect();
        assert_eq!(taken, texts, "{kind}");
        agent.assert_no_hook_failed();
    }
}

#[test]
fn one_prompt_waits_for_the_turn_of_another() {
    let pool = pool();
    for kind in KINDS {
        let agent = Agent::new(&pool, kind);
        agent.send("SLOW one");
        let next = agent.send("the next");
        agent.await_taken(&["SLOW one"]);
        agent.await_activity("busy");
        assert_eq!(agent.message(&next)["state"], "queued", "{kind}");
        agent.go();
        agent.await_taken(&["SLOW one", "the next"]);
    }
}

#[test]
fn a_draft_of_theirs_holds_prompts_back_and_keeps_the_session() {
    let pool = pool();
    for kind in KINDS {
        let agent = Agent::new(&pool, kind);
        pool.ok(&["send", &agent.id, "--wait", "done", "hello"]);
        agent.keys(&["h", "a", "l", "f"]);
        wait_until("it is drawn", PATIENCE, || pool.ok(&["capture", &agent.id]).contains("half"));
        let refused = pool.ctl(&["park", &agent.id]).expect(4);
        assert!(refused.stderr.contains("its composer holds text: \"half\""), "{kind}: {refused:?}");
        agent.send("not behind it");
        agent.await_shown("held back", |shown| {
            shown["waits"].as_str().is_some_and(|why| why.contains("half"))
        });
        agent.keys(&["C-c"]);
        agent.await_taken(&["hello", "not behind it"]);
    }
}

#[test]
fn nothing_is_typed_into_what_they_ask() {
    let pool = pool();
    for kind in ["aider", "mine"] {
        let agent = Agent::new(&pool, kind);
        let asks = agent.send("LOOK");
        let next = agent.send("the next");
        agent.await_state(&asks, "accepted");
        wait_until("it asks", PATIENCE, || pool.ok(&["capture", &agent.id]).contains("(Y)es/(N)o"));
        // Aider reports the question itself.
        if kind == "aider" {
            agent.await_activity("attention");
        }
        assert_eq!((agent.state(&asks), agent.state(&next)), ("accepted".into(), "queued".into()), "{kind}");
        agent.keys(&["Enter"]);
        agent.await_state(&next, "done");
    }
}

#[test]
fn what_they_ask_is_answered_from_outside() {
    let pool = pool();
    for kind in ["opencode", "mine"] {
        let agent = Agent::new(&pool, kind);
        let sent = agent.send("ASK");
        let asked = agent.await_shown("asking", |shown| !shown["ask"].is_null());
        assert_eq!(
            (&asked["ask"]["kind"], &asked["ask"]["tool"]),
            (&"permission".into(), &"bash".into()),
            "{kind}"
        );
        pool.ok(&["approve", &agent.id]);
        wait_until("it has its end", PATIENCE, || agent.message(&sent)["state"] == "done");
        assert!(agent.path("made").exists(), "{kind}");
        agent.send("ASK again");
        agent.await_shown("asking", |shown| !shown["ask"].is_null());
        pool.ok(&["approve", &agent.id, "--deny", "--reason", "not now"]);
        agent.await_activity("idle");
        let answer = fs::read_to_string(agent.path("answer")).unwrap();
        assert_eq!(answer, r#"{"allow":false,"reason":"not now"}"#, "{kind}");
    }
}

#[test]
fn a_fresh_conversation_begins_without_the_record_of_the_last() {
    let pool = pool();
    let agent = Agent::new(&pool, "aider");
    let record = pool.dir(&agent.id).join("aider.chat.history.md");
    let tell = |text: &str| {
        pool.ok(&["send", &agent.id, "--wait", "done", text]);
        fs::write(&record, text).unwrap();
    };
    tell("hello");
    pool.ok(&["park", &agent.id]);
    pool.await_lifecycle(&agent.id, "parked");
    tell("are you there?");
    pool.ok(&["restart", &agent.id]);
    assert!(record.exists(), "it is continued");
    pool.ok(&["restart", "--fresh", &agent.id]);
    assert!(!record.exists());
    tell("hello");
    pool.ok(&["reset", "--soft", &agent.id]);
    assert!(!record.exists());
}

#[test]
fn a_description_that_is_none_is_refused() {
    let pool = fakes::bare("");
    fakes::configure(&pool, "[agents.mine]\ncommand = 'x'\nscreen = { composer = '(' }\n");
    let refused = pool.ctl(&["config", "check"]).expect(2);
    assert!(refused.stderr.contains("[agents.mine] screen composer: regex parse error"), "{refused:?}");
}

#[test]
fn the_table_that_the_manual_shows_is_one() {
    let manual = include_str!("../../crates/agents/README.md");
    let (_, after) = manual.split_once("```toml\n").unwrap();
    let pool = fakes::bare("");
    fakes::configure(&pool, after.split_once("```").unwrap().0);
    pool.ok(&["config", "check"]);
}
