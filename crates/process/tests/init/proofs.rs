//! Tests that only the right processes are signalled, that survivors are reported, and that an interrupted
//! kill can be repeated.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::libc;
use nix::sys::signal::{Signal, kill as send};
use nix::unistd::Pid;
use process::handle::Handle;
use process::identity::{self, State};
use process::init::InitExit;
use process::inspect::usage::usage;
use process::kill::{KillOptions, KillReport, KillStep, kill, kill_with_hook};
use process::tree::marker_scan::{Marker, MarkerScanner};
use process::tree::{Evidence, Table};
use protocol::{ProcId, Tag};

use crate::pane::{Pane, myself, tag, wait_until};

crate::tests![
    p01_200_forced_pid_reuses_signal_no_impostor,
    p03_survivors_are_named_with_their_state,
    p05_a_kill_can_be_repeated_after_a_crash_at_any_point,
    a_process_counts_until_its_last_thread_ends,
];

const REUSES: u32 = 200;
/// Memory of the program without a main thread, in bytes.
const MEMORY: usize = 64 << 20;
const NOBODY: Tag = Tag([3; 16]);

/// Ends its main thread, and goes on with another one, which has memory.
#[expect(unsafe_code, reason = "no library ends a single thread")]
pub(crate) fn go_on_without_main_thread() -> ExitCode {
    std::thread::spawn(|| {
        let memory = std::hint::black_box(vec![1_u8; MEMORY]);
        std::thread::sleep(Duration::from_secs(60));
        drop(memory);
    });
    // SAFETY: ends the calling thread, which holds nothing that another one needs.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    ExitCode::FAILURE
}

fn a_process_counts_until_its_last_thread_ends() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("TEST_ROLE", "threads").env("POOL_INCARNATION", NOBODY.to_string());
    let mut child = command.spawn().unwrap();
    let id = identity::identify(child.id()).unwrap().unwrap();
    let stat = || std::fs::read_to_string(format!("/proc/{}/stat", id.pid)).unwrap();
    wait_until("its main thread ends", || stat().contains(") Z "));
    let table = Table::read_below(&[id]).unwrap();
    let found = || usage(&table, id, Some(id), None).unwrap();
    wait_until("its memory", || found().memory >= MEMORY as u64);
    assert_eq!((found().processes, found().memory_by.as_str()), (1, "rss"));
    let marked = MarkerScanner::default().scan().unwrap();
    assert!(marked.iter().any(|found| found.process == id && found.marker == Marker::Incarnation(NOBODY)));
    drop((child.kill(), child.wait()));
    assert_eq!(found().processes, 0);
}

/// In a pid namespace of its own, where the next pid can be chosen.
fn p01_200_forced_pid_reuses_signal_no_impostor() {
    let mut inside = Command::new("unshare");
    inside.args(["--pid", "--fork", "--mount-proc"]).arg(std::env::current_exe().unwrap());
    let may = Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).output();
    if !may.as_ref().is_ok_and(|output| output.status.success()) {
        return crate::skipped(&format!("no process numbers of its own can be had: {may:?}"));
    }
    let output = inside.env("TEST_ROLE", "reuse").stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs as pid 1 of the namespace.
pub(crate) fn reuse() -> ExitCode {
    let mut twins = 0;
    for _ in 0..REUSES {
        let mut victim = leader();
        let id = identity::identify(victim.id()).unwrap().unwrap();
        let held = Handle::open(id).unwrap().unwrap();
        drop((victim.kill(), victim.wait()));
        let (mut impostor, now) = impostor(&held, &mut twins);
        assert!(!held.signal(Signal::SIGTERM).unwrap());
        assert!(Handle::open(id).unwrap().is_none());
        let evidence =
            Evidence { init: Some(id), sid: Some(id.pid), tag: NOBODY, cgroup: None, socket: None };
        for init_exits_last in [true, false] {
            let options = KillOptions { grace: Duration::ZERO, init_exits_last, ..KillOptions::default() };
            assert_eq!(kill(&evidence, &options).unwrap(), KillReport::default());
        }
        assert_eq!(identity::state(now).unwrap(), State::Running, "it was signalled");
        drop((impostor.kill(), impostor.wait()));
    }
    assert!(twins > 0, "no impostor started within the tick of its victim: nothing is proved about those");
    ExitCode::SUCCESS
}

/// Starts `sleep` in a session of its own.
#[expect(unsafe_code, reason = "setsid is called between fork and exec")]
fn leader() -> Child {
    let mut command = Command::new("sleep");
    command.arg("1000").stdin(Stdio::null());
    // SAFETY: the only call is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            Ok(())
        });
    }
    command.spawn().unwrap()
}

/// Starts another process with the same pid and a later start time. Repeats if both started within the same
/// clock tick (10 ms), which happens only because the pid is chosen: such a twin has the identity of the
/// victim, and only the victim's descriptor tells them apart.
fn impostor(victim: &Handle, twins: &mut u32) -> (Child, ProcId) {
    let id = victim.id();
    loop {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (id.pid - 1).to_string()).unwrap();
        let mut other = leader();
        let now = identity::identify(other.id()).unwrap().unwrap();
        assert_eq!(now.pid, id.pid);
        if now.start != id.start {
            return (other, now);
        }
        *twins += 1;
        assert!(victim.exited().unwrap(), "the twin is taken for its victim");
        assert!(!victim.signal(Signal::SIGKILL).unwrap());
        assert_eq!(identity::state(now).unwrap(), State::Running, "the twin was signalled");
        assert_eq!(other.try_wait().unwrap(), None, "the twin was signalled");
        drop((other.kill(), other.wait()));
    }
}

/// On a process that a tracer stops during its exit, which survives KILL.
fn p03_survivors_are_named_with_their_state() {
    let mut pane = Pane::script("sleep 1000 & wait");
    let is_sleep =
        |pid: u32| identity::read(pid).unwrap().is_some_and(|process| process.comm == "sleep".into());
    wait_until("the tree", || pane.living().len() == 3 && pane.living().into_iter().any(is_sleep));
    let agent = pane.started().agent;
    let mut tracer = myself("tracer", Path::new(&agent.pid.to_string()));
    let mut tracer = tracer.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let ready = std::io::Read::read(tracer.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    if ready == 0 {
        drop(tracer.wait());
        return crate::skipped("it may not be traced");
    }
    // Time for the other process to end.
    let (grace, verify) = (Duration::from_millis(100), Duration::from_secs(2));
    let report = kill(&pane.evidence(), &KillOptions { grace, verify, ..KillOptions::default() }).unwrap();
    let survivors: Vec<_> = report.survivors.iter().map(|member| (member.id, member.state)).collect();
    assert_eq!(survivors, [(agent, State::Stopped)]);
    assert_eq!(report.killed.iter().map(|member| member.comm.clone()).collect::<Vec<_>>(), ["sleep".into()]);
    drop((tracer.kill(), tracer.wait()));
    assert_eq!(pane.end_alone(), InitExit::Signal(9));
}

/// Stops a process during its exit, until this process exits itself.
#[expect(unsafe_code, reason = "it traces")]
pub(crate) fn trace(pid: &Path) -> ExitCode {
    let pid: libc::pid_t = pid.to_str().and_then(|pid| pid.parse().ok()).unwrap();
    // SAFETY: no memory is passed.
    let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, libc::PTRACE_O_TRACEEXIT) };
    if seized == 0 {
        drop(std::io::Write::write(&mut std::io::stdout(), b"!\n"));
        drop(std::io::Read::read(&mut std::io::stdin(), &mut [0]));
    }
    ExitCode::SUCCESS
}

/// The killer crashes before its first step, then before its second, and so on, until it completes.
fn p05_a_kill_can_be_repeated_after_a_crash_at_any_point() {
    let script =
        "setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1000; done' & (setsid sleep 1000 &) ; read line";
    for step in 1.. {
        let mut pane = Pane::script(script);
        wait_until("the tree", || pane.living().len() == 5);
        let evidence = pane.evidence();
        let init = evidence.init.unwrap();
        let argument = format!("{} {} {} {step}", init.pid, init.start, tag());
        let status = myself("killer", Path::new(&argument)).status().unwrap();
        let crashed = status.signal() == Some(Signal::SIGKILL as i32);
        assert!(crashed || status.success(), "{step}: {status}");
        assert_eq!(kill(&evidence, &options()).unwrap().survivors, [], "{step}");
        assert!(matches!(pane.end_alone(), InitExit::Signal(9 | 15)), "{step}");
        if !crashed {
            assert!(step > 5, "at least a scan, TERM, a scan, KILL and two scans");
            return;
        }
    }
}

fn options() -> KillOptions {
    let (grace, verify) = (Duration::from_millis(30), Duration::from_secs(20));
    KillOptions { grace, verify, ..KillOptions::default() }
}

/// Kills itself before the given step.
pub(crate) fn killer(argument: &Path) -> ExitCode {
    let words: Vec<&str> = argument.to_str().unwrap().split(' ').collect();
    let [pid, start, tag, last] = words[..] else { return ExitCode::FAILURE };
    let init = ProcId { pid: pid.parse().unwrap(), start: start.parse().unwrap() };
    let tag = tag.parse().unwrap();
    let evidence = Evidence { init: Some(init), sid: Some(init.pid), tag, cgroup: None, socket: None };
    let (step, last) = (AtomicU32::new(0), last.parse::<u32>().unwrap());
    let crash = |_: KillStep| {
        if step.fetch_add(1, Ordering::Relaxed) + 1 == last {
            let _ = send(Pid::this(), Signal::SIGKILL);
        }
    };
    kill_with_hook(&evidence, &options(), &crash).unwrap();
    ExitCode::SUCCESS
}
