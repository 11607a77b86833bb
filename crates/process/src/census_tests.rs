//! Marked processes of this test's own.

use std::process::Command;

use super::*;
use crate::identity::identify;
use crate::testing::{Running, wait_until};

const TAG: Tag = Tag([0xc5; 16]);

/// What a look says of one.
fn mark(census: &mut Census, pid: u32) -> Option<Tagged> {
    census.look().unwrap().into_iter().find(|tagged| tagged.process.pid == pid)
}

fn sleeper(name: &str, value: &str) -> Command {
    let mut command = Command::new("sleep");
    command.arg("60").env_clear().env(name, value).env("POOL_SOCKET", "/a b");
    command
}

#[test]
fn a_mark_is_seen_as_long_as_its_process_lives() {
    let mut census = Census::default();
    let mut child = Running::start(&mut sleeper("POOL_INCARNATION", &TAG.to_string()));
    let unmarked = Running::start(&mut sleeper("POOL_INCARNATIONS", &TAG.to_string()));
    let process = identify(child.id()).unwrap().unwrap();
    let mark_of = |census: &mut Census| mark(census, process.pid);
    // It may be on its way into the program when it is looked at.
    wait_until("its program", || mark_of(&mut census).is_some_and(|it| it.command == "sleep".into()));
    let expected = Tagged {
        process,
        mark: Mark::Incarnation(TAG),
        socket: Some("/a b".into()),
        command: "sleep".into(),
    };
    assert_eq!(mark_of(&mut census), Some(expected));
    assert_eq!(mark(&mut census, unmarked.id()), None);
    drop((child.kill(), child.wait()));
    assert_eq!(mark_of(&mut census), None);
}

/// However old it is: the environment is that of the last program it executed.
#[test]
fn a_mark_is_given_and_taken_by_exec() {
    let mut census = Census::default();
    let script = format!("read a; exec env POOL_INCARNATION={TAG} sh -c 'read a; exec env -i sleep 60'");
    let mut command = Command::new("sh");
    let mut child = Running::start(command.args(["-c", &script]).stdin(std::process::Stdio::piped()));
    let pid = child.id();
    let mut lines = child.stdin.take().unwrap();
    assert_eq!((mark(&mut census, pid), mark(&mut census, pid)), (None, None));
    std::io::Write::write_all(&mut lines, b"\n").unwrap();
    wait_until("the mark", || mark(&mut census, pid).is_some());
    assert!(mark(&mut census, pid).is_some());
    std::io::Write::write_all(&mut lines, b"\n").unwrap();
    wait_until("its end", || mark(&mut census, pid).is_none());
    wait_until("the last program", || {
        census.look().unwrap();
        census.last.as_ref().unwrap().all[&pid].now.comm == "sleep".into()
    });
    assert_eq!(mark(&mut census, pid), None);
}

#[test]
fn a_client_is_marked_with_its_owner_but_not_the_server_that_it_started() {
    let mut census = Census::default();
    let client = Running::start(&mut sleeper("POOL_TMUX_CLIENT", "77.1234"));
    wait_until("its program", || mark(&mut census, client.id()).is_some());
    let found = mark(&mut census, client.id()).unwrap();
    assert_eq!(found.mark, Mark::Client(ProcId { pid: 77, start: 1234 }));
    let mut command = Command::new("setsid");
    command.args(["sh", "-c", "sleep 60 & echo $!; wait"]).env("POOL_TMUX_CLIENT", "77.1234");
    let mut server = Running::start(command.stdout(std::process::Stdio::piped()));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(server.stdout.take().unwrap()), &mut line)
        .unwrap();
    let job: u32 = line.trim().parse().unwrap();
    let seen = |census: &mut Census, pid| {
        (census.look().unwrap(), census.last.as_ref().unwrap().all[&pid].marks.is_some())
    };
    wait_until("its program", || seen(&mut census, job).1);
    assert_eq!((mark(&mut census, server.id()), mark(&mut census, job)), (None, None));
    let job = crate::handle::Handle::open(identify(job).unwrap().unwrap()).unwrap().unwrap();
    drop(job.signal(nix::sys::signal::Signal::SIGKILL));
}
