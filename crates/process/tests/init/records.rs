//! Tests of the exit record, also on a full disk and when the terminal closes at that moment.

use std::fs;
use std::path::Path;
use std::process::Command;

use process::init::InitExit;

use crate::pane::{Pane, WAIT, job, wait_until, write_job};

crate::tests![
    a_disk_that_the_program_fills_has_its_record,
    a_disk_that_was_full_before_keeps_no_program_from_running,
    what_cannot_be_recorded_is_said,
    what_ended_for_want_of_memory_is_recorded,
    a_program_that_ends_as_its_terminal_goes_is_recorded_exactly,
    a_program_that_the_hang_up_ends_is_recorded_so,
];

/// A small file system, unmounted at the end of the test.
struct Disk(tempfile::TempDir);

impl Disk {
    /// Mounts it; `None`, with a message, if that is not possible here.
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mount = ["-t", "tmpfs", "-o", "size=256k", "none"];
        match Command::new("mount").args(mount).arg(dir.path()).output() {
            Ok(output) if output.status.success() => Some(Self(dir)),
            other => {
                crate::skipped(&format!("no small disk can be mounted: {other:?}"));
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(Command::new("umount").args(["-l", "-f"]).arg(self.path()).status());
    }
}

/// Starts a pane whose files are on the disk.
fn pane_on(disk: &Disk, script: &str, before: impl FnOnce()) -> Pane {
    let dir = tempfile::tempdir_in(disk.path()).unwrap();
    let path = write_job(dir.path(), &job(dir.path(), &["sh", "-c", script]));
    before();
    Pane::start(dir, &path)
}

fn fill(disk: &Disk) {
    let filled = Command::new("sh").arg("-c").arg(FILL).current_dir(disk.path()).output().unwrap();
    assert!(String::from_utf8_lossy(&filled.stderr).contains("No space"), "{filled:?}");
}

const FILL: &str = "cat /dev/zero >fill";

fn a_disk_that_the_program_fills_has_its_record() {
    let Some(disk) = Disk::new() else { return };
    let mut pane = pane_on(&disk, &format!("{FILL}; exit 9"), || ());
    assert_eq!(pane.end_alone(), InitExit::Code(9));
    assert!(fs::write(disk.path().join("more"), [1; 4096]).is_err(), "it is full");
    assert_eq!((pane.record().code, pane.output().contains("not recorded")), (Some(9), false));
    assert!(!pane.file("exit.tmp").exists());
}

fn a_disk_that_was_full_before_keeps_no_program_from_running() {
    let Some(disk) = Disk::new() else { return };
    let mut pane = pane_on(&disk, &format!("echo runs; {WAIT}; exit 9"), || fill(&disk));
    pane.wait_for_output("runs");
    let go = pane.dir.path().join("go");
    // An empty file and its directory entry take no space.
    fs::write(go, "").unwrap();
    assert_eq!(pane.end_alone(), InitExit::Code(9));
    pane.wait_for_output("was not recorded");
    assert!(!pane.file("exit").exists());

    fs::remove_file(disk.path().join("fill")).unwrap();
    let mut pane = pane_on(&disk, &format!("echo runs; {WAIT}; exit 8"), || fill(&disk));
    pane.wait_for_output("runs");
    fs::remove_file(disk.path().join("fill")).unwrap();
    pane.go();
    assert_eq!(pane.end_alone(), InitExit::Code(8));
    assert_eq!(pane.record().code, Some(8), "there is room again");
}

/// A directory in place of the temporary file makes the record unwritable, for root as well.
fn what_cannot_be_recorded_is_said() {
    let mut pane = Pane::script(&format!("{WAIT}; exit 9"));
    pane.started();
    fs::remove_file(pane.file("exit.tmp")).unwrap();
    fs::create_dir(pane.file("exit.tmp")).unwrap();
    pane.go();
    assert_eq!(pane.end_alone(), InitExit::Code(9));
    pane.wait_for_output("was not recorded");
    assert!(!pane.file("exit").exists());
}

/// On plain files in place of a group's, because the memory controller may be missing here.
fn what_ended_for_want_of_memory_is_recorded() {
    let group = tempfile::tempdir().unwrap();
    fs::write(group.path().join("cgroup.procs"), "").unwrap();
    for (events, counted) in [(None, None), (Some("oom 4\noom_kill 3\n"), Some(3))] {
        if let Some(events) = events {
            fs::write(group.path().join("memory.events"), events).unwrap();
        }
        let mut pane = Pane::run(&["sh", "-c", "kill -9 $$"], |job| job.cgroup = Some(group.path().into()));
        assert_eq!(pane.end_alone(), InitExit::Signal(9));
        assert_eq!(pane.record().oom_kills, counted);
    }
    assert_eq!(fs::read_to_string(group.path().join("cgroup.procs")).unwrap(), "0", "it entered");
}

/// For a program that handles HUP, and one that only sees the end of its input.
fn a_program_that_ends_as_its_terminal_goes_is_recorded_exactly() {
    for code in 0..200 {
        let script = match code % 2 {
            0 => format!("trap 'exit {code}' HUP; echo ready; while :; do read line; done"),
            _ => format!("trap '' HUP; echo ready; read line; exit {code}"),
        };
        let mut pane = Pane::script(&script);
        pane.wait_for_output("ready");
        pane.hang_up();
        assert_eq!(pane.end_alone(), InitExit::Code(code));
        assert_eq!((pane.record().code, pane.record().signal), (Some(code.into()), None));
    }
}

fn a_program_that_the_hang_up_ends_is_recorded_so() {
    let mut pane = Pane::script("echo ready; sleep 1000; exit 3");
    pane.wait_for_output("ready");
    pane.hang_up();
    assert_eq!(pane.end_alone(), InitExit::Signal(1));
    assert_eq!((pane.record().code, pane.record().signal), (None, Some(1)));
    wait_until("the last of it", || pane.living().is_empty());
}
