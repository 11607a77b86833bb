//! Handlers cannot feed their own queue: messages sent while one is worked are its consequences.

use protocol::ErrorCode;
use protocol::message::HOPS_MAX;
use protocol::request::Send;
use serde_json::json;

use super::support::{Client, pool, send, sending, session, shown};

/// Shell command by which a handler runs `poolctl`.
fn poolctl() -> &'static str {
    env!("CARGO_BIN_EXE_poolctl")
}

#[test]
fn a_handler_cannot_feed_the_queue_that_it_works() {
    let pool = pool("");
    let other = session(&pool, "other");
    let id = send(&pool, "summarize", "text");
    let said = pool.path("said");
    let script = format!(
        "{0} send web --kind summarize again 2>>{1}; echo $? >>{1}; \
         {0} --json send other --kind summarize again >>{1}; {0} --json send web --kind note again >>{1}",
        poolctl(),
        said.display()
    );
    pool.ctl(&["work", "web", "--kind", "summarize", "--until-empty", "--", "sh", "-c", &script]).expect(0);
    let said = std::fs::read_to_string(said).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].contains("feed itself") && lines[1] == "5", "{said}");
    let queued: Vec<serde_json::Value> =
        lines[2..].iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    // A message to another queue is accepted, and names its origin.
    assert_eq!(
        (&queued[0]["session"], &queued[0]["cause"]),
        (&json!(other), &json!(id.parse::<u64>().unwrap()))
    );
    assert_eq!(
        (&queued[1]["kind"], &queued[1]["cause"]),
        (&json!("note"), &json!(id.parse::<u64>().unwrap()))
    );
    assert_eq!(pool.lines(&["queue", "ls", "web", "--kind", "summarize"]).len(), 1);
}

#[test]
fn a_chain_of_messages_has_an_end() {
    let pool = pool("");
    let codes = pool.path("codes");
    send(&pool, "k0", "text");
    let script = format!(
        "n=${{POOL_MESSAGE_KIND#k}}; {} send web --kind k$((n+1)) text >{2} 2>&1; echo $? >>{1}",
        poolctl(),
        codes.display(),
        pool.path("last").display()
    );
    pool.ctl(&["--timeout", "60s", "work", "web", "--until-empty", "--", "sh", "-c", &script]).expect(0);
    let codes = std::fs::read_to_string(codes).unwrap();
    let mut expected = vec!["0"; usize::from(HOPS_MAX)];
    expected.push("5");
    assert_eq!(codes.lines().collect::<Vec<_>>(), expected);
    assert!(std::fs::read_to_string(pool.path("last")).unwrap().contains("chain of 16"));
    assert_eq!(pool.lines(&["queue", "ls", "web", "--state", "done"]).len(), usize::from(HOPS_MAX) + 1);
}

#[test]
fn what_the_hook_of_an_agent_says_is_no_prompt_for_it() {
    let pool = pool("");
    let mut client = Client::new(&pool);
    let id = pool.show("web")["id"].as_str().unwrap().to_owned();
    let from_hook = |kind: &str| Send { origin: format!("hook:{id}"), ..sending(kind, b"text") };
    let refusal = client.sent(from_hook("prompt")).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::Refused, "{refusal:?}");
    let note = client.sent(from_hook("note")).unwrap();
    assert_eq!(shown(&pool, note)["origin"], format!("hook:{id}"));
}
