//! Ending trees that do not want to end: by the init after its program, and by the ladder from outside.

use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use process::handle::Handle;
use process::identity::{self, State};
use process::init::End;
use process::kill::{Options, kill};
use process::tree::{Member, members};

use crate::pane::{Pane, wait_until};

crate::tests![
    the_init_leaves_nothing_behind,
    signals_during_the_clean_up_change_nothing,
    an_init_stays_until_its_terminal_is_read_to_the_end,
    a_terminal_that_nobody_reads_holds_no_init,
    p04_what_ignores_stops_or_forks_is_ended,
    nothing_outruns_the_ladder,
    the_ladder_ends_what_a_dead_init_left,
    the_ladder_ends_a_stopped_init,
    the_protected_are_spared_and_lead_to_nobody,
    ending_twice_is_ending_once,
    a_stranger_is_no_target,
];

/// When a tree has grown.
#[derive(Clone, Copy)]
enum Grown {
    /// It is this many processes, one of them a sleeper.
    Sleeps(usize),
    /// One of it is stopped.
    Stopped,
    /// It is never quiet.
    Busy,
}

/// What the tree is, and a script that starts it.
const TREES: [(&str, &str, Grown); 13] = [
    ("plain", "sleep 1000 &", Grown::Sleeps(1)),
    ("orphan", "(sleep 1000 &)", Grown::Sleeps(1)),
    ("ignores TERM and HUP", "(trap '' TERM HUP INT; while :; do sleep 1000; done) &", Grown::Sleeps(2)),
    ("setsid", "setsid sleep 1000 &", Grown::Sleeps(1)),
    ("setsid, orphan", "setsid sh -c 'sleep 1000 & ' &", Grown::Sleeps(1)),
    ("setsid, orphan, env -i", "setsid env -i sh -c 'sleep 1000 & ' &", Grown::Sleeps(1)),
    (
        "as before, ignores TERM",
        "setsid env -i sh -c 'trap \"\" TERM HUP; sleep 1000 & ' &",
        Grown::Sleeps(1),
    ),
    ("makes zombies", "sh -c 'true & true & exec sleep 1000' &", Grown::Sleeps(1)),
    (
        "a chain of 500",
        "run() { [ $1 = 0 ] && exec sleep 1000; (run $(($1 - 1))); :; }; run 499 &",
        Grown::Sleeps(500),
    ),
    ("stopped", "sh -c 'kill -STOP $$; sleep 1000' &", Grown::Stopped),
    (
        "stopped, ignores TERM",
        "setsid sh -c 'trap \"\" TERM HUP; kill -STOP $$; sleep 1000' &",
        Grown::Stopped,
    ),
    (
        "starts others",
        "setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 0.01 & sleep 0.01; done' &",
        Grown::Busy,
    ),
    (
        "runs from itself",
        "setsid sh -c 'trap \"\" TERM HUP; run() { sleep 0.01; run & }; run' &",
        Grown::Busy,
    ),
];

fn options(grace: u64) -> Options {
    Options { grace: Duration::from_millis(grace), verify: Duration::from_secs(20), ..Options::default() }
}

/// The tree, below a program that ends with code 7 at the Enter key.
fn grown(tree: &str, grown: Grown) -> Pane {
    let pane = Pane::script(&format!("{tree}\nread line; exit 7"));
    wait_until(tree, || {
        let living: Vec<_> =
            pane.living().into_iter().filter_map(|pid| identity::read(pid).unwrap()).collect();
        let sleepers = living.iter().filter(|process| process.comm == "sleep".into()).count();
        match grown {
            Grown::Sleeps(count) => sleepers == 1 && living.len() == count + 2,
            Grown::Stopped => living.iter().any(|process| process.state == State::Stopped),
            Grown::Busy => living.len() > 3,
        }
    });
    pane
}

fn the_init_leaves_nothing_behind() {
    for (name, tree, size) in TREES {
        for _ in 0..2 {
            let mut pane = grown(tree, size);
            pane.type_keys(b"\n");
            assert_eq!(pane.end_alone(), End::Code(7), "{name}");
        }
    }
}

fn signals_during_the_clean_up_change_nothing() {
    let mut pane = grown("(trap '' TERM HUP INT; while :; do sleep 1000; done) &", Grown::Sleeps(2));
    let init = pane.started().init;
    pane.type_keys(b"\n");
    wait_until("the clean-up", || pane.file("exit").exists());
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGUSR1] {
        if let Some(handle) = Handle::open(init).unwrap() {
            handle.signal(signal).unwrap();
        }
    }
    pane.hang_up();
    assert_eq!(pane.end_alone(), End::Code(7));
}

/// More than one read takes, and less than a terminal holds.
const LAST: &str = "seq 1 1500; printf 'the last word'";

fn an_init_stays_until_its_terminal_is_read_to_the_end() {
    // It stays for 5 s: where the test itself stood still for long, it is tried again.
    let in_time = (0..5).any(|_| {
        let mut pane = Pane::script(LAST);
        let output = Arc::clone(&pane.output);
        let unread = output.lock().unwrap();
        wait_until("the program's end", || pane.file("exit").exists());
        let since = std::fs::metadata(pane.file("exit")).unwrap().modified().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let stays = pane.init.try_wait().unwrap().is_none();
        drop(unread);
        if since.elapsed().unwrap() > Duration::from_secs(1) {
            return false;
        }
        assert!(stays, "it stays");
        assert_eq!(pane.end_alone(), End::Code(0));
        assert!(pane.output().ends_with("1500\r\nthe last word"), "{}", pane.output());
        true
    });
    assert!(in_time, "the machine stands still");
}

fn a_terminal_that_nobody_reads_holds_no_init() {
    let mut pane = Pane::script(LAST);
    let output = Arc::clone(&pane.output);
    let unread = output.lock().unwrap();
    assert_eq!(pane.end(), End::Code(0));
    drop(unread);
    pane.wait_for_output("the last word");
    pane.wait_for_output("tmux-pool: not read to its end within 5s: the last output may be missing");
}

/// The init ends by itself, as its program did: by TERM, or by KILL where the machine was too busy for the short grace.
fn ends_by_the_ladder(pane: &mut Pane) {
    let end = pane.end_alone();
    let End::Signal(signal @ (9 | 15)) = end else { panic!("{end:?}") };
    assert_eq!(pane.record().signal, Some(signal));
}

fn p04_what_ignores_stops_or_forks_is_ended() {
    for (name, tree, size) in TREES {
        for _ in 0..2 {
            let mut pane = grown(tree, size);
            let report = kill(&pane.evidence(), &options(200)).unwrap();
            assert_eq!(report.survivors, [], "{name}");
            assert!(report.killed.len() > 1, "{name}: {report:?}");
            assert!(pane.living().iter().all(|pid| *pid == pane.init.id()), "{name}");
            ends_by_the_ladder(&mut pane);
        }
    }
}

/// A process that forks and ends all the time is never where it was seen.
fn nothing_outruns_the_ladder() {
    let myself = std::env::current_exe().unwrap();
    for by_init in [true, false, true, false] {
        let script = format!("TEST_ROLE=runner {} & read line; exit 7", myself.display());
        let mut pane = Pane::script(&script);
        let evidence = pane.evidence();
        let agent = pane.started().agent;
        let runs = |m: &Member| m.id != agent && m.ppid == evidence.init.unwrap().pid;
        wait_until("the runner", || members(&evidence, &[]).unwrap().iter().any(runs));
        if by_init {
            pane.type_keys(b"\n");
            assert_eq!(pane.end_alone(), End::Code(7));
        } else {
            assert_eq!(kill(&evidence, &options(200)).unwrap().survivors, []);
            ends_by_the_ladder(&mut pane);
        }
    }
}

/// Without its init, what has left the session and dropped its environment cannot be told from others.
fn the_ladder_ends_what_a_dead_init_left() {
    for (name, tree, size) in TREES.into_iter().filter(|(_, tree, _)| !tree.contains("env -i")) {
        let mut pane = grown(tree, size);
        let evidence = pane.evidence();
        pane.init.kill().unwrap();
        assert_eq!(pane.end(), End::Signal(9));
        let report = kill(&evidence, &options(200)).unwrap();
        assert_eq!((report.survivors, pane.living()), (vec![], vec![]), "{name}");
    }
}

fn the_ladder_ends_a_stopped_init() {
    let mut pane = grown("(trap '' TERM HUP; while :; do sleep 1000; done) &", Grown::Sleeps(2));
    let init = pane.started().init;
    assert!(Handle::open(init).unwrap().unwrap().signal(Signal::SIGSTOP).unwrap());
    wait_until("the stop", || identity::state(init).unwrap() == State::Stopped);
    assert_eq!(kill(&pane.evidence(), &options(200)).unwrap().survivors, []);
    ends_by_the_ladder(&mut pane);
}

fn the_protected_are_spared_and_lead_to_nobody() {
    let pane = grown("setsid sh -c 'env -i sleep 1000 & echo $$ >spared; wait' &", Grown::Sleeps(2));
    let spared = pane.dir.path().join("spared");
    wait_until("the number", || std::fs::read_to_string(&spared).is_ok_and(|text| text.ends_with('\n')));
    let pid: u32 = std::fs::read_to_string(&spared).unwrap().trim().parse().unwrap();
    // A running init would end them itself once its program has gone.
    let init = pane.started().init;
    assert!(Handle::open(init).unwrap().unwrap().signal(Signal::SIGSTOP).unwrap());
    let protected = vec![pid, init.pid];
    let report = kill(&pane.evidence(), &Options { protected, ..options(200) }).unwrap();
    assert_eq!(report.survivors, []);
    assert_eq!(pane.living().len(), 3, "the init, the protected and its child");
}

fn ending_twice_is_ending_once() {
    let mut pane = grown("sleep 1000 &", Grown::Sleeps(1));
    let evidence = pane.evidence();
    assert!(!kill(&evidence, &options(200)).unwrap().killed.is_empty());
    assert_eq!(kill(&evidence, &options(200)).unwrap(), process::kill::Report::default());
    ends_by_the_ladder(&mut pane);
    assert_eq!(kill(&evidence, &options(200)).unwrap(), process::kill::Report::default());
}

fn a_stranger_is_no_target() {
    let mut pane = grown("sleep 1000 &", Grown::Sleeps(1));
    let mut evidence = pane.evidence();
    evidence.tag = protocol::ids::Tag([1; 16]);
    evidence.init.as_mut().unwrap().start += 1;
    assert_eq!(kill(&evidence, &options(0)).unwrap(), process::kill::Report::default());
    assert_eq!(pane.living().len(), 3, "init, program and tree");
    pane.type_keys(b"\n");
    assert_eq!(pane.end_alone(), End::Code(7));
}
