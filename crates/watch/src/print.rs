//! `tmux-watch --print`: what `poold` would be told, as JSON lines on a stream, without a pool.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use protocol::request::Observe;
use protocol::tmux::Means;
use tmux::Device;
use tokio::io::Interest;
use tokio::net::unix::pipe;

use crate::error::Error;
use crate::plan;
use crate::source::Source;
use crate::stream::{Heard, Sink, Stream};

/// The longest time between two lines, in milliseconds.
const HEARTBEAT_MS: u64 = 2000;

/// Prints each observation of this server as one line of JSON, first a snapshot, then what changes;
/// until `shutdown`, or until nobody reads. By `means`, or the best that work.
///
/// # Errors
/// Where the output cannot be written, other than for want of a reader.
pub async fn print(
    device: Device,
    means: Option<Means>,
    out: impl Write + AsFd + Send,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let unread = unread(out.as_fd().try_clone_to_owned()?);
    let mut source = Source::new(device, plan(means, None, HEARTBEAT_MS))?;
    let stream = Stream::new(Printer { out }, &mut source, Duration::from_millis(HEARTBEAT_MS));
    tokio::select! {
        () = shutdown => Ok(()),
        () = unread => Ok(()),
        Err(error) = stream.run() => match error {
            Error::Print(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            error => Err(error.into()),
        },
    }
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

/// Writes lines, and is never told anything.
struct Printer<W> {
    out: W,
}

impl<W: Write + Send> Sink for Printer<W> {
    fn has_room(&self) -> bool {
        true
    }

    fn next_call(&self) -> u64 {
        0
    }

    async fn observe(&mut self, observe: Observe) -> Result<(), Error> {
        let mut line = serde_json::to_vec(&observe).map_err(|error| Error::Print(error.into()))?;
        line.push(b'\n');
        self.out.write_all(&line).and_then(|()| self.out.flush()).map_err(Error::Print)
    }

    async fn watching_by(&mut self, means: Means) -> Result<(), Error> {
        tracing::info!(means = means.word(), "watching");
        Ok(())
    }

    async fn hear(&mut self) -> Result<Heard, Error> {
        std::future::pending().await
    }

    async fn hear_soon(&mut self) -> Result<Heard, Error> {
        self.hear().await
    }
}

#[cfg(test)]
mod tests {
    use protocol::request::View;
    use protocol::tmux::TmuxState;

    use super::*;
    use crate::testing::session;

    #[tokio::test]
    async fn a_line_is_the_observation_as_it_goes_over_the_wire() {
        let state = TmuxState { sessions: [session(1, "a")].into(), ..TmuxState::default() };
        let observe = |seq, view| Observe { watcher: 7, seq, asked: 0, age_ms: 3, complete: true, view };
        let all = [observe(1, View::Snapshot { state, part: 0, more: false }), observe(2, View::Unchanged)];
        let mut printer = Printer { out: Vec::new() };
        for observe in all.clone() {
            printer.observe(observe).await.unwrap();
        }
        let text = String::from_utf8(printer.out).unwrap();
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
