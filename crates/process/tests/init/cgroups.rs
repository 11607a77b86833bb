//! Tests with a program in a control group of its own.

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use process::cgroup::{self, Subtree};
use process::handle::Handle;
use process::identity;
use process::init::InitExit;
use process::kill::{KillOptions, KillReport, SparedDaemons, kill};
use process::tree::Evidence;
use protocol::{Limits, Tag};

use crate::pane::{Pane, WAIT, tag, wait_until};

crate::tests![
    the_program_lives_in_its_group_and_the_init_outside,
    a_group_that_cannot_be_entered_is_a_limit_that_cannot_be_held,
    the_init_ends_what_is_in_its_group,
    the_init_ends_a_fork_bomb,
    the_ladder_ends_a_fork_bomb_whose_init_is_dead,
    what_is_in_the_group_belongs_whatever_else_it_is,
    the_protected_in_the_group_are_spared,
    a_daemon_in_the_group_that_serves_others_is_spared,
    another_users_process_in_the_group_is_left_and_named,
    a_group_of_another_name_is_left_alone,
];

const NOBODY: u32 = 65534;
/// A grace period in which TERM takes effect on a slow machine as well.
const AMPLE: Duration = Duration::from_secs(10);

/// A subtree of control groups with a group for the tag of this run; removed at the end of the test.
struct Groups {
    root: PathBuf,
    group: PathBuf,
}

impl Groups {
    /// Creates the subtree; `None`, with a message, if that is not possible here.
    fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mount =
            mounts.lines().find(|line| line.contains(" - cgroup2 ")).and_then(|line| line.split(' ').nth(4));
        let name = format!("init-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let root = Path::new(mount.unwrap_or("/nowhere")).join(name);
        match Subtree::at(&root).and_then(|subtree| {
            subtree.prepare()?;
            subtree.create(tag(), &Limits::default())
        }) {
            Ok(group) => Some(Self { root, group: group.path }),
            Err(error) => {
                crate::skipped(&error);
                None
            }
        }
    }

    fn pane(&self, script: &str) -> Pane {
        Pane::run(&["sh", "-c", script], |job| job.cgroup = Some(self.group.as_path().into()))
    }

    fn count(&self) -> usize {
        cgroup::processes(&self.group).unwrap().len()
    }

    /// Evidence that consists of the group alone.
    fn evidence(&self) -> Evidence {
        Evidence { init: None, sid: None, tag: tag(), cgroup: Some(self.group.clone()), socket: None }
    }

    /// Starts a process in the group that does not belong to a pane.
    fn stranger(&self, user: Option<u32>) -> Child {
        let mut command = Command::new("sleep");
        command.arg("1000").env_clear().stdin(Stdio::null());
        if let Some(user) = user {
            command.uid(user);
        }
        let child = command.spawn().unwrap();
        fs::write(self.group.join("cgroup.procs"), child.id().to_string()).unwrap();
        child
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        drop(cgroup::kill(&self.root));
        wait_until("the end of all in the group", || cgroup::remove(&self.root).is_ok());
    }
}

fn options() -> KillOptions {
    let (grace, verify) = (Duration::from_millis(200), Duration::from_secs(20));
    KillOptions { grace, verify, ..KillOptions::default() }
}

fn the_program_lives_in_its_group_and_the_init_outside() {
    let Some(groups) = Groups::new() else { return };
    let mut pane = groups.pane(&format!("sleep 1000 & {WAIT}; exit 4"));
    let started = pane.started();
    wait_until("the child", || groups.count() >= 2);
    let inside = cgroup::processes(&groups.group).unwrap();
    assert!(inside.contains(&started.agent.pid) && !inside.contains(&started.init.pid));
    assert_eq!(started.unenforced, [""; 0]);
    pane.go();
    assert_eq!(pane.end_alone(), InitExit::Code(4));
    assert!(groups.group.exists() && !cgroup::is_populated(&groups.group).unwrap(), "left for its maker");
}

fn a_group_that_cannot_be_entered_is_a_limit_that_cannot_be_held() {
    let run = |limits: &str, best_effort: bool| {
        Pane::run(&["sh", "-c", "touch ran"], |job| {
            job.cgroup = Some("/nowhere".into());
            job.limits = Limits { best_effort, ..limits.parse().unwrap() };
        })
    };
    let why = "its control group cannot be entered: No such file or directory";
    let mut pane = run("mem=1G,tasks=9,nice=1", false);
    assert_eq!(pane.end_alone(), InitExit::Code(126));
    let error = pane.record().exec_error.unwrap();
    assert!(error.starts_with(&format!("not started without its limit mem=1G,tasks=9: {why}")), "{error}");
    assert!(!pane.dir.path().join("ran").exists());
    // A group without limits is not required.
    for (limits, best_effort, name) in [("mem=1G", true, "mem=1G"), ("nice=1", false, "control group")] {
        let mut pane = run(limits, best_effort);
        assert_eq!(pane.end_alone(), InitExit::Code(0));
        let said = &pane.started().unenforced;
        assert!(said.len() == 1 && said[0].starts_with(&format!("{name}: {why}")), "{said:?}");
    }
}

fn bomb() -> String {
    format!("env -i TEST_ROLE=bomb {}", std::env::current_exe().unwrap().display())
}

/// Including a process that the program did not start.
fn the_init_ends_what_is_in_its_group() {
    let Some(groups) = Groups::new() else { return };
    let mut stranger = groups.stranger(None);
    let mut pane = Pane::run(&["sh", "-c", "exit 3"], |job| {
        job.cgroup = Some(groups.group.as_path().into());
        job.grace_ms = AMPLE.as_millis().try_into().unwrap();
    });
    assert_eq!(pane.end_alone(), InitExit::Code(3));
    assert!(!cgroup::is_populated(&groups.group).unwrap());
    assert_eq!(stranger.wait().unwrap().signal(), Some(Signal::SIGTERM as i32));
}

fn the_init_ends_a_fork_bomb() {
    let Some(groups) = Groups::new() else { return };
    let mut pane = groups.pane(&format!("{} & read line; exit 7", bomb()));
    wait_until("the bomb", || groups.count() > 150);
    pane.type_keys(b"\n");
    assert_eq!(pane.end_alone(), InitExit::Code(7));
    assert_eq!(groups.count(), 0);
}

/// The bomb meets no criterion except its group.
fn the_ladder_ends_a_fork_bomb_whose_init_is_dead() {
    let Some(groups) = Groups::new() else { return };
    let mut pane = groups.pane(&format!("{} & read line; exit 7", bomb()));
    wait_until("the bomb", || groups.count() > 150);
    let evidence = Evidence { cgroup: Some(groups.group.clone()), ..pane.evidence() };
    pane.init.kill().unwrap();
    assert_eq!(pane.end(), InitExit::Signal(9));
    wait_until("the bomb, without the init", || groups.count() > 150);
    assert_eq!(kill(&evidence, &options()).unwrap().survivors, []);
    assert_eq!((groups.count(), cgroup::is_populated(&groups.group).unwrap()), (0, false));
}

fn what_is_in_the_group_belongs_whatever_else_it_is() {
    let Some(groups) = Groups::new() else { return };
    let mut stranger = groups.stranger(None);
    let id = identity::identify(stranger.id()).unwrap().unwrap();
    let options = KillOptions { grace: AMPLE, ..options() };
    let KillReport { killed, survivors, .. } = kill(&groups.evidence(), &options).unwrap();
    assert_eq!((killed.iter().map(|member| member.id).collect::<Vec<_>>(), survivors), (vec![id], vec![]));
    let status = stranger.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::SIGTERM as i32), "it got TERM first");
}

fn the_protected_in_the_group_are_spared() {
    let Some(groups) = Groups::new() else { return };
    let mut spared = groups.stranger(None);
    let mut deaf = Command::new("sh");
    deaf.args(["-c", "trap '' TERM HUP; while :; do sleep 0.01; done"]);
    let mut deaf = deaf.spawn().unwrap();
    fs::write(groups.group.join("cgroup.procs"), deaf.id().to_string()).unwrap();
    let options = KillOptions { protected: vec![spared.id()], ..options() };
    assert_eq!(kill(&groups.evidence(), &options).unwrap().survivors, []);
    assert_eq!(cgroup::processes(&groups.group).unwrap(), [spared.id()]);
    deaf.wait().unwrap();
    spared.kill().unwrap();
    spared.wait().unwrap();
}

fn another_users_process_in_the_group_is_left_and_named() {
    let Some(groups) = Groups::new() else { return };
    if !nix::unistd::getuid().is_root() {
        return crate::skipped("only root can be another user");
    }
    let mut other = groups.stranger(Some(NOBODY));
    let mut own = groups.stranger(None);
    let id = identity::identify(other.id()).unwrap().unwrap();
    let KillReport { survivors, foreign, .. } = kill(&groups.evidence(), &options()).unwrap();
    assert_eq!((survivors, foreign.iter().map(|member| member.id).collect::<Vec<_>>()), (vec![], vec![id]));
    assert_eq!(own.wait().unwrap().signal(), Some(Signal::SIGTERM as i32));
    assert_eq!(cgroup::processes(&groups.group).unwrap(), [other.id()]);
    other.kill().unwrap();
    other.wait().unwrap();
}

fn a_group_of_another_name_is_left_alone() {
    let Some(groups) = Groups::new() else { return };
    let mut stranger = groups.stranger(None);
    let evidence = Evidence { tag: Tag([1; 16]), ..groups.evidence() };
    assert_eq!(kill(&evidence, &options()).unwrap(), KillReport::default());
    let id = identity::identify(stranger.id()).unwrap().unwrap();
    assert!(Handle::open(id).unwrap().is_some(), "it lives");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

/// The group is then not killed as a whole, and stays populated by the daemon.
fn a_daemon_in_the_group_that_serves_others_is_spared() {
    for by_itself in [true, false] {
        let Some(groups) = Groups::new() else { return };
        let myself = std::env::current_exe().unwrap();
        let server = format!("TEST_ROLE=serve TEST_ARGUMENT=$PWD/out setsid -f {}", myself.display());
        let stubborn = "(trap '' TERM HUP; while :; do sleep 1000; done) &";
        let mut pane =
            groups.pane(&format!("{server} </dev/null >/dev/null 2>&1; {stubborn} {WAIT}; exit 4"));
        wait_until("the tree", || pane.dir.path().join("out").exists() && groups.count() >= 5);
        if by_itself {
            pane.go();
        } else {
            let spares = SparedDaemons::Servers { private: None };
            let options = KillOptions { spares, ..options() };
            let evidence = Evidence { cgroup: Some(groups.group.clone()), ..pane.evidence() };
            let report = kill(&evidence, &options).unwrap();
            assert_eq!((report.survivors.len(), report.spared.len()), (0, 2), "{report:?}");
        }
        pane.end();
        assert_eq!((groups.count(), pane.living().len()), (2, 2), "the server and its child");
        let last = kill(&groups.evidence(), &options()).unwrap();
        assert_eq!((last.killed.len(), groups.count()), (2, 0));
    }
}
