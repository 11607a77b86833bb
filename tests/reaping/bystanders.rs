//! Bystanders that no rule may name: panes of others, attached sessions, and those that give signs of life.

use super::support::{Process, SOON, await_look, events};
use crate::harness::{PATIENCE, Pool, Talk, wait_until};
use crate::life::support::attached;

/// Every rule kills, soon, but later than a busy machine may keep a working session silent.
const STRICT: &str = "idle_session = '5s'\nhung = '5s'\nstale_agent = '5s'\nstale_worker = '5s'\n\
                      [reaper.policy]\nidle_session = 'kill'\nhung = 'kill'\nstale_agent = 'kill'\nstale_worker = 'kill'\n";

#[test]
fn p06_panes_of_others_who_is_attached_and_who_lives_are_never_named() {
    let quick = SOON.replace("[reaper]", "idle_quiet = '1s'\nidle_settle = '300ms'\n[reaper]");
    let pool = Pool::with(&format!("{quick}{STRICT}"));
    pool.script("first", "while :; do echo; sleep 0.1; done");
    let new = ["new-session", "-d", "-s", "foreign", "-P", "-F", "#{pane_pid}", "exec sleep 1000"];
    let foreign: u32 = pool.tmux_text(&new).parse().unwrap();
    let attached_to = pool.ok(&["new", "attached", "--pin", "--", "sleep", "1000"]);
    let _client = attached(&pool, &attached_to);
    pool.ok(&["unpin", &attached_to]);
    let pinned = pool.ok(&["new", "pinned", "--pin", "--", "sleep", "1000"]);
    // A session with much to do that writes all the time, and a worker that only sends heartbeats.
    pool.script("busy", "while :; do echo; sleep 0.1; done");
    pool.ok(&["send", "busy", "text"]);
    let mut worker = pool.poolctl();
    let handler = format!("echo $$ >{}; exec sleep 1000", pool.path("handler").display());
    worker.args([
        "--json",
        "work",
        "busy",
        "--kind",
        "job",
        "--heartbeat",
        "100ms",
        "--",
        "sh",
        "-c",
        &handler,
    ]);
    let worker = Talk::start(&mut worker);
    pool.ok(&["send", "busy", "--kind", "job", "text"]);
    let handler = pool.await_file("handler", |text| text.ends_with(b"\n"));
    let handler: u32 = String::from_utf8(handler).unwrap().trim().parse().unwrap();
    let agents = ["first", &attached_to, &pinned, "busy"].map(|id| pool.pane_pids(id).0);
    let all: Vec<Process> = agents
        .iter()
        .chain([&foreign, &worker.pid(), &handler])
        .map(|pid| Process::of(*pid).unwrap())
        .collect();

    let mut ended = 0;
    for n in 0..2 {
        // The rules are in force: a session with nothing to do is ended.
        let idle = pool.script(&format!("idle{n}"), "exec sleep 1000");
        wait_until("it is ended", PATIENCE, || {
            let named = pool.json(&["reap", "--dry-run"]);
            for candidate in named["candidates"].as_array().unwrap() {
                assert_eq!(candidate["session"], idle.as_str(), "{named}");
            }
            pool.lifecycle(&idle) == "stopped"
        });
        ended += events(&pool, "stale_found", Some(&idle)).len();
    }
    assert_eq!(ended, 2, "{}", pool.journal());
    await_look(&pool);
    let hurt: Vec<_> = all.iter().filter(|process| !process.runs()).collect();
    assert!(hurt.is_empty(), "{hurt:?} of {all:?} {}", pool.journal());
    assert_eq!(events(&pool, "stale_found", None).len(), 2 + 1, "{}", pool.journal());
    assert!(pool.tmux_sessions().contains(&"foreign".to_owned()));
}
