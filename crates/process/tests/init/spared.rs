//! Tests that spared daemons survive the end of their tree, and are reported.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use process::identity;
use process::init::InitExit;
use process::kill::{KillOptions, KillReport, SparedDaemons, kill};
use process::tree::{Evidence, members};
use protocol::job::Job;
use protocol::reap::Leftovers;

use crate::pane::{Pane, wait_until};

crate::tests![
    what_serves_others_is_spared,
    what_serves_others_survives_the_end_of_the_program,
    what_was_detached_is_spared_where_that_is_asked,
    a_users_tmux_server_and_ssh_agent_survive,
];

/// Shell command that drops terminal, session and parent.
const DETACHED: &str = "setsid -f";
const SILENT: &str = "</dev/null >/dev/null 2>&1";

/// Runs a server that listens on this path and has a child.
pub(crate) fn serve(path: &Path) -> ExitCode {
    let (Ok(_listener), Ok(mut child)) =
        (UnixListener::bind(path), Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn())
    else {
        return ExitCode::FAILURE;
    };
    drop(child.wait());
    ExitCode::SUCCESS
}

fn server(path: &str) -> String {
    let myself = std::env::current_exe().unwrap();
    format!("TEST_ROLE=serve TEST_ARGUMENT=$PWD/{path} $1 {}", myself.display())
}

/// Returns a script that starts a daemon, one that listens in the private directory, and three servers that
/// are not daemons.
fn script() -> String {
    let [out, private, near, helper, talks] = ["out", "private/in", "near", "helper", "talks"].map(server);
    format!(
        "mkdir private
        set -- '{DETACHED}'; {out} {SILENT}; {private} {SILENT}
        set -- ''; {near} {SILENT} &
        set -- setsid; (trap '' TERM HUP; {helper} {SILENT}) & sleep 1000 | {talks} >/dev/null 2>&1 &
        read line; exit 7"
    )
}

/// Kills what is left at the end of a test, also if it fails.
struct Left(Evidence);

impl Drop for Left {
    fn drop(&mut self) {
        let options = KillOptions { grace: Duration::ZERO, ..KillOptions::default() };
        drop(kill(&Evidence { init: None, ..self.0.clone() }, &options));
    }
}

fn pane(script: &str, change: impl FnOnce(&mut Job)) -> (Pane, Left) {
    let pane = Pane::run(&["sh", "-c", script], |job| {
        job.private = Some(Path::new(&job.cwd.to_string_lossy()).join("private").into());
        change(job);
    });
    let left = Left(pane.evidence());
    (pane, left)
}

fn with_servers() -> (Pane, Left) {
    let (pane, left) = pane(&script(), |_| ());
    for path in ["out", "private/in", "near", "helper", "talks"] {
        wait_until(path, || std::os::unix::net::UnixStream::connect(pane.dir.path().join(path)).is_ok());
    }
    // Each server has a child.
    wait_until("the children", || pane.living().len() >= 13);
    (pane, left)
}

fn options(spares: SparedDaemons) -> KillOptions {
    let (grace, verify) = (Duration::from_millis(200), Duration::from_secs(20));
    KillOptions { grace, verify, spares, ..KillOptions::default() }
}

fn servers(pane: &Pane) -> SparedDaemons {
    SparedDaemons::Servers { private: Some(pane.dir.path().join("private")) }
}

fn reasons(report: &KillReport) -> Vec<String> {
    report.spared.iter().map(|spared| spared.reason.clone()).collect()
}

fn expected_reasons(out: &Path) -> [String; 2] {
    [format!("serves {}", out.display()), format!("belongs to a daemon that serves {}", out.display())]
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_unstable();
    list
}

fn what_serves_others_is_spared() {
    let (mut pane, _left) = with_servers();
    let out: PathBuf = pane.dir.path().join("out");
    let report = kill(&pane.evidence(), &options(servers(&pane))).unwrap();
    assert_eq!(report.survivors, []);
    assert_eq!(reasons(&report), expected_reasons(&out));
    pane.end();
    let spared: Vec<u32> = report.spared.iter().map(|spared| spared.member.id.pid).collect();
    assert_eq!(sorted(pane.living()), sorted(spared), "all but the daemon are gone");
    std::os::unix::net::UnixStream::connect(&out).unwrap();
    // The parent of the daemon is a process outside the tree now. The daemon is spared as long as the options say so.
    let again = kill(&pane.evidence(), &options(servers(&pane))).unwrap();
    assert_eq!((again.killed.len(), reasons(&again)), (0, expected_reasons(&out).to_vec()));
    let last = kill(&pane.evidence(), &options(SparedDaemons::None)).unwrap();
    assert_eq!((last.killed.len(), last.spared, pane.living()), (2, vec![], vec![]));
}

/// When its program exits by itself, the init must distinguish a daemon from a helper that was orphaned at
/// that moment.
fn what_serves_others_survives_the_end_of_the_program() {
    let (mut pane, _left) = with_servers();
    // A helper without a pipe is indistinguishable from a daemon.
    let helper = members(&pane.evidence(), &[]).unwrap();
    let is_helper = |pid: u32| {
        identity::read(pid).unwrap().is_some_and(|it| it.sid == pid && it.ppid == pane.started().agent.pid)
    };
    let helpers: Vec<_> = helper.iter().filter(|member| is_helper(member.id.pid)).collect();
    assert_eq!(helpers.len(), 2);
    pane.type_keys(b"\n");
    assert_eq!(pane.end(), InitExit::Code(7));
    let [serves, child] = expected_reasons(&pane.dir.path().join("out"));
    pane.wait_for_output(&serves);
    pane.wait_for_output(&child);
    let paths = ["out", "private/in", "near", "helper", "talks"];
    let serves =
        paths.map(|path| std::os::unix::net::UnixStream::connect(pane.dir.path().join(path)).is_ok());
    assert_eq!(serves, [true, false, false, true, false]);
}

fn what_was_detached_is_spared_where_that_is_asked() {
    let script = format!("{DETACHED} sh -c 'sleep 1000; :' {SILENT}; sleep 1000 & read line; exit 7");
    for (leftovers, count) in [(Leftovers::Report, 2), (Leftovers::Kill, 0)] {
        for by_itself in [true, false] {
            let (mut pane, _left) = pane(&script, |job| job.leftovers = leftovers);
            wait_until("the tree", || pane.living().len() == 5);
            if by_itself {
                pane.type_keys(b"\n");
            } else {
                let spares = if count == 0 { servers(&pane) } else { SparedDaemons::Detached };
                let report = kill(&pane.evidence(), &options(spares)).unwrap();
                let expected = ["was detached", "belongs to a detached daemon"];
                assert_eq!(
                    (report.survivors.len(), reasons(&report)),
                    (0, expected[..count].iter().map(ToString::to_string).collect())
                );
            }
            pane.end();
            assert_eq!(pane.living().len(), count, "{leftovers:?}, by itself: {by_itself}");
        }
    }
}

/// On real programs, if they are installed.
fn a_users_tmux_server_and_ssh_agent_survive() {
    let script =
        "{ TERM=screen tmux -f /dev/null -S $PWD/tmux.sock new -d sleep 1000; ssh-agent -a $PWD/agent.sock; } >log 2>&1
        touch started; read line; exit 7";
    for by_itself in [true, false] {
        let (mut pane, left) = pane(script, |_| ());
        wait_until("their start", || pane.dir.path().join("started").exists());
        let path = |name: &str| pane.dir.path().join(name);
        let sockets: Vec<PathBuf> =
            ["tmux.sock", "agent.sock"].map(path).into_iter().filter(|path| path.exists()).collect();
        if sockets.is_empty() {
            return crate::skipped("neither tmux nor ssh-agent");
        }
        if by_itself {
            pane.type_keys(b"\n");
        } else {
            assert_eq!(kill(&pane.evidence(), &options(servers(&pane))).unwrap().survivors, []);
        }
        pane.end();
        for path in sockets {
            std::os::unix::net::UnixStream::connect(&path).unwrap();
            let name = format!("serves {}", path.display());
            let report = kill(&Evidence { init: None, ..left.0.clone() }, &options(servers(&pane))).unwrap();
            assert!(reasons(&report).contains(&name), "{report:?}");
        }
    }
}
