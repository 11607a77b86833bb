//! A tmux server that has used up its file descriptors hangs for good. Nothing is created near that limit.

use std::thread;

use super::support::{NO_SWEEP, Theirs, await_connection};
use crate::harness::{PATIENCE, Pool, wait_until};

#[test]
fn t08_nothing_is_created_near_the_servers_limit_of_open_files() {
    let pool = Pool::with(&format!("[pool]\nmax_sessions = 100\n{NO_SWEEP}"));
    let theirs = Theirs::start(&pool, &pool.tmux_socket(), "ulimit -n 64;");
    await_connection(&pool, "native");
    let mut made = 0;
    // Several at a time, until one is refused.
    loop {
        let results: Vec<_> = thread::scope(|scope| {
            let new = |n: usize| {
                let (pool, name) = (&pool, format!("s{made}-{n}"));
                scope.spawn(move || pool.ctl(&["--timeout", "30s", "new", &name, "--", "cat"]))
            };
            let threads: Vec<_> = (0..3).map(new).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        made += results.iter().filter(|result| result.code == 0).count();
        if let Some(refused) = results.into_iter().find(|result| result.code != 0) {
            refused.expect(5);
            break;
        }
        assert!(made < 64, "the server has no room for so many");
    }
    // From here on sessions are created one at a time: while no other start is in progress, the count is exact.
    let refused = loop {
        let new = pool.ctl(&["--timeout", "30s", "new", &format!("single{made}"), "--", "cat"]);
        if new.code != 0 {
            break new.expect(5);
        }
        made += 1;
        assert!(made < 64, "the server has no room for so many");
    };
    assert!(made > 3, "some fit: {refused:?}");
    assert!(refused.stderr.contains("of 64 files open"), "{}", refused.stderr);
    let status = pool.ctl(&["--json", "status"]).expect(1).json();
    assert!(status["problems"].to_string().contains("of 64 files open"), "{status}");
    let files = &status["tmux"]["open_files"];
    assert_eq!(files["max"], 64, "{status}");
    let used = files["used"].as_u64().unwrap();
    assert!((40..64).contains(&used), "{status}");
    assert!(pool.ctl(&["status"]).expect(1).stdout.contains("64"));
    // The server is not full: it answers, existing sessions are served, and freed descriptors are used again.
    assert_eq!(theirs.text(&["display-message", "-p", "#{pid}"]), theirs.pid().to_string());
    assert_eq!(pool.lines(&["ls"]).len(), made);
    let names: Vec<String> =
        pool.lines(&["ls"]).iter().map(|session| session["id"].as_str().unwrap().to_owned()).collect();
    pool.ok(&["send", &names[0], "text"]);
    pool.ok(&["capture", &names[0]]);
    for id in &names {
        pool.ok(&["kill", id]);
    }
    wait_until("there is room again", PATIENCE, || pool.ctl(&["status"]).code == 0);
    pool.ok(&["new", "again", "--", "cat"]);
}
