//! `tmux-watch --print`: what `poold` would be told, as JSON lines on a stream, without a pool.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use protocol::request::Observe;
use protocol::tmux::Means;
use tmux::Device;
use tokio::io::Interest;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};

use crate::error::Error;
use crate::plan;
use crate::source::Source;
use crate::stream::{Heard, Sink, Stream};

/// The longest time between two lines, in milliseconds.
const HEARTBEAT_MS: u64 = 2000;
/// So many lines may wait for the reader; while they do, nothing is told.
const WINDOW: usize = 16;
/// How long the reader has at the end to take what waits.
const LAST: Duration = Duration::from_millis(200);

/// Prints each observation of this server as one line of JSON, first a snapshot, then what changes;
/// until `shutdown`, or until nobody reads. By `means`, or the best that work.
///
/// # Errors
/// Where the output cannot be written, other than for want of a reader.
pub async fn print(
    device: Device,
    means: Option<Means>,
    out: impl Write + AsFd + Send + 'static,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let unread = unread(out.as_fd().try_clone_to_owned()?);
    let mut source = Source::new(device, plan(means, None, HEARTBEAT_MS))?;
    let (lines, written) = writer(out)?;
    let stream = Stream::new(Printer { lines }, &mut source, Duration::from_millis(HEARTBEAT_MS));
    // Without the stream the writer ends, once it has written all.
    let failed = tokio::select! {
        () = shutdown => None,
        () = unread => return Ok(()),
        Err(error) = stream.run() => Some(error),
    };
    match (tokio::time::timeout(LAST, written).await, failed) {
        (Ok(Ok(Err(error))), _) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        (Ok(Ok(Err(error))), _) => Err(Error::Print(error).into()),
        (_, Some(error)) => Err(error.into()),
        (_, None) => Ok(()),
    }
}

/// What comes of writing.
type Written = oneshot::Receiver<io::Result<()>>;

/// A thread that writes lines, because writing may wait for the reader for ever; and what came of it.
fn writer(mut out: impl Write + Send + 'static) -> io::Result<(mpsc::Sender<Vec<u8>>, Written)> {
    let (lines, mut waiting) = mpsc::channel::<Vec<u8>>(WINDOW);
    let (done, written) = oneshot::channel();
    let write = move || {
        let mut result = Ok(());
        while result.is_ok()
            && let Some(line) = waiting.blocking_recv()
        {
            result = out.write_all(&line).and_then(|()| out.flush());
        }
        // Nobody may wait for it any more.
        drop(done.send(result));
    };
    drop(std::thread::Builder::new().name("print".to_owned()).spawn(write)?);
    Ok((lines, written))
}

/// Ends when the other end of a pipe is closed; for anything else, never.
async fn unread(out: OwnedFd) {
    // Unchecked, because the checked form makes the stream non-blocking for everybody who has it.
    if let Ok(pipe) = pipe::Sender::from_owned_fd_unchecked(out)
        && pipe.ready(Interest::ERROR).await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// Has lines written, and is never told anything.
struct Printer {
    lines: mpsc::Sender<Vec<u8>>,
}

impl Sink for Printer {
    fn has_room(&self) -> bool {
        self.lines.capacity() > 0
    }

    fn next_call(&self) -> u64 {
        0
    }

    async fn observe(&mut self, observe: Observe) -> Result<(), Error> {
        let mut line = serde_json::to_vec(&observe).map_err(|error| Error::Print(error.into()))?;
        line.push(b'\n');
        self.lines.send(line).await.map_err(|_closed| unwritten())
    }

    async fn watching_by(&mut self, means: Means) -> Result<(), Error> {
        tracing::info!(means = means.word(), "watching");
        Ok(())
    }

    async fn hear(&mut self) -> Result<Heard, Error> {
        if self.has_room() {
            self.lines.closed().await;
            return Err(unwritten());
        }
        self.lines.reserve().await.map_err(|_closed| unwritten())?;
        Ok(Heard::Fine)
    }

    fn patience(&self) -> Option<Duration> {
        None
    }
}

/// The writer has ended; it says why.
fn unwritten() -> Error {
    Error::Print(io::ErrorKind::WriteZero.into())
}

#[cfg(test)]
mod tests {
    use protocol::request::View;
    use protocol::tmux::TmuxState;

    use super::*;
    use crate::testing::session;

    #[tokio::test]
    async fn a_reader_that_does_not_read_holds_nobody_up() {
        let (mut reads, writes) = std::os::unix::net::UnixStream::pair().unwrap();
        let (lines, _written) = writer(writes).unwrap();
        let mut printer = Printer { lines };
        let name = "x".repeat(1 << 20);
        let state = TmuxState { sessions: [session(1, &name)].into(), ..TmuxState::default() };
        let view = View::Snapshot { state, part: 0, more: false };
        // One is being written, the others wait.
        for _ in 0..=WINDOW {
            let view = view.clone();
            let observe = Observe { watcher: 7, seq: 1, asked: 0, age_ms: 3, complete: true, view };
            printer.observe(observe).await.unwrap();
        }
        assert!(!printer.has_room());
        let reader = {
            let mut hears = std::pin::pin!(printer.hear());
            // It listens before anybody reads.
            tokio::select! {
                biased;
                heard = &mut hears => panic!("{heard:?}"),
                () = std::future::ready(()) => {}
            }
            let reader = std::thread::spawn(move || io::copy(&mut reads, &mut io::sink()));
            assert_eq!(hears.await.unwrap(), Heard::Fine);
            reader
        };
        assert!(printer.has_room());
        drop(printer);
        reader.join().unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_line_is_the_observation_as_it_goes_over_the_wire() {
        let state = TmuxState { sessions: [session(1, "a")].into(), ..TmuxState::default() };
        let observe = |seq, view| Observe { watcher: 7, seq, asked: 0, age_ms: 3, complete: true, view };
        let all = [observe(1, View::Snapshot { state, part: 0, more: false }), observe(2, View::Unchanged)];
        let (mut reads, writes) = std::os::unix::net::UnixStream::pair().unwrap();
        let (lines, written) = writer(writes).unwrap();
        let mut printer = Printer { lines };
        for observe in all.clone() {
            printer.observe(observe).await.unwrap();
        }
        drop(printer);
        written.await.unwrap().unwrap();
        let text = io::read_to_string(&mut reads).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1],
            r#"{"watcher":7,"seq":2,"asked":0,"age_ms":3,"complete":true,"view":"unchanged"}"#
        );
        assert!(lines[0].contains(r#""view":{"snapshot":{"state":{"server":"absent","sessions":{"$1":{"#));
        for (line, observe) in lines.iter().zip(all) {
            assert_eq!(serde_json::from_str::<Observe>(line).unwrap(), observe, "it can be fed again");
        }
    }
}
