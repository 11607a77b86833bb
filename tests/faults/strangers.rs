//! Other users reach nothing; where wrong permissions let them reach the socket, it stays silent.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::support::{has, is_root};
use crate::harness::{Output, Pool, Program};

/// Connects `$ARGV[1]` times to the path `$ARGV[0]`, sends a hello, and prints the number of connections and
/// of bytes received.
const VISIT: &str = "use Socket; $SIG{PIPE} = 'IGNORE'; my ($in, $bytes) = (0, 0); for (1..$ARGV[1]) { \
    socket(my $s, PF_UNIX, SOCK_STREAM, 0) or die; connect($s, sockaddr_un($ARGV[0])) or next; $in++; \
    syswrite($s, pack('V', 29) . ('x' x 29)); while (my $n = sysread($s, my $b, 4096)) { $bytes += $n } } \
    print \"$in $bytes\"";

fn visit(pool: &Pool, times: u32) -> (u32, u32) {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "perl", "-e", VISIT]);
    command.arg(pool.socket()).arg(times.to_string());
    let text = Output::of(&mut command, b"").expect(0).stdout;
    let (reached, bytes) = text.split_once(' ').unwrap();
    (reached.parse().unwrap(), bytes.parse().unwrap())
}

#[test]
fn s01_another_user_reaches_nothing() {
    if !is_root() || !has("setpriv") || !has("perl") {
        return;
    }
    let pool = Pool::bare("");
    let pid = pool.start_poold();
    assert_eq!(visit(&pool, 1), (0, 0), "the directories keep others out");
    let open =
        |path: &std::path::Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for dir in [pool.path(""), pool.state(), pool.state().join("run")] {
        open(&dir, 0o755);
    }
    open(&pool.socket(), 0o666);
    assert_eq!(visit(&pool, 100), (100, 0), "connections get no byte");
    assert_eq!((pool.pid(Program::Poold), pool.ended(Program::Poold)), (Some(pid), None));
    pool.kill9(Program::Poold);
    pool.start(Program::Poold);
    assert_eq!(pool.await_end(Program::Poold), 2, "it does not start in a directory that is open to others");
    for dir in [pool.state().join("run"), pool.state()] {
        open(&dir, 0o700);
    }
    pool.start_poold();
}
