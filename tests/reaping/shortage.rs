//! The rules about the machine. A limit that any machine exceeds makes it short of memory.

use serde_json::{Value, json};

use super::held::{events, found, lines_of};
use super::rules::explained;
use crate::harness::{PATIENCE, Pool, wait_until};

const CONFIG: &str = "[pool]\nmin_free_disk = '0B'\nmin_free_memory = '0B'\nidle_quiet = '100ms'\nidle_settle = '100ms'\n\
                      [agents.keeper]\ncommand = 'sh'\nargs = ['-c', 'exec cat >>$HOME/got']\nparkable = true\n\
                      [reaper]\ninterval = '100ms'\ngrace = '200ms'\nhost_disk = 'never'\n";
const SHORT: &str = "host_memory = '1%'\n";
const ENOUGH: &str = "host_memory = 'never'\n";
const PARK: &str = "[reaper.policy]\nhost_memory = 'park'\n";

/// A session that was given something to do, so that it may be parked from then on.
fn idle(pool: &Pool, name: &str, flags: &[&str]) -> String {
    let id = pool.ok(&[&["new", name, "--agent", "keeper"], flags].concat());
    pool.ok(&["send", &id, "--wait", "done", name]);
    id
}

#[test]
fn g07_on_a_machine_short_of_memory_the_idlest_is_parked_one_at_a_time_and_no_prompt_wakes_it() {
    let pool = Pool::with(&format!("{CONFIG}{ENOUGH}{PARK}"));
    let first = idle(&pool, "first", &[]);
    let (pinned, second) = (idle(&pool, "pinned", &["--pin"]), idle(&pool, "second", &[]));
    assert_eq!(explained(&pool, &first)["host_memory"]["applies"], false);
    assert_eq!(pool.json(&["status"])["room"]["short_of"], json!([]));
    pool.reload(&format!("{CONFIG}{SHORT}{PARK}"));
    assert_eq!(pool.await_lifecycle(&first, "parked")["reason"], "host_memory");
    let told = events(&pool, &["stale_found"]);
    let told: Vec<&Value> = told.iter().filter(|event| event["session"] == first.as_str()).collect();
    assert_eq!(
        (told.len(), &told[0]["rule"], &told[0]["action"]),
        (1, &json!("host_memory"), &json!("park"))
    );
    let evidence = told[0]["evidence"].as_str().unwrap();
    assert!(
        evidence.contains("of the machine's memory are in use") && evidence.contains("limit 1%"),
        "{evidence}"
    );
    // The next one has to wait, which takes longer than this test.
    wait_until("the pause is told", PATIENCE, || {
        explained(&pool, &second)["host_memory"]["why"].as_str().unwrap().contains("waits for 30 s")
    });
    assert!(explained(&pool, &pinned)["host_memory"]["why"].as_str().unwrap().contains("it is pinned"));
    let status = pool.json(&["status"]);
    assert!(status["room"]["short_of"][0].as_str().unwrap().contains("limit 1%"), "{status}");
    assert_eq!((&status["healthy"], pool.lifecycle(&second).as_str()), (&json!(true), "live"));
    assert!(pool.ok(&["status"]).contains("short of "));
    // A prompt waits, and says why.
    pool.ok(&["send", &first, "again"]);
    wait_until("it is told why it waits", PATIENCE, || {
        let shown = pool.lines(&["queue", "ls", &first]);
        shown.iter().any(|message| message.to_string().contains("until the machine has enough again"))
    });
    assert_eq!(pool.lifecycle(&first), "parked");
    pool.reload(&format!("{CONFIG}{ENOUGH}{PARK}"));
    wait_until("it is woken, and has its prompt", PATIENCE, || {
        lines_of(&pool, "home/got") == ["first", "pinned", "second", "again"]
    });
    assert_eq!((pool.lifecycle(&second).as_str(), pool.lifecycle(&pinned).as_str()), ("live", "live"));
    assert_eq!(found(&pool, &second), []);
}

#[test]
fn g07_a_shortage_is_reported_by_default_and_a_problem_if_nobody_can_be_parked() {
    let pool = Pool::with(&format!("{CONFIG}{SHORT}"));
    let web = idle(&pool, "web", &[]);
    wait_until("it is reported", PATIENCE, || {
        found(&pool, &web) == [("host_memory".to_owned(), "report".to_owned())]
    });
    assert_eq!((pool.lifecycle(&web).as_str(), &pool.json(&["status"])["healthy"]), ("live", &json!(true)));
    pool.ok(&["pin", &web]);
    pool.reload(&format!("{CONFIG}{SHORT}{PARK}"));
    wait_until("the problem is told", PATIENCE, || {
        let problems = pool.ctl(&["status"]).stdout;
        problems.matches("no session can be parked for it").count() == 1
    });
    assert_eq!(found(&pool, &web).len(), 1);
    // A person's start is none of the pool's.
    pool.ok(&["park", &web]);
    pool.await_lifecycle(&web, "parked");
    pool.ok(&["restore", &web]);
    pool.await_lifecycle(&web, "live");
}
