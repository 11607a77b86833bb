//! Tests of limits: they apply to the program, and not to its init.

use std::fs;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use process::init::InitExit;
use protocol::Limits;

use crate::pane::{Pane, WAIT};

crate::tests![
    the_program_is_bounded_and_the_init_is_not,
    nothing_is_changed_where_nothing_is_said,
    a_limit_that_cannot_be_held_keeps_the_program_from_running,
    at_best_effort_it_runs_and_what_does_not_hold_is_said,
];

/// More than any Linux permits, to root as well: above the maximum of `fs.nr_open`.
const TOO_MANY: &str = "nofile=1073741824";

fn limited(script: &str, limits: &str, best_effort: bool) -> Pane {
    Pane::run(&["sh", "-c", script], |job| {
        job.limits = Limits { best_effort, ..limits.parse().unwrap() };
    })
}

/// Reads the limits of a process: soft and hard limits of open files, core size and file size; processors;
/// nice value.
fn bounds(pid: u32) -> (Vec<String>, String, i64) {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = |name: &str| limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let words =
        |name: &str| line(name).split_ascii_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>();
    let resources = ["Max open files", "Max core file size", "Max file size"].map(words).concat();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let cpus =
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let nice = stat.rsplit(')').next().unwrap().split_ascii_whitespace().nth(16).unwrap().parse().unwrap();
    (resources, cpus, nice)
}

fn the_program_is_bounded_and_the_init_is_not() {
    let mut pane = limited(WAIT, "nofile=77,core=0,fsize=4096,nice=7,cpus=0", false);
    let started = pane.started();
    let resources = ["77", "77", "0", "0", "4096", "4096"].map(str::to_owned).to_vec();
    assert_eq!(bounds(started.agent.pid), (resources, "0".to_owned(), 7));
    assert_eq!(bounds(started.init.pid), bounds(std::process::id()));
    assert_eq!(started.unenforced, [""; 0]);
    pane.go();
    assert_eq!(pane.end_alone(), InitExit::Code(0));
}

fn nothing_is_changed_where_nothing_is_said() {
    let mut pane = limited(WAIT, "mem=1G,cpu=50%,tasks=50,disk=1G", false);
    assert_eq!(bounds(pane.started().agent.pid), bounds(std::process::id()));
    pane.go();
    assert_eq!(pane.end_alone(), InitExit::Code(0));
}

fn a_limit_that_cannot_be_held_keeps_the_program_from_running() {
    for limit in [TOO_MANY, "cpus=8190-8191"] {
        let mut pane = limited("touch ran", limit, false);
        assert_eq!(pane.end_alone(), InitExit::Code(126));
        let record = pane.record();
        assert_eq!(record.code, Some(126));
        let error = record.exec_error.unwrap();
        assert!(error.starts_with(&format!("not started without its limit {}: ", shown(limit))), "{error}");
        pane.wait_for_output("not started without its limit");
        assert!(!pane.dir.path().join("ran").exists() && !pane.file("started").exists());
    }
}

fn shown(limit: &str) -> String {
    limit.parse::<Limits>().unwrap().to_string()
}

fn at_best_effort_it_runs_and_what_does_not_hold_is_said() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 500, hard).unwrap();
    let mut pane = limited(WAIT, &format!("{TOO_MANY},nice=3,cpus=8191"), true);
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    let started = pane.started();
    let (resources, cpus, nice) = bounds(started.agent.pid);
    let hard = &bounds(std::process::id()).0[1];
    assert_eq!((&resources[..2], nice), ([hard.clone(), hard.clone()].as_slice(), 3), "the hard limit");
    assert_eq!(cpus, bounds(std::process::id()).1);
    let [cpus, open_files] = started.unenforced.as_slice() else { panic!("{:?}", started.unenforced) };
    assert!(cpus.starts_with("cpus=8191: there are ") && cpus.ends_with(", and none of these"), "{cpus}");
    assert_eq!(*open_files, format!("{}: the hard limit is {hard}", shown(TOO_MANY)));
    pane.go();
    assert_eq!(pane.end_alone(), InitExit::Code(0));
}
