//! Where frames for a peer go. Whoever has one ready writes it at once, the engine too, as long as
//! nothing waits before it: a reply that took the way over another thread would come later. What the
//! peer does not take waits here, and a task of the connection writes it.

use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::socket::{Shutdown, shutdown};
use protocol::aio::WriteHalf;
use protocol::{ErrorCode, Frame, Refusal, Reply, frame};
use tokio::sync::Notify;
use tokio::time::timeout;

/// How long a peer may read nothing at all of what it asked for.
const STALL_LIMIT: Duration = Duration::from_secs(30);

/// Bytes that may wait for a peer before whoever streams to it has to wait too.
const BACKLOG: usize = 1 << 20;

/// Where frames for a peer go.
#[derive(Clone)]
pub(crate) struct Outbox(Arc<Last>);

/// The peer is gone.
#[derive(Debug)]
pub(crate) struct Gone;

struct Shared {
    writer: WriteHalf,
    waiting: Mutex<Waiting>,
    /// There is something to write, or nothing will come any more.
    wake: Notify,
    /// There is room again, or the peer is gone.
    room: Notify,
}

struct Waiting {
    bytes: Vec<u8>,
    /// The task writes: nobody else may.
    busy: bool,
    /// The peer is gone, or too slow.
    gone: bool,
    /// Nobody is left who could send.
    over: bool,
}

/// Held by those who send; with the last of them the connection ends, once all is written.
struct Last(Arc<Shared>);

impl Drop for Last {
    fn drop(&mut self) {
        self.0.lock().over = true;
        self.0.wake.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while it is held; in a build that unwinds the bytes are as good as before.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outbox {
    /// An outbox, and the task that writes what waits, which must be run. Nothing is written before `first`.
    pub(crate) fn new(
        writer: WriteHalf,
        first: impl Future<Output = Option<Vec<u8>>> + Send + 'static,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let waiting = Waiting { bytes: Vec::new(), busy: true, gone: false, over: false };
        let (wake, room) = (Notify::new(), Notify::new());
        let shared = Arc::new(Shared { writer, waiting: Mutex::new(waiting), wake, room });
        let task = run(Arc::clone(&shared), first);
        (Self(Arc::new(Last(shared))), task)
    }

    /// A frame of a stream: waits while the peer is slow.
    ///
    /// # Errors
    /// The peer is gone, or a frame that is no reply is too large.
    pub(crate) async fn send(&self, sent: Frame) -> Result<(), Gone> {
        let bytes = whole(sent)?;
        self.room().await?;
        self.push(&bytes)
    }

    /// A reply, in as many frames as it takes. Never waits: a connection has few calls under way.
    ///
    /// # Errors
    /// The peer is gone.
    pub(crate) fn reply(&self, id: u64, reply: Reply) -> Result<(), Gone> {
        let sent = Frame::Reply { id, reply };
        // Most answers fit one frame: they are measured and encoded in one go.
        match (frame::encode(&sent), sent) {
            (Ok(bytes), _) => self.push(&bytes),
            (Err(_), Frame::Reply { reply: Ok(response), .. }) => {
                let (parts, last) = crate::host::chunks::split(response);
                for part in parts {
                    self.push(&whole(Frame::Part { id, part })?)?;
                }
                self.push(&whole(Frame::Reply { id, reply: last })?)
            }
            (Err(_), refusal) => self.push(&whole(refusal)?),
        }
    }

    /// Waits until the peer has read most of what was sent to it.
    ///
    /// # Errors
    /// The peer is gone.
    pub(crate) async fn room(&self) -> Result<(), Gone> {
        self.room_beside(BACKLOG).await
    }

    /// Waits until nothing that was sent to the peer waits here any more.
    ///
    /// # Errors
    /// The peer is gone.
    pub(crate) async fn empty(&self) -> Result<(), Gone> {
        self.room_beside(1).await
    }

    /// Waits until less than this waits.
    async fn room_beside(&self, backlog: usize) -> Result<(), Gone> {
        let shared = self.shared();
        loop {
            let room = shared.room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            let (full, gone) = {
                let waiting = shared.lock();
                (waiting.bytes.len() >= backlog, waiting.gone)
            };
            match (gone, full) {
                (true, _) => return Err(Gone),
                (false, false) => return Ok(()),
                (false, true) => room.await,
            }
        }
    }

    fn shared(&self) -> &Shared {
        &self.0.0
    }

    /// Writes what the socket takes at once; the rest waits.
    fn push(&self, bytes: &[u8]) -> Result<(), Gone> {
        let shared = self.shared();
        let mut waiting = shared.lock();
        if waiting.gone {
            return Err(Gone);
        }
        let mut written = 0;
        if !waiting.busy && waiting.bytes.is_empty() {
            // What cannot be written now is tried again by the task, which learns why.
            written = shared.writer.try_write(bytes).unwrap_or(0);
        }
        if written < bytes.len() {
            waiting.bytes.extend_from_slice(&bytes[written..]);
            drop(waiting);
            shared.wake.notify_one();
        }
        Ok(())
    }
}

/// A frame as bytes. A reply that is too large becomes a refusal instead.
fn whole(sent: Frame) -> Result<Vec<u8>, Gone> {
    match (frame::encode(&sent), sent) {
        (Ok(bytes), _) => Ok(bytes),
        (Err(error), Frame::Reply { id, .. } | Frame::Part { id, .. }) => {
            let why = format!("the answer does not fit a frame: {error}");
            let reply = Err(Refusal::new(ErrorCode::Failed, why));
            frame::encode(&Frame::Reply { id, reply }).map_err(|_| Gone)
        }
        (Err(_), _) => Err(Gone),
    }
}

/// Writes until the peer is gone or too slow, or nobody sends any more.
async fn run(shared: Arc<Shared>, first: impl Future<Output = Option<Vec<u8>>>) {
    let mut bytes = first.await;
    while let Some(out) = bytes {
        if let Err(error) = write_all(&shared.writer, &out, STALL_LIMIT).await {
            tracing::debug!(%error, "a peer is gone, or does not read");
            break;
        }
        bytes = next(&shared).await;
    }
    let mut waiting = shared.lock();
    waiting.gone = true;
    waiting.bytes = Vec::new();
    drop(waiting);
    shared.room.notify_waiters();
    // Whoever reads from the peer, and the peer itself, learns that it is over. It may be gone already.
    shutdown(shared.writer.as_ref().as_raw_fd(), Shutdown::Both).ok();
}

/// What waits, once something does; none where nobody sends any more.
async fn next(shared: &Shared) -> Option<Vec<u8>> {
    loop {
        {
            let mut waiting = shared.lock();
            waiting.busy = !waiting.bytes.is_empty();
            if waiting.busy {
                let bytes = std::mem::take(&mut waiting.bytes);
                drop(waiting);
                shared.room.notify_waiters();
                return Some(bytes);
            }
            if waiting.over {
                return None;
            }
        }
        shared.room.notify_waiters();
        shared.wake.notified().await;
    }
}

/// Writes as fast as the peer reads; one that reads nothing at all for so long is given up.
async fn write_all(writer: &WriteHalf, mut bytes: &[u8], stall: Duration) -> std::io::Result<()> {
    while !bytes.is_empty() {
        timeout(stall, writer.writable()).await??;
        match writer.try_write(bytes) {
            Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::OsBytes;
    use tokio::io::AsyncReadExt;
    use tokio::net::UnixStream;

    use super::*;

    const STALL: Duration = Duration::from_secs(3);
    /// Too short for anything but to see that nothing happens.
    const MOMENT: Duration = Duration::from_millis(200);

    #[tokio::test]
    async fn who_reads_slowly_is_waited_for_and_who_does_not_read_is_given_up() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (_ours, writer) = ours.into_split();
        let (mut reader, _theirs) = theirs.into_split();
        let bytes = vec![b'x'; 4 << 20];
        let slow = async {
            let mut part = vec![0; 256 << 10];
            let mut read = 0;
            while read < bytes.len() {
                // All of it takes longer than STALL, no part of it nearly so long.
                tokio::time::sleep(STALL / 15).await;
                read += reader.read(&mut part).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(write_all(&writer, &bytes, STALL), slow);
        written.unwrap();
        let stalled = write_all(&writer, &bytes, STALL).await.unwrap_err();
        assert_eq!(stalled.kind(), std::io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_stream_may_wait_until_nothing_waits() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (_ours, writer) = ours.into_split();
        let (mut reader, _theirs) = theirs.into_split();
        let (outbox, task) = Outbox::new(writer, async { Some(Vec::new()) });
        tokio::spawn(task);
        let full = || Frame::Output { offset: 0, bytes: OsBytes(vec![0; 512 << 10]) };
        for _ in 0..2 {
            outbox.empty().await.unwrap();
            outbox.send(full()).await.unwrap();
        }
        assert!(timeout(MOMENT, outbox.empty()).await.is_err(), "one is on its way, the other waits");
        let mut part = vec![0; 1 << 20];
        let read = async {
            loop {
                assert!(reader.read(&mut part).await.unwrap() > 0);
            }
        };
        tokio::select! {
            emptied = outbox.empty() => emptied.unwrap(),
            () = read => {}
        }
    }
}
