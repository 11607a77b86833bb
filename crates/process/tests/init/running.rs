//! Tests of starting a program, and of the time while it runs.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use nix::sys::signal::Signal;
use process::handle::Handle;
use process::identity::{self, State};
use process::init::InitExit;
use process::inspect::program::foreground;
use protocol::ProcId;
use protocol::job::parse_nudge;

use crate::pane::{Pane, WAIT, job, myself, tag, wait_until, write_job};

crate::tests![
    every_exit_code_passes_through,
    every_fatal_signal_passes_through,
    a_job_is_run_once,
    nothing_is_run_without_a_job,
    an_unreadable_job_is_recorded,
    a_missing_program_is_127,
    a_program_that_cannot_be_run_is_126,
    a_script_without_interpreter_line_runs_by_the_shell,
    the_environment_is_the_jobs,
    the_program_may_see_its_tmux,
    the_end_is_recorded_then_nudged,
    the_program_is_in_front,
    ctrl_c_reaches_the_program_only,
    ctrl_z_does_nothing,
    a_program_stopped_by_sigstop_stands_still,
    signals_are_passed_on,
    a_closed_terminal_is_passed_on_and_can_be_ignored,
];

fn send(id: ProcId, signal: Signal) {
    assert!(Handle::open(id).unwrap().unwrap().signal(signal).unwrap());
}

fn every_exit_code_passes_through() {
    for code in 0..=255 {
        let mut pane = Pane::script(&format!("exit {code}"));
        assert_eq!(pane.end(), InitExit::Code(code));
        assert_eq!((pane.record().code, pane.record().signal), (Some(code.into()), None));
    }
}

fn every_fatal_signal_passes_through() {
    let harmless = [17, 18, 19, 20, 21, 22, 23, 28];
    for signal in (1..=31).chain(34..=64).filter(|signal| !harmless.contains(signal)) {
        let mut pane = Pane::script(&format!("kill -{signal} $$"));
        assert_eq!(pane.end(), InitExit::Signal(signal));
        assert_eq!((pane.record().code, pane.record().signal), (None, Some(signal)));
        assert!(!pane.init.wait().unwrap().core_dumped(), "signal {signal}");
    }
}

fn a_job_is_run_once() {
    for _ in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let path = write_job(dir.path(), &job(dir.path(), &["sh", "-c", "echo ran >>ran"]));
        let start = || myself("init", &path).stderr(Stdio::null()).spawn().unwrap();
        let mut codes = [start(), start()].map(|mut init| init.wait().unwrap().code().unwrap());
        codes.sort_unstable();
        assert_eq!(codes, [0, 125]);
        assert_eq!(fs::read_to_string(dir.path().join("ran")).unwrap(), "ran\n");
    }
}

fn nothing_is_run_without_a_job() {
    let dir = tempfile::tempdir().unwrap();
    let mut pane = Pane::start(tempfile::tempdir().unwrap(), &dir.path().join("x.job"));
    assert_eq!(pane.end(), InitExit::Code(125));
    pane.wait_for_output("no job to run at");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

fn an_unreadable_job_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(format!("{}.job", tag()));
    fs::write(&path, "{\"version\": 1}").unwrap();
    let mut pane = Pane::start(dir, &path);
    assert_eq!(pane.end(), InitExit::Code(125));
    assert_eq!(pane.record().code, Some(125));
    assert!(pane.record().exec_error.unwrap().contains("missing field"));
    assert!(
        std::fs::read_to_string(pane.file("taken")).unwrap().contains("pid"),
        "the claim stays, without secrets"
    );
}

fn a_missing_program_is_127() {
    for program in ["no-such-program", "./none", "/no/such/place"] {
        let mut pane = Pane::run(&[program, "x"], |_| ());
        assert_eq!(pane.end_alone(), InitExit::Code(127));
        let error = pane.record().exec_error.unwrap();
        assert!(error.contains(program) && error.contains("No such file"), "{error}");
        pane.wait_for_output(&error);
        assert_eq!(pane.record().code, Some(127));
        assert!(!pane.file("started").exists());
    }
}

fn a_program_that_cannot_be_run_is_126() {
    let cases: [(&[&str], &str, &str); 3] = [
        (&["/etc/passwd"], "/", "Permission denied"),
        (&["true"], "/no/such/place", "cannot enter"),
        (&["tr\0ue"], "/", "NUL"),
    ];
    for (argv, cwd, expected) in cases {
        let mut pane = Pane::run(argv, |job| job.cwd = cwd.into());
        assert_eq!(pane.end_alone(), InitExit::Code(126));
        let error = pane.record().exec_error.unwrap();
        assert!(error.contains(expected), "{error}");
    }
}

fn a_script_without_interpreter_line_runs_by_the_shell() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("tool"), "echo \"<$0|$1|$2>\"; exit 6\n").unwrap();
    fs::set_permissions(dir.path().join("tool"), fs::Permissions::from_mode(0o700)).unwrap();
    let mut job = job(dir.path(), &["tool", "a b", "c"]);
    let path = format!("/nowhere:{}:/bin", dir.path().display());
    job.env[0].1 = path.into();
    let path = write_job(dir.path(), &job);
    let mut pane = Pane::start(dir, &path);
    assert_eq!(pane.end_alone(), InitExit::Code(6));
    pane.wait_for_output("/tool|a b|c>");
}

fn the_environment_is_the_jobs() {
    let mut pane = Pane::run(&["env"], |job| job.env.push(("ODD".into(), "a=b c".into())));
    assert_eq!(pane.end_alone(), InitExit::Code(0));
    let expected =
        format!("PATH=/usr/local/bin:/usr/bin:/bin\nPOOL_INCARNATION={}\nODD=a=b c\nTERM=of-tmux\n", tag());
    wait_until("env", || pane.output().replace('\r', "") == expected);
}

fn the_program_may_see_its_tmux() {
    let mut pane = Pane::run(&["env"], |job| {
        job.see_tmux = true;
        job.env.push(("TERM".into(), "of-job".into()));
    });
    assert_eq!(pane.end_alone(), InitExit::Code(0));
    for line in ["TMUX=server", "TMUX_PANE=%1", "TERM=of-job"] {
        pane.wait_for_output(line);
    }
    assert!(!pane.output().contains("of-tmux"));
}

fn the_end_is_recorded_then_nudged() {
    let dir = tempfile::tempdir().unwrap();
    let poold = UnixListener::bind(dir.path().join("sock")).unwrap();
    let path = write_job(dir.path(), &job(dir.path(), &["sh", "-c", &format!("{WAIT}; exit 3")]));
    let mut pane = Pane::start(dir, &path);
    let started = pane.started();
    assert_eq!(identity::state(started.agent).unwrap(), State::Running);
    assert_eq!(started.init.pid, pane.init.id());
    assert!(!path.exists(), "the job is gone once it runs");
    pane.go();
    let mut frame = Vec::new();
    poold.accept().unwrap().0.read_to_end(&mut frame).unwrap();
    assert_eq!(pane.record().code, Some(3), "the record is there when the nudge comes");
    assert_eq!(frame[..4], 24_u32.to_le_bytes());
    assert_eq!(parse_nudge(&frame[4..]), Some(tag()));
    assert_eq!(pane.end_alone(), InitExit::Code(3));
    let record = pane.record();
    assert!(record.max_rss_kib > 100 && record.at >= started.at, "{record:?}");
    assert_eq!(fs::metadata(pane.file("exit")).unwrap().permissions().mode() & 0o777, 0o600);
    let mut names: Vec<_> = fs::read_dir(pane.dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    let left = ["exit", "started", "taken"].map(|what| format!("{}.{what}", tag()));
    assert_eq!(names, [left[0].as_str(), &left[1], &left[2], "go", "sock"]);
}

fn the_program_is_in_front() {
    let mut pane = Pane::run(&["sleep", "1000"], |_| ());
    let started = pane.started();
    let init = identity::read(started.init.pid).unwrap().unwrap();
    let agent = identity::read(started.agent.pid).unwrap().unwrap();
    assert_eq!((agent.pgid, agent.tpgid, agent.sid), (agent.id.pid, Some(agent.id.pid), init.id.pid));
    assert_ne!(init.pgid, agent.pgid);
    assert_eq!(foreground(init.id.pid).unwrap().unwrap().command, "sleep".into());
    send(started.agent, Signal::SIGKILL);
    assert_eq!(pane.end_alone(), InitExit::Signal(9));
}

fn ctrl_c_reaches_the_program_only() {
    let mut pane = Pane::script("trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.01; done");
    pane.wait_for_output("ready");
    pane.type_keys(b"\x03");
    assert_eq!(pane.end_alone(), InitExit::Code(5));
    assert_eq!(pane.output().matches("caught").count(), 1);
}

fn ctrl_z_does_nothing() {
    let mut pane = Pane::script("echo ready; read line; exit 3");
    pane.wait_for_output("ready");
    for n in 1..=5 {
        pane.type_keys(b"\x1a");
        wait_until("the key", || pane.output().matches("^Z").count() == n);
    }
    pane.type_keys(b"\n");
    assert_eq!(pane.end_alone(), InitExit::Code(3));
}

fn a_program_stopped_by_sigstop_stands_still() {
    let mut pane = Pane::script("trap 'exit 7' USR1; echo ready; while :; do sleep 0.01; done");
    pane.wait_for_output("ready");
    let started = pane.started();
    send(started.agent, Signal::SIGSTOP);
    wait_until("the stop", || identity::state(started.agent).unwrap() == State::Stopped);
    send(started.init, Signal::SIGUSR1);
    // The signal was forwarded, so the init has seen the stop; it is still pending, so the program is still
    // stopped.
    let status = || fs::read_to_string(format!("/proc/{}/status", started.agent.pid)).unwrap();
    let pending = || status().lines().any(|l| l.starts_with("ShdPnd:") && !l.ends_with("0000000000000000"));
    wait_until("the pending signal", pending);
    assert_eq!(identity::state(started.agent).unwrap(), State::Stopped);
    send(started.init, Signal::SIGCONT);
    assert_eq!(pane.end_alone(), InitExit::Code(7));
}

fn signals_are_passed_on() {
    let names =
        [Signal::SIGHUP, Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];
    for signal in names {
        let name = &signal.as_str()[3..];
        let mut pane =
            Pane::script(&format!("trap 'exit 8' {name}; echo ready; while :; do sleep 0.01; done"));
        pane.wait_for_output("ready");
        send(pane.started().init, signal);
        assert_eq!(pane.end_alone(), InitExit::Code(8), "{name}");
    }
}

fn a_closed_terminal_is_passed_on_and_can_be_ignored() {
    let mut pane = Pane::script("trap 'exit 9' HUP; echo ready; while :; do sleep 0.01; done");
    pane.wait_for_output("ready");
    pane.hang_up();
    assert_eq!(pane.end_alone(), InitExit::Code(9));

    let mut pane = Pane::script(&format!("trap '' HUP; trap 'touch heard' USR1; echo ready; {WAIT}; exit 4"));
    pane.wait_for_output("ready");
    let started = pane.started();
    pane.hang_up();
    send(started.init, Signal::SIGUSR1);
    wait_until("the second signal", || pane.dir.path().join("heard").exists());
    assert_eq!(identity::state(started.init).unwrap(), State::Running);
    pane.go();
    assert_eq!(pane.end_alone(), InitExit::Code(4));
}
