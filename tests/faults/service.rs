//! A service manager: it is told when the socket is served and that the engine answers, and may hand the socket over.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::support::{crashing, hang_syncs, has, may_trace};
use crate::harness::{PATIENCE, Pool, Program, Talk, eventually, wait_until};

/// The watchdog's period; it is fed three times in it.
const PERIOD: Duration = Duration::from_millis(1500);

/// Listens at the path `$ARGV[0]` as descriptor 3, and becomes the program `$ARGV[1]`, as a service manager
/// does at the first connection.
const HAND_OVER: &str = r#"
use Socket; use POSIX;
$^F = 1000; umask 077; my ($path, $program) = @ARGV;
socket(my $s, PF_UNIX, SOCK_STREAM, 0) or die "socket: $!";
bind($s, sockaddr_un($path)) && listen($s, 128) or die "$path: $!";
POSIX::dup2(fileno($s), 3); $ENV{LISTEN_FDS} = 1; $ENV{LISTEN_PID} = $$;
exec $program;
"#;

/// The socket of a service manager.
struct Manager {
    socket: UnixDatagram,
    heard: Vec<String>,
}

impl Manager {
    fn new(pool: &Pool) -> Self {
        let socket = UnixDatagram::bind(pool.path("notify")).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { socket, heard: Vec::new() }
    }

    /// Takes what was sent so far; returns the number of new notices of this text.
    fn take(&mut self, notice: &str) -> usize {
        let (mut block, before) = ([0; 4096], self.heard.len());
        while let Ok(length) = self.socket.recv(&mut block) {
            self.heard.extend(String::from_utf8_lossy(&block[..length]).lines().map(str::to_owned));
        }
        self.heard[before..].iter().filter(|line| *line == notice).count()
    }

    fn has_heard(&mut self, notice: &str) -> bool {
        self.take("");
        self.heard.iter().any(|line| line == notice)
    }

    /// Starts `poold` under this manager.
    fn start(&self, pool: &Pool, point: Option<&str>) -> u32 {
        let mut command = point.map_or_else(|| pool.daemon(Program::Poold), |point| crashing(pool, point));
        command
            .env("NOTIFY_SOCKET", pool.path("notify"))
            .env("WATCHDOG_USEC", PERIOD.as_micros().to_string());
        pool.start_as(Program::Poold, command)
    }
}

#[test]
fn o03_ready_is_told_once_the_socket_is_served_and_not_before() {
    let pool = Pool::bare("");
    let mut manager = Manager::new(&pool);
    for point in ["recover-begin", "recover-written", "listening"] {
        manager.start(&pool, Some(point));
        pool.await_end(Program::Poold);
        assert!(!manager.has_heard("READY=1"), "{point}: {:?}", manager.heard);
    }
    manager.start(&pool, None);
    wait_until("it is ready", PATIENCE, || manager.has_heard("READY=1"));
    UnixStream::connect(pool.socket()).expect("the socket is there from then on");
    pool.ok(&["ls"]);
    pool.end(Program::Poold, Signal::SIGTERM);
    assert!(manager.has_heard("STOPPING=1"), "{:?}", manager.heard);
}

#[test]
fn o03_a_socket_that_is_handed_over_is_served_and_left_there() {
    if !has("perl") {
        return;
    }
    let pool = Pool::bare("");
    for dir in [pool.state(), pool.state().join("run")] {
        DirBuilder::new().mode(0o700).create(dir).unwrap();
    }
    let mut command = pool.command("perl");
    command.args(["-e", HAND_OVER]).arg(pool.socket()).arg(Program::Poold.path());
    pool.start_as(Program::Poold, command);
    wait_until("it is listened at", PATIENCE, || UnixStream::connect(pool.socket()).is_ok());
    let inode = || fs::metadata(pool.socket()).unwrap().ino();
    let handed = inode();
    pool.script("web", "exec sleep 1000");
    assert_eq!((inode(), pool.lifecycle("web").as_str()), (handed, "live"), "no other socket was made");
    pool.end(Program::Poold, Signal::SIGTERM);
    assert_eq!(inode(), handed, "it is the manager's, who listens on");
}

#[test]
fn o03_the_watchdog_is_fed_while_the_engine_answers_and_not_while_it_hangs() {
    if !may_trace() {
        return;
    }
    let pool = Pool::bare("");
    let mut manager = Manager::new(&pool);
    let poold = manager.start(&pool, None);
    pool.await_poold();
    pool.script("web", "exec sleep 1000");
    let mut fed = 0;
    wait_until("it is fed repeatedly", PATIENCE, || {
        fed += manager.take("WATCHDOG=1");
        fed >= 3
    });
    let tracer = hang_syncs(&pool, poold);
    let mut send = pool.poolctl();
    let mut send = Talk::start(send.args(["--timeout", "60s", "send", "web", "--kind", "a", "text"]));
    // What is on its way comes within a period; afterwards a bare timer would feed it three times in each.
    let mut quiet_since = Instant::now();
    eventually("it is not fed any more", PATIENCE, || {
        if manager.take("WATCHDOG=1") > 0 {
            quiet_since = Instant::now();
        }
        (quiet_since.elapsed() > PERIOD * 2).then_some(())
    });
    assert!(!send.has_ended(), "the engine hangs: {}", send.errors());
    drop(tracer);
    assert_eq!(send.await_end(), Some(0), "{}", send.errors());
    wait_until("it is fed again", PATIENCE, || manager.take("WATCHDOG=1") > 0);
}
