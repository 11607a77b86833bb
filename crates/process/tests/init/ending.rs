//! Tests of killing trees that resist: by the init after its program, and by the ladder from outside.

use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use process::handle::Handle;
use process::identity::{self, State};
use process::init::InitExit;
use process::kill::{KillOptions, kill};
use process::tree::{Member, members};

use crate::pane::{Pane, wait_until};

crate::tests![
    the_init_leaves_nothing_behind,
    signals_during_the_clean_up_change_nothing,
    an_init_stays_until_its_terminal_is_read_to_the_end,
    a_terminal_that_nobody_reads_holds_no_init,
    p04_what_ignores_stops_or_forks_is_ended,
    nothing_outruns_the_ladder,
    p03_helpers_of_a_program_that_saves_its_work_at_term_are_let,
    p03_what_ignores_term_has_the_whole_grace,
    a_shell_that_is_ended_does_not_go_on_with_its_line,
    a_shell_that_cannot_be_stopped_is_not_hung_up_while_its_job_saves_its_work,
    a_shell_beside_a_job_that_ignores_term_saves_its_history,
    the_ladder_ends_what_a_dead_init_left,
    the_ladder_ends_a_stopped_init,
    the_protected_are_spared_and_lead_to_nobody,
    ending_twice_is_ending_once,
    a_stranger_is_no_target,
];

/// Condition under which a tree is complete.
#[derive(Clone, Copy)]
enum Grown {
    /// This many processes, one of them `sleep`.
    Sleeps(usize),
    /// A stopped process.
    Stopped,
    /// More than three processes; the tree changes all the time.
    Busy,
}

/// Name of each tree, and the script that starts it.
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
        "a chain of 200",
        "run() { [ $1 = 0 ] && exec sleep 1000; (run $(($1 - 1))); :; }; run 199 &",
        Grown::Sleeps(200),
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

fn options(grace: u64) -> KillOptions {
    let (grace, verify) = (Duration::from_millis(grace), Duration::from_secs(20));
    KillOptions { grace, verify, ..KillOptions::default() }
}

/// A program whose work at TERM needs helpers, one after the other; and what it does until then.
const SAVES: &str =
    "trap 'for n in 1 2 3 4 5; do sleep 0.05 || touch interrupted; done; touch saved; exit 3' TERM";
const WORKS: [&str; 2] = ["sleep 0.01", "sleep 1000"];

/// Starts the tree below a program that exits with code 7 on Enter.
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
        let mut pane = grown(tree, size);
        pane.type_keys(b"\n");
        assert_eq!(pane.end_alone(), InitExit::Code(7), "{name}");
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
    assert_eq!(pane.end_alone(), InitExit::Code(7));
}

/// Output that is longer than a single read, and shorter than the buffer of a terminal.
const LAST: &str = "seq 1 1500; printf 'the last word'";

fn an_init_stays_until_its_terminal_is_read_to_the_end() {
    // The init waits for 5 s. The test is repeated if it was itself delayed for too long.
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
        assert!(stays, "it waits");
        assert_eq!(pane.end_alone(), InitExit::Code(0));
        assert!(pane.output().ends_with("1500\r\nthe last word"), "{}", pane.output());
        true
    });
    assert!(in_time, "the machine stands still");
}

fn a_terminal_that_nobody_reads_holds_no_init() {
    let mut pane = Pane::script(LAST);
    let output = Arc::clone(&pane.output);
    let unread = output.lock().unwrap();
    assert_eq!(pane.end(), InitExit::Code(0));
    drop(unread);
    pane.wait_for_output("the last word");
    pane.wait_for_output("tmux-pool: output not read within 5s; the last of it may be missing");
}

/// Asserts that the init exits by itself like its program: by TERM, or by KILL if the machine is too busy for
/// the short grace period.
fn ends_by_the_ladder(pane: &mut Pane) {
    let end = pane.end_alone();
    let InitExit::Signal(signal @ (9 | 15)) = end else { panic!("{end:?}") };
    assert_eq!(pane.record().signal, Some(signal));
}

fn p04_what_ignores_stops_or_forks_is_ended() {
    for (name, tree, size) in TREES {
        let mut pane = grown(tree, size);
        let report = kill(&pane.evidence(), &options(200)).unwrap();
        assert_eq!(report.survivors, [], "{name}");
        assert!(report.killed.len() > 1, "{name}: {report:?}");
        assert!(pane.living().iter().all(|pid| *pid == pane.init.id()), "{name}");
        ends_by_the_ladder(&mut pane);
    }
}

fn p03_helpers_of_a_program_that_saves_its_work_at_term_are_let() {
    for work in WORKS {
        let mut pane = Pane::script(&format!("{SAVES}; echo ready; while :; do {work}; done"));
        pane.wait_for_output("ready");
        // A job that is begun after TERM is left alone for half of the grace, and the helpers behind it are not.
        let works = |pid: u32| identity::read(pid).unwrap().is_some_and(|found| found.comm == "sleep".into());
        wait_until("its work", || work == WORKS[0] || pane.living().into_iter().any(works));
        assert_eq!(kill(&pane.evidence(), &options(20_000)).unwrap().survivors, []);
        assert_eq!(pane.end_alone(), InitExit::Code(3), "{work}");
        let dir = pane.file("exit").parent().unwrap().to_owned();
        assert!(dir.join("saved").exists() && !dir.join("interrupted").exists(), "{work}");
    }
}

fn p03_what_ignores_term_has_the_whole_grace() {
    // Longer than a kill takes until it has sent its first signals.
    let work = "trap '' TERM; touch begun; sleep 1; touch saved; exit 3";
    let line = format!("sh -c \"{work}\"; touch went-on\n");
    for (program, typed, end) in [
        (&["sh", "-c", work][..], "", InitExit::Code(3)),
        (&["bash", "--norc", "-i"], line.as_str(), InitExit::Signal(1)),
    ] {
        let mut pane = Pane::run(program, |_| ());
        pane.type_keys(typed.as_bytes());
        let dir = pane.file("exit").parent().unwrap().to_owned();
        wait_until("its work", || dir.join("begun").exists());
        assert_eq!(kill(&pane.evidence(), &options(20_000)).unwrap().survivors, []);
        assert_eq!(pane.end_alone(), end, "{program:?}");
        assert!(dir.join("saved").exists() && !dir.join("went-on").exists(), "{program:?}");
    }
}

fn a_shell_that_is_ended_does_not_go_on_with_its_line() {
    for shell in [&["sh", "-i"][..], &["bash", "--norc", "-i"]] {
        let mut pane = Pane::run(shell, |_| ());
        // Begun by the command itself: between fork and exec it ignores TERM, as its shell does.
        pane.type_keys(b"sh -c 'touch begun; exec sleep 1000'; touch went-on\n");
        let dir = pane.file("exit").parent().unwrap().to_owned();
        wait_until("the command", || dir.join("begun").exists());
        assert_eq!(kill(&pane.evidence(), &options(20_000)).unwrap().survivors, []);
        assert_eq!(pane.end_alone(), InitExit::Signal(1), "{shell:?}");
        assert!(!dir.join("went-on").exists(), "{shell:?}");
    }
}

/// On a shell whose parent is not signalled, like that of an adopted pane.
fn a_shell_that_cannot_be_stopped_is_not_hung_up_while_its_job_saves_its_work() {
    let mut pane = Pane::run(&["bash", "--norc", "-i"], |_| ());
    pane.type_keys(format!("sh -c \"{SAVES}; touch begun; while :; do sleep 0.01; done\"\n").as_bytes());
    let dir = pane.file("exit").parent().unwrap().to_owned();
    wait_until("its work", || dir.join("begun").exists());
    let protected = vec![pane.started().init.pid];
    let report = kill(&pane.evidence(), &KillOptions { protected, ..options(20_000) }).unwrap();
    assert_eq!(report.survivors, []);
    assert_eq!(pane.end_alone(), InitExit::Signal(1));
    assert!(dir.join("saved").exists() && !dir.join("interrupted").exists());
}

fn a_shell_beside_a_job_that_ignores_term_saves_its_history() {
    let mut pane = Pane::run(&["bash", "--norc", "-i"], |_| ());
    pane.type_keys(b"HISTFILE=history\n");
    pane.type_keys(b"sh -c 'trap \"\" TERM; touch begun; sleep 1000; sleep 1000' &\n");
    let dir = pane.file("exit").parent().unwrap().to_owned();
    wait_until("the job", || dir.join("begun").exists());
    assert_eq!(kill(&pane.evidence(), &options(500)).unwrap().survivors, []);
    assert_eq!(pane.end_alone(), InitExit::Signal(1));
    let history = std::fs::read_to_string(dir.join("history")).unwrap();
    assert!(history.contains("touch begun"), "{history}");
}

/// On a process that forks and exits all the time.
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
            assert_eq!(pane.end_alone(), InitExit::Code(7));
        } else {
            assert_eq!(kill(&evidence, &options(200)).unwrap().survivors, []);
            ends_by_the_ladder(&mut pane);
        }
    }
}

/// Except processes that have left the session and dropped their environment: without the init they meet no
/// criterion.
fn the_ladder_ends_what_a_dead_init_left() {
    for (name, tree, size) in TREES.into_iter().filter(|(_, tree, _)| !tree.contains("env -i")) {
        let mut pane = grown(tree, size);
        let evidence = pane.evidence();
        pane.init.kill().unwrap();
        assert_eq!(pane.end(), InitExit::Signal(9));
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
    // A running init would kill them itself once its program has ended.
    let init = pane.started().init;
    assert!(Handle::open(init).unwrap().unwrap().signal(Signal::SIGSTOP).unwrap());
    let protected = vec![pid, init.pid];
    let report = kill(&pane.evidence(), &KillOptions { protected, ..options(200) }).unwrap();
    assert_eq!(report.survivors, []);
    assert_eq!(pane.living().len(), 3, "the init, the protected and its child");
}

fn ending_twice_is_ending_once() {
    let mut pane = grown("sleep 1000 &", Grown::Sleeps(1));
    let evidence = pane.evidence();
    assert!(!kill(&evidence, &options(200)).unwrap().killed.is_empty());
    assert_eq!(kill(&evidence, &options(200)).unwrap(), process::kill::KillReport::default());
    ends_by_the_ladder(&mut pane);
    assert_eq!(kill(&evidence, &options(200)).unwrap(), process::kill::KillReport::default());
}

fn a_stranger_is_no_target() {
    let mut pane = grown("sleep 1000 &", Grown::Sleeps(1));
    let mut evidence = pane.evidence();
    evidence.tag = protocol::ids::Tag([1; 16]);
    evidence.init.as_mut().unwrap().start += 1;
    assert_eq!(kill(&evidence, &options(0)).unwrap(), process::kill::KillReport::default());
    assert_eq!(pane.living().len(), 3, "init, program and tree");
    pane.type_keys(b"\n");
    assert_eq!(pane.end_alone(), InitExit::Code(7));
}
