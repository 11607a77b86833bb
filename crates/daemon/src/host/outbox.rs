//! Frames on their way to a peer. The sender, even the engine, writes a frame directly while nothing waits
//! before it: going through another thread would delay replies. What the socket does not take is buffered,
//! and a task of the connection writes it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::{Frame, Refusal, Reply, frame};
use tokio::sync::Notify;
use tokio::time::timeout;
use world::transport::Sender;

use crate::host::chunks;

/// Time without any progress after which a peer that has data to read is given up, unless an answer is more patient.
const STALL_LIMIT: Duration = Duration::from_secs(30);

/// Bytes buffered for a peer above which a stream to it waits.
const BUFFER_MAX: usize = 1 << 20;

/// Size at which a page of the journal ends, in bytes: the page stays in memory, beside the buffer, while its
/// subscriber does not read.
pub(crate) const PAGE_BYTES: usize = 1 << 20;

/// The sending side of a connection; when its last clone is dropped, the connection ends once everything is
/// written.
#[derive(Clone)]
pub(crate) struct Outbox(Arc<Senders>);

/// The error of sending to a peer that is gone or too slow.
#[derive(Debug)]
pub(crate) struct PeerGone;

struct Shared {
    writer: Box<dyn Sender>,
    buffer: Mutex<Buffer>,
    /// Signalled when there is data to write, or the last sender is dropped.
    wake: Notify,
    /// Signalled when the buffer shrinks, or the peer is gone.
    space: Notify,
}

struct Buffer {
    bytes: Vec<u8>,
    /// True while the task writes: no sender may write directly.
    busy: bool,
    /// True if the peer is gone or too slow.
    gone: bool,
    /// True once the last sender is dropped.
    closed: bool,
    /// Time without any progress after which the peer is given up.
    stall_limit: Duration,
}

/// Marks the buffer closed when the last sender is dropped.
struct Senders(Arc<Shared>);

impl Drop for Senders {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.wake.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Buffer> {
        // No code panics while it is held; if one did, the bytes would still be whole.
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outbox {
    /// Returns an outbox, and the task that writes its buffer, which must be spawned. Nothing is written
    /// before the bytes of `first`.
    pub(crate) fn new(
        writer: Box<dyn Sender>,
        first: impl Future<Output = Option<Vec<u8>>> + Send + 'static,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let buffer =
            Buffer { bytes: Vec::new(), busy: true, gone: false, closed: false, stall_limit: STALL_LIMIT };
        let (wake, space) = (Notify::new(), Notify::new());
        let shared = Arc::new(Shared { writer, buffer: Mutex::new(buffer), wake, space });
        let task = run(Arc::clone(&shared), first);
        (Self(Arc::new(Senders(shared))), task)
    }

    /// Waits for this long, from now on, for a peer that does not read.
    pub(crate) fn set_stall_limit(&self, limit: Duration) {
        self.shared().lock().stall_limit = limit;
    }

    /// Sends a frame of a stream; waits while the peer is slow.
    ///
    /// # Errors
    /// The peer is gone, or the frame is too large and not a reply.
    pub(crate) async fn send(&self, sent: Frame) -> Result<(), PeerGone> {
        let bytes = encode(sent)?;
        self.wait_for_space().await?;
        self.push(&bytes)
    }

    /// Sends a reply, in as many frames as it needs. Never waits: a connection has few calls under way.
    pub(crate) fn reply(&self, id: u64, reply: Reply) -> Result<(), PeerGone> {
        let sent = Frame::Reply { id, reply };
        // Most replies fit one frame, so measure and encode in one pass.
        match (frame::encode(&sent), sent) {
            (Ok(bytes), _) => self.push(&bytes),
            (Err(_), Frame::Reply { reply: Ok(response), .. }) => {
                let (parts, last) = chunks::split(response);
                for part in parts {
                    self.push(&encode(Frame::Part { id, part })?)?;
                }
                self.push(&encode(Frame::Reply { id, reply: last })?)
            }
            (Err(_), refusal) => self.push(&encode(refusal)?),
        }
    }

    /// Waits until less than [`BUFFER_MAX`] bytes are buffered.
    pub(crate) async fn wait_for_space(&self) -> Result<(), PeerGone> {
        self.wait_until_below(BUFFER_MAX).await
    }

    /// Waits until nothing is buffered.
    pub(crate) async fn wait_until_empty(&self) -> Result<(), PeerGone> {
        self.wait_until_below(1).await
    }

    /// Waits until less than `limit` bytes are buffered.
    async fn wait_until_below(&self, limit: usize) -> Result<(), PeerGone> {
        let shared = self.shared();
        loop {
            let space = shared.space.notified();
            tokio::pin!(space);
            space.as_mut().enable();
            let (full, gone) = {
                let buffer = shared.lock();
                (buffer.bytes.len() >= limit, buffer.gone)
            };
            match (gone, full) {
                (true, _) => return Err(PeerGone),
                (false, false) => return Ok(()),
                (false, true) => space.await,
            }
        }
    }

    fn shared(&self) -> &Shared {
        &self.0.0
    }

    /// Writes what the socket takes at once, and buffers the rest.
    fn push(&self, bytes: &[u8]) -> Result<(), PeerGone> {
        let shared = self.shared();
        let mut buffer = shared.lock();
        if buffer.gone {
            return Err(PeerGone);
        }
        let mut written = 0;
        if !buffer.busy && buffer.bytes.is_empty() {
            // A write that fails here is tried again by the task, which handles the error.
            written = shared.writer.try_send(bytes).unwrap_or(0);
        }
        if written < bytes.len() {
            buffer.bytes.extend_from_slice(&bytes[written..]);
            drop(buffer);
            shared.wake.notify_one();
        }
        Ok(())
    }
}

/// Encodes a frame. A reply that is too large becomes a refusal.
fn encode(sent: Frame) -> Result<Vec<u8>, PeerGone> {
    match (frame::encode(&sent), sent) {
        (Ok(bytes), _) => Ok(bytes),
        (Err(error), Frame::Reply { id, .. } | Frame::Part { id, .. }) => {
            let why = format!("the answer does not fit a frame: {error}");
            let reply = Err(Refusal::failed(why));
            frame::encode(&Frame::Reply { id, reply }).map_err(|_| PeerGone)
        }
        (Err(_), _) => Err(PeerGone),
    }
}

/// Writes the buffer until the peer is gone or too slow, or the last sender is dropped.
async fn run(shared: Arc<Shared>, first: impl Future<Output = Option<Vec<u8>>>) {
    let mut bytes = first.await;
    while let Some(out) = bytes {
        let stall_limit = shared.lock().stall_limit;
        if let Err(error) = write_all(&*shared.writer, &out, stall_limit).await {
            tracing::debug!(%error, "a peer is gone, or does not read");
            break;
        }
        bytes = next(&shared).await;
    }
    let mut buffer = shared.lock();
    buffer.gone = true;
    buffer.bytes = Vec::new();
    drop(buffer);
    shared.space.notify_waiters();
    // Ends the receiving direction too, and tells the peer.
    shared.writer.close();
}

/// Waits for buffered bytes and takes them; `None` once the last sender is dropped and the buffer is empty.
async fn next(shared: &Shared) -> Option<Vec<u8>> {
    loop {
        {
            let mut buffer = shared.lock();
            buffer.busy = !buffer.bytes.is_empty();
            if buffer.busy {
                let bytes = std::mem::take(&mut buffer.bytes);
                drop(buffer);
                shared.space.notify_waiters();
                return Some(bytes);
            }
            if buffer.closed {
                return None;
            }
        }
        shared.space.notify_waiters();
        shared.wake.notified().await;
    }
}

/// Sends bytes before there is an outbox, as fast as the peer reads.
///
/// # Errors
/// The peer is gone, or reads nothing for [`STALL_LIMIT`].
pub(crate) async fn send_all(writer: &dyn Sender, bytes: &[u8]) -> std::io::Result<()> {
    write_all(writer, bytes, STALL_LIMIT).await
}

/// Writes all bytes, as fast as the peer reads. Fails with `TimedOut` if it reads nothing for `stall`.
async fn write_all(writer: &dyn Sender, mut bytes: &[u8], stall: Duration) -> std::io::Result<()> {
    while !bytes.is_empty() {
        timeout(stall, writer.ready()).await??;
        match writer.try_send(bytes) {
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
    use world::BoxFuture;

    use super::*;

    const STALL: Duration = Duration::from_secs(2);
    /// Long enough to see that nothing happens.
    const MOMENT: Duration = Duration::from_millis(200);

    #[tokio::test]
    async fn a_slow_reader_is_waited_for_and_a_stalled_one_is_given_up() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (_ours, writer) = ours.into_split();
        let (mut reader, _theirs) = theirs.into_split();
        let bytes = vec![b'x'; 4 << 20];
        let slow = async {
            let mut part = vec![0; 256 << 10];
            let mut read = 0;
            while read < bytes.len() {
                // The whole takes longer than STALL, each part far less.
                tokio::time::sleep(STALL / 15).await;
                read += reader.read(&mut part).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(write_all(&writer, &bytes, STALL), slow);
        written.unwrap();
        let stalled = write_all(&writer, &bytes, STALL).await.unwrap_err();
        assert_eq!(stalled.kind(), std::io::ErrorKind::TimedOut);
    }

    /// A socket that takes nothing, as that of a peer that never reads.
    struct Full;

    impl Sender for Full {
        fn try_send(&self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::WouldBlock.into())
        }

        fn ready(&self) -> BoxFuture<'_, std::io::Result<()>> {
            Box::pin(std::future::pending())
        }

        fn close(&self) {}
    }

    /// Sends this frame until the stream has to wait. Returns the bytes that were taken.
    async fn fill(outbox: &Outbox, frame: &Frame) -> usize {
        let (size, mut taken) = (frame::encode(frame).unwrap().len(), 0);
        while let Ok(sent) = timeout(MOMENT, outbox.send(frame.clone())).await {
            sent.unwrap();
            taken += size;
        }
        taken
    }

    #[tokio::test]
    async fn s05_what_is_held_for_a_peer_that_never_reads_is_bounded() {
        for body in [1 << 10, 64 << 10, protocol::message::BODY_MAX] {
            let frame = Frame::Output { offset: 0, bytes: OsBytes(vec![0; body]) };
            let (outbox, task) = Outbox::new(Box::new(Full), async { Some(Vec::new()) });
            // At worst, the task takes a full buffer, and another one is filled meanwhile.
            let first = fill(&outbox, &frame).await;
            tokio::spawn(task);
            let held = first + fill(&outbox, &frame).await;
            assert!(first >= BUFFER_MAX && held >= 2 * BUFFER_MAX, "{held} in frames of {body}");
            assert!(held <= 2 * (BUFFER_MAX + body + 64), "{held} in frames of {body}");
            // A subscriber has a page of the journal besides: 4 MiB at most for all.
            assert!(held + PAGE_BYTES + body <= 4 << 20, "{held} in frames of {body}");
        }
    }

    #[tokio::test]
    async fn a_peer_that_does_not_read_is_given_up_after_the_limit_that_was_set() {
        let (outbox, task) = Outbox::new(Box::new(Full), async { Some(Vec::new()) });
        outbox.set_stall_limit(MOMENT);
        tokio::spawn(task);
        let frame = Frame::Output { offset: 0, bytes: OsBytes(vec![0; 1]) };
        let gone = async {
            while outbox.send(frame.clone()).await.is_ok() {
                tokio::time::sleep(MOMENT / 10).await;
            }
        };
        timeout(STALL_LIMIT / 2, gone).await.expect("long before the usual limit");
    }

    #[tokio::test]
    async fn a_stream_can_wait_until_the_buffer_is_empty() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (_ours, writer) = ours.into_split();
        let (mut reader, _theirs) = theirs.into_split();
        let (outbox, task) = Outbox::new(Box::new(writer), async { Some(Vec::new()) });
        tokio::spawn(task);
        let full = || Frame::Output { offset: 0, bytes: OsBytes(vec![0; 512 << 10]) };
        for _ in 0..2 {
            outbox.wait_until_empty().await.unwrap();
            outbox.send(full()).await.unwrap();
        }
        assert!(
            timeout(MOMENT, outbox.wait_until_empty()).await.is_err(),
            "one frame is in the socket, the other is buffered"
        );
        let mut part = vec![0; 1 << 20];
        let read = async {
            loop {
                assert!(reader.read(&mut part).await.unwrap() > 0);
            }
        };
        tokio::select! {
            biased;
            emptied = outbox.wait_until_empty() => emptied.unwrap(),
            () = read => {}
        }
    }
}
