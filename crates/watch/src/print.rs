//! `tmux-watch --print`: the reports as JSON lines on a stream, without a pool.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use protocol::request::Observe;
use protocol::tmux::TmuxTransport;
use tmux::Device;
use tokio::io::Interest;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};

use crate::error::Error;
use crate::plan;
use crate::source::Source;
use crate::stream::{Feedback, Sink, Stream};

/// Longest time between two lines, in milliseconds.
const HEARTBEAT_MS: u64 = 2000;
/// Maximum number of lines waiting for the reader; at that number reporting pauses.
const WINDOW: usize = 16;
/// Time for the reader at the end to take the waiting lines.
const FLUSH_TIME: Duration = Duration::from_millis(200);

/// Prints each observation of this server as one line of JSON, first a snapshot, then the changes, until
/// `shutdown` or until the reader is gone. Uses `transport`, or the best that works.
///
/// # Errors
/// The output cannot be written, for another reason than a missing reader.
pub async fn print(
    device: Device,
    transport: Option<TmuxTransport>,
    out: impl Write + AsFd + Send + 'static,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let reader_gone = reader_gone(out.as_fd().try_clone_to_owned()?);
    let mut source = Source::new(device, plan(transport, None, HEARTBEAT_MS))?;
    let (lines, written) = writer(out)?;
    let stream = Stream::new(Printer { lines }, &mut source, Duration::from_millis(HEARTBEAT_MS));
    // Dropping the stream ends the writer, once it has written everything.
    let failed = tokio::select! {
        () = shutdown => None,
        () = reader_gone => return Ok(()),
        Err(error) = stream.run() => Some(error),
    };
    match (tokio::time::timeout(FLUSH_TIME, written).await, failed) {
        (Ok(Ok(Err(error))), _) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        (Ok(Ok(Err(error))), _) => Err(Error::Print(error).into()),
        (_, Some(error)) => Err(error.into()),
        (_, None) => Ok(()),
    }
}

/// Result of the writer.
type Written = oneshot::Receiver<io::Result<()>>;

/// Starts a thread that writes lines, because a write may block on the reader for ever; also returns its
/// result.
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
        // The receiver may be gone.
        drop(done.send(result));
    };
    drop(std::thread::Builder::new().name("print".to_owned()).spawn(write)?);
    Ok((lines, written))
}

/// Waits until the other end of a pipe is closed; for anything else, for ever.
async fn reader_gone(out: OwnedFd) {
    // Unchecked, because the checked form makes the stream non-blocking for all its holders.
    if let Ok(pipe) = pipe::Sender::from_owned_fd_unchecked(out)
        && pipe.ready(Interest::ERROR).await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// Sink that queues lines for the writer, and gets no feedback but room.
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
        self.lines.send(line).await.map_err(|_closed| write_failed())
    }

    async fn report_transport(&mut self, transport: TmuxTransport) -> Result<(), Error> {
        tracing::info!(transport = transport.as_str(), "watching");
        Ok(())
    }

    async fn feedback(&mut self) -> Result<Feedback, Error> {
        if self.has_room() {
            self.lines.closed().await;
            return Err(write_failed());
        }
        self.lines.reserve().await.map_err(|_closed| write_failed())?;
        Ok(Feedback::Nothing)
    }

    fn stall_limit(&self) -> Option<Duration> {
        None
    }
}

/// Error for a writer that has ended, which reports the reason itself.
fn write_failed() -> Error {
    Error::Print(io::ErrorKind::WriteZero.into())
}

#[cfg(test)]
mod tests {
    use protocol::request::View;
    use protocol::tmux::TmuxState;

    use super::*;
    use crate::testing::session;

    fn observe(seq: u64, view: View) -> Observe {
        Observe { watcher: 7, seq, asked: 0, age_ms: 3, sent_at_ms: Some(9), complete: true, view }
    }

    #[tokio::test]
    async fn a_reader_that_does_not_read_holds_nobody_up() {
        let (mut reads, writes) = std::os::unix::net::UnixStream::pair().unwrap();
        let (lines, _written) = writer(writes).unwrap();
        let mut printer = Printer { lines };
        let name = "x".repeat(1 << 20);
        let state = TmuxState { sessions: [session(1, &name)].into(), ..TmuxState::default() };
        let view = View::Snapshot { state, part: 0, more: false };
        // One report is being written, and the others wait.
        for _ in 0..=WINDOW {
            printer.observe(observe(1, view.clone())).await.unwrap();
        }
        assert!(!printer.has_room());
        let reader = {
            let mut waiting = std::pin::pin!(printer.feedback());
            // The sink waits before anything is read.
            tokio::select! {
                biased;
                feedback = &mut waiting => panic!("{feedback:?}"),
                () = std::future::ready(()) => {}
            }
            let reader = std::thread::spawn(move || io::copy(&mut reads, &mut io::sink()));
            assert_eq!(waiting.await.unwrap(), Feedback::Nothing);
            reader
        };
        assert!(printer.has_room());
        drop(printer);
        reader.join().unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_line_is_the_observation_as_it_goes_over_the_wire() {
        let state = TmuxState { sessions: [session(1, "a")].into(), ..TmuxState::default() };
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
            r#"{"watcher":7,"seq":2,"asked":0,"age_ms":3,"sent_at_ms":9,"complete":true,"view":"unchanged"}"#
        );
        assert!(lines[0].contains(r#""view":{"snapshot":{"state":{"server":"absent","sessions":{"$1":{"#));
        for (line, observe) in lines.iter().zip(all) {
            assert_eq!(serde_json::from_str::<Observe>(line).unwrap(), observe, "it can be fed again");
        }
    }
}
