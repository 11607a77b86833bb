//! Connecting during a storm of notifications, which crashes the server before 3.7 if done wrongly.

use std::io::{Read as _, Write};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use protocol::tmux::TmuxTransport;
use tmux::Device;
use tmux::live::{Live, Reading, Scope};

use super::{open, own, read};
use crate::support::Rig;

/// Client that renames a session without pause.
struct Storm {
    client: Child,
    writer: Option<JoinHandle<()>>,
    reader: Option<JoinHandle<usize>>,
}

impl Storm {
    fn new(rig: &Rig) -> Self {
        let mut client = Command::new("tmux")
            .arg("-NCuS")
            .arg(&rig.device.socket)
            .args(["attach-session", "-t", "=a:", "-f", "no-output,ignore-size"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut commands, mut replies) = (client.stdin.take().unwrap(), client.stdout.take().unwrap());
        let mut first = [0];
        replies.read_exact(&mut first).unwrap();
        // The blanks make the server look up more often: it reads a fixed number of bytes at a time.
        let blanks = " ".repeat(200);
        let renames = format!("rename-session -t $0{blanks} b\nrename-session -t $0{blanks} a\n").repeat(20);
        let writer = std::thread::spawn(move || while commands.write_all(renames.as_bytes()).is_ok() {});
        let reader =
            std::thread::spawn(move || std::io::copy(&mut replies, &mut std::io::sink()).unwrap() as usize);
        Self { client, writer: Some(writer), reader: Some(reader) }
    }

    /// Ends the client, and returns the number of bytes it received.
    fn end(mut self) -> usize {
        self.client.kill().unwrap();
        self.client.wait().unwrap();
        self.writer.take().unwrap().join().unwrap();
        self.reader.take().unwrap().join().unwrap()
    }
}

/// Also ends the client of a failed test.
impl Drop for Storm {
    fn drop(&mut self) {
        let _may_have_ended = self.client.kill();
        let _is_reaped = self.client.wait();
    }
}

async fn attach_in_a_storm(times: usize) {
    let (rig, created) = own().await;
    drop(open(&rig).await);
    let storm = Storm::new(&rig);
    let other = Device { own: false, ..rig.device.clone() };
    for time in 0..times {
        let mut live = open(&rig).await;
        assert_eq!(live.server(), created.pane.server, "at {time}");
        if time % 10 == 0 {
            assert_eq!(read(&mut live, Scope::Alive).await, Reading::Alive);
            let unattached = Live::open(&other, TmuxTransport::Native).await.unwrap();
            assert_eq!(unattached.server(), created.pane.server);
        }
    }
    assert!(storm.end() > times, "there was a storm");
    assert_eq!(rig.device.observe().await.unwrap().server, created.pane.server);
}

#[tokio::test]
async fn attaching_in_a_storm_crashes_nothing() {
    attach_in_a_storm(1000).await;
}

#[tokio::test]
#[ignore = "takes a while"]
async fn attaching_in_a_storm_crashes_nothing_3000_times() {
    attach_in_a_storm(3000).await;
}

/// Returns the median and the 99th percentile of the runs.
async fn timed(runs: usize, mut run: impl AsyncFnMut()) -> String {
    let mut times = Vec::with_capacity(runs);
    for _ in 0..runs {
        let start = Instant::now();
        run().await;
        times.push(start.elapsed());
    }
    times.sort();
    let [p50, p99]: [Duration; 2] = [times[runs / 2], times[runs * 99 / 100]];
    format!("{p50:?} (p99 {p99:?})")
}

#[tokio::test]
#[ignore = "measures"]
async fn how_long_it_takes() {
    for sessions in [10, 500] {
        let (rig, created) = own().await;
        for i in 1..sessions {
            rig.start(&format!("s{i}"), "exec sleep 1000").await;
        }
        let mut live = open(&rig).await;
        let connect = timed(100, async || drop(open(&rig).await)).await;
        let version = rig.raw(&["display-message", "-p", "#{version}"]);
        eprintln!("{} with {sessions} sessions: connect {connect}", version.trim_end());
        let asks = [
            Scope::Alive,
            Scope::Session(created.session),
            Scope::Window(created.window),
            Scope::Sessions,
            Scope::All,
        ];
        for ask in asks {
            let took = timed(200, async || drop(read(&mut live, ask).await)).await;
            eprintln!("  {ask:?} {took}");
        }
        let mut unattached =
            Live::open(&Device { own: false, ..rig.device.clone() }, TmuxTransport::Native).await.unwrap();
        let took =
            timed(200, async || drop(read(&mut unattached, Scope::Session(created.session)).await)).await;
        eprintln!("  Session, unattached {took}");
    }
}
