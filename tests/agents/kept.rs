//! Parking never loses an unsent text in a composer, nor processes that an agent runs in the background.

use std::fs;

use super::fakes::{self, Agent};
use crate::harness::{PATIENCE, wait_until};

/// Number of times the session was to be parked and was not.
fn kept(agent: &Agent<'_>) -> usize {
    agent.events("session_live").len() - agent.lines("runs").len()
}

/// Asserts that the session, idle for longer than allowed, stays live for the reason `why`.
#[track_caller]
fn stays(agent: &Agent<'_>, why: &str) {
    let before = kept(agent);
    agent.pool.ok(&["update", &agent.id, "--idle-timeout", "500ms"]);
    wait_until("it was looked at, and goes on", PATIENCE, || kept(agent) > before);
    assert_eq!(agent.show()["lifecycle"], "live");
    let refused = agent.pool.ctl(&["park", &agent.id]).expect(4);
    assert!(refused.stderr.contains(why) && refused.stderr.contains("--force"), "{refused:?}");
    assert_eq!(agent.show()["lifecycle"], "live");
}

#[test]
fn a_text_that_nobody_has_sent_yet_keeps_its_session() {
    let pool = fakes::pool("");
    for kind in ["claude", "codex"] {
        let agent = Agent::new(&pool, kind);
        agent.tell("hello");
        agent.keys(&["h", "a", "l", "f"]);
        wait_until("it is drawn", PATIENCE, || pool.ok(&["capture", &agent.id]).contains("half"));
        stays(&agent, "its composer holds text");
        assert!(pool.ok(&["capture", &agent.id]).contains("half"));
        // Without the text, the session may be parked.
        agent.keys(&["C-c"]);
        pool.await_lifecycle(&agent.id, "parked");
    }
}

#[test]
fn what_an_agent_runs_in_the_background_keeps_its_session() {
    let pool = fakes::pool("");
    for (kind, what) in [("claude", "1 shell"), ("codex", "1 background terminal running")] {
        let agent = Agent::new(&pool, kind);
        agent.tell("BACKGROUND");
        stays(&agent, what);
        // An agent with work in the background takes prompts nevertheless.
        agent.tell("meanwhile");
        fs::write(agent.path("background-ends"), "").unwrap();
        pool.await_lifecycle(&agent.id, "parked");
    }
}

/// A helper in the agent's own terminal session does not prevent parking.
#[cfg(target_os = "linux")]
#[test]
fn what_an_agent_runs_and_does_not_show_keeps_its_session() {
    let pool = fakes::pool("");
    for kind in ["claude", "codex"] {
        let agent = Agent::new(&pool, kind);
        agent.tell("TREE");
        let tool: u32 = agent.lines("tool")[0].parse().unwrap();
        stays(&agent, &format!("it runs sleep (pid {tool}) in the background"));
        crate::harness::send_signal(tool, nix::sys::signal::Signal::SIGKILL);
        pool.ok(&["park", &agent.id]);
    }
}

#[test]
fn by_name_and_force_it_is_parked_all_the_same() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    agent.tell("BACKGROUND");
    pool.ok(&["park", "--force", &agent.id]);
    pool.await_lifecycle(&agent.id, "parked");
}

#[cfg(target_os = "linux")]
#[test]
fn by_force_it_is_parked_while_another_one_still_looks_at_what_would_be_lost() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    agent.tell("TREE");
    let mut looks = crate::harness::Talk::start(pool.poolctl().args(["park", &agent.id]));
    pool.await_lifecycle(&agent.id, "draining");
    pool.ok(&["park", "--force", &agent.id]);
    assert_eq!(agent.show()["lifecycle"], "parked");
    assert_eq!(looks.await_end(), Some(0), "{}", looks.errors());
}
