//! A hostile neighbour: a program in a session does, at random, anything that a program of the same user can
//! do to its own directory, the socket, the hook spool, the files of its incarnation, its process tree and
//! its terminal. Meanwhile two other sessions get their prompts exactly, their logs are exact, requests are
//! answered, and at the end the daemon is the same process.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use protocol::blocking::Connection;
use protocol::{Hello, Request, Role};

use crate::harness::{PATIENCE, Pool, Program, number, wait_until};

/// The hostile acts, one a line. `$run` holds the files of incarnations, `$ctl` is poolctl.
const ACTS: &str = r#"
mkfifo ../screen ../screen.new ../screen.part ../detached ../detached.new
rm -rf ../screen* ../detached*; ln -s /dev/zero ../screen; ln -s /etc/passwd ../screen.part
mkdir -p ../hooks; head -c 2000000 /dev/zero | tr '\0' a >../hooks/$RANDOM.json
mkdir -p ../hooks; mkfifo ../hooks/$RANDOM.json; mkdir ../hooks/$RANDOM.json; ln -s /dev/zero ../hooks/$RANDOM.json
rm -rf ../hooks; ln -s "$run" ../hooks
rm -rf ../hooks; mkfifo ../hooks
rm -rf ../hooks
mkdir -p ../hooks; for i in $(seq 300); do report '{"permission":{"tool":"Bash","text":"x","wait_ms":1}}'; done
mkdir -p ../hooks; big=$(head -c 60000 /dev/zero | tr '\0' a); report '{"working":{"what":"'$big'","skill":"'$big'"}}'
mkdir -p ../hooks; report '{"turn_over":{"turn":null,"said":"lies"}}'; report '{"ended":{"reason":"lies"}}'
rm -f $run/$POOL_INCARNATION.exit; mkfifo $run/$POOL_INCARNATION.exit $run/$POOL_INCARNATION.exit.tmp
rm -f $run/$POOL_INCARNATION.exit*; echo '{"version":1,"code":0,"signal":null,"exec_error":null,"at":1}' >$run/$POOL_INCARNATION.exit
rm -f $run/$POOL_INCARNATION.exit*; ln -s /dev/zero $run/$POOL_INCARNATION.exit
rm -f $run/$POOL_INCARNATION.started; head -c 3000000 /dev/zero >$run/$POOL_INCARNATION.started
rm -f $run/$POOL_INCARNATION.exit* $run/$POOL_INCARNATION.started
flock ../logs sleep 0.5 &
for i in $(seq 40); do sleep 0.3 & done; (setsid sleep 0.3 &)
head -c 300000 /dev/urandom; printf '\033c'
printf '\a\a\033]133;A\a\033]133;C\a\033]133;D;7\a\033]0;title\a\033[?1049h\033[?2004h\033[?1049l'
stty raw -echo; sleep 0.1; stty sane
kill -STOP $PPID; sleep 0.2; kill -CONT $PPID
chmod 000 ..; sleep 0.1; chmod 700 ..
chmod 000 ../logs; sleep 0.1; chmod 700 ../logs
rm -rf ../tmp; ln -s / ../tmp
$ctl send - --kind note x; $ctl label - a=$RANDOM; $ctl thought set - --text busy
$ctl keys - Enter; $ctl show - >/dev/null; $ctl capture - >/dev/null
echo '{"event":"attention","text":"look"}' | $ctl hook generic; echo garbage | $ctl hook claude
perl -MIO::Socket::UNIX -e '@s = map { IO::Socket::UNIX->new(Peer => $ENV{POOL_SOCKET}) } 1..70; sleep 1'
perl -MIO::Socket::UNIX -e '$s = IO::Socket::UNIX->new(Peer => $ENV{POOL_SOCKET}); print $s pack("V", 1<<20) . "x" x 5000; sleep 1'
perl -MIO::Socket::UNIX -e 'for (1..50) { $s = IO::Socket::UNIX->new(Peer => $ENV{POOL_SOCKET}); print $s "\0" x 64; close $s }'
exit 3
"#;

/// The hostile program: picks a line at random, for ever.
fn script(pool: &Pool) -> String {
    let acts = pool.path("acts");
    fs::write(&acts, ACTS.trim()).unwrap();
    format!(
        r#"
run=$(dirname "$POOL_SOCKET"); ctl={}
report() {{
  printf '{{"version":1,"hook":{{"session":"%s","tag":"%s","id":%s,"at":1,"agent":"x","conversation":null,"transcript":null,"signal":%s}}}}' \
    "$POOL_SESSION" "$POOL_INCARNATION" "$RANDOM$RANDOM" "$1" >../hooks/$RANDOM$RANDOM.json
}}
mapfile -t acts <{}
while :; do
  eval "${{acts[RANDOM % ${{#acts[@]}}]}}" 2>/dev/null
  sleep 0.0$((RANDOM % 10))
done"#,
        env!("CARGO_BIN_EXE_poolctl"),
        acts.display()
    )
}

/// Sends one prompt after the other, each a line; returns their number.
fn work(pool: &Pool, name: &str, over: &AtomicBool) -> usize {
    let mut sent = 0;
    while !over.load(Ordering::Relaxed) {
        pool.ok(&["send", "--wait", "done", name, &format!("prompt {sent}")]);
        sent += 1;
    }
    sent
}

/// Sorted response times.
fn answers(pool: &Pool, over: &AtomicBool) -> Vec<Duration> {
    let mut times = Vec::new();
    let connect =
        || Connection::connect(&pool.socket(), &Hello::new(Role::Client, "default", "test")).unwrap().0;
    let mut connection = connect();
    while !over.load(Ordering::Relaxed) {
        let began = Instant::now();
        assert!(connection.call(None, None, Request::Ping).unwrap().is_ok());
        times.push(began.elapsed());
        thread::sleep(Duration::from_millis(10));
    }
    times.sort_unstable();
    times
}

#[test]
fn a_hostile_neighbour_harms_nobody_but_itself() {
    let seconds = number("POOL_NEIGHBOUR_SECONDS", 8);
    let pool = Pool::with("[reaper]\ngrace = '200ms'\n[restart]\nbackoff = '100ms'\nmax = 128\n");
    let reads = "while read -r line; do echo \"$line\" >>got; echo \"out $line.\"; done";
    for name in ["one", "two"] {
        pool.ok(&["new", name, "--", "sh", "-c", reads]);
    }
    // It may keep tmux busy before the answer to its creation is read: then it is not known yet whether it runs.
    let created = pool.ctl(&["new", "bad", "--restart", "always", "--", "bash", "-c", &script(&pool)]);
    assert!([0, 7].contains(&created.code), "{created:?}");
    let poold = pool.pid(Program::Poold).unwrap();
    let over = AtomicBool::new(false);
    let (one, two, times) = thread::scope(|scope| {
        let one = scope.spawn(|| work(&pool, "one", &over));
        let two = scope.spawn(|| work(&pool, "two", &over));
        let times = scope.spawn(|| answers(&pool, &over));
        let (began, mut n) = (Instant::now(), 0_u32);
        while began.elapsed() < Duration::from_secs(u64::try_from(seconds).unwrap()) {
            let verb =
                [["capture", "bad"], ["kill", "bad"], ["restart", "bad"], ["show", "bad"], ["park", "bad"]];
            // Its outcome does not matter.
            drop(pool.ctl(&verb[n as usize % verb.len()]));
            n += 1;
            thread::sleep(Duration::from_millis(200));
        }
        over.store(true, Ordering::Relaxed);
        (one.join().unwrap(), two.join().unwrap(), times.join().unwrap())
    });
    for (name, sent) in [("one", one), ("two", two)] {
        let dir = pool.dir(name);
        let wanted: Vec<String> = (0..sent).map(|n| format!("prompt {n}")).collect();
        let got = || fs::read_to_string(dir.join("work/got")).unwrap_or_default();
        wait_until("all are there", PATIENCE, || got().lines().count() >= sent);
        assert_eq!(got().lines().collect::<Vec<_>>(), wanted, "{name}: each once, in order");
        let said = |log: &str| {
            log.lines().filter(|line| line.starts_with("out ")).map(str::to_owned).collect::<Vec<_>>()
        };
        wait_until("all is logged", PATIENCE, || said(&pool.ok(&["logs", name])).len() >= sent);
        let logged = said(&pool.ok(&["logs", name]));
        assert_eq!(logged.len(), sent, "{name}: its log is exact");
        assert_eq!(logged.iter().collect::<BTreeSet<_>>().len(), sent);
    }
    assert_eq!((pool.pid(Program::Poold), pool.ended(Program::Poold)), (Some(poold), None), "no restart");
    let status = fs::read_to_string(format!("/proc/{poold}/status")).unwrap_or_default();
    let memory = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("?").trim().to_owned();
    let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
    println!("prompts {one} + {two}; answers: median {:?}, p99 {:?}; memory {memory}", at(50), at(99));
    pool.ok(&["check"]);
}
