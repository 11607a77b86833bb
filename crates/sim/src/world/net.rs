//! Connections between simulated processes: pipes of bytes, and a socket with a backlog.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use protocol::ProcId;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;
use world::BoxFuture;
use world::processes::Processes;
use world::transport::{Incoming, Listener, Receiver, Sender};

use crate::world::life::Life;

/// Bytes that a pipe holds.
const PIPE_MAX: usize = 64 * 1024;

/// One direction of a connection.
#[derive(Clone, Default)]
struct Pipe(Arc<Mutex<PipeState>>);

#[derive(Default)]
struct PipeState {
    bytes: VecDeque<u8>,
    /// True once an end is closed: what was written can still be read.
    closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    fn state(&self) -> MutexGuard<'_, PipeState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let wakers = [state.reader.take(), state.writer.take()];
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

/// The receiving end of a pipe.
struct PipeReader(Pipe);

impl Drop for PipeReader {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl AsyncRead for PipeReader {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.0.state();
        if state.bytes.is_empty() {
            if state.closed {
                return Poll::Ready(Ok(()));
            }
            state.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        while out.remaining() > 0 {
            let Some(byte) = state.bytes.pop_front() else { break };
            out.put_slice(&[byte]);
        }
        let writer = state.writer.take();
        drop(state);
        writer.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(()))
    }
}

/// The sending end of a pipe, and the other direction, which it closes too.
struct PipeWriter {
    out: Pipe,
    back: Pipe,
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        self.out.close();
    }
}

impl Sender for PipeWriter {
    fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.out.state();
        if state.closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let room = PIPE_MAX.saturating_sub(state.bytes.len()).min(bytes.len());
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.bytes.extend(&bytes[..room]);
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
        Ok(room)
    }

    fn ready(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(std::future::poll_fn(|context| {
            let mut state = self.out.state();
            if state.closed || state.bytes.len() < PIPE_MAX {
                return Poll::Ready(Ok(()));
            }
            state.writer = Some(context.waker().clone());
            Poll::Pending
        }))
    }

    fn close(&self) {
        self.out.close();
        self.back.close();
    }
}

/// The socket of the pool, at which the current daemon listens.
#[derive(Clone, Default)]
pub(crate) struct Net(Arc<Mutex<Option<mpsc::Sender<Incoming>>>>);

/// The two directions of a connection.
pub(crate) struct Stream {
    pub(crate) receiver: Receiver,
    pub(crate) sender: Box<dyn Sender>,
}

impl Net {
    /// Listens, for a daemon with this life.
    pub(crate) fn listen(&self, life: Life) -> SimListener {
        let (sender, queue) = mpsc::channel(16);
        *self.state() = Some(sender);
        SimListener { queue, life }
    }

    /// Connects as this process. `None` if nobody listens, or the backlog is full.
    pub(crate) fn connect(&self, process: Option<ProcId>) -> Option<Stream> {
        let (there, back) = (Pipe::default(), Pipe::default());
        let incoming = Incoming {
            receiver: Box::new(PipeReader(there.clone())),
            sender: Box::new(PipeWriter { out: back.clone(), back: there.clone() }),
            pid: process.map(|process| process.pid),
            process,
        };
        self.state().as_ref()?.try_send(incoming).ok()?;
        let sender = PipeWriter { out: there, back: back.clone() };
        Some(Stream { receiver: Box::new(PipeReader(back)), sender: Box::new(sender) })
    }

    fn state(&self) -> MutexGuard<'_, Option<mpsc::Sender<Incoming>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The listening end of the socket.
pub(crate) struct SimListener {
    queue: mpsc::Receiver<Incoming>,
    life: Life,
}

impl Listener for SimListener {
    fn accept<'a>(&'a mut self, _: &'a dyn Processes) -> BoxFuture<'a, io::Result<Option<Incoming>>> {
        Box::pin(async move {
            match self.queue.recv().await {
                Some(mut incoming) => {
                    incoming.sender = Box::new(Mortal { sender: incoming.sender, life: self.life.clone() });
                    Ok(Some(incoming))
                }
                None => std::future::pending().await,
            }
        })
    }
}

/// A sending end that its process takes with it.
struct Mortal {
    sender: Box<dyn Sender>,
    life: Life,
}

impl Sender for Mortal {
    fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        if self.life.is_dead() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.sender.try_send(bytes)
    }

    fn ready(&self) -> BoxFuture<'_, io::Result<()>> {
        self.sender.ready()
    }

    fn close(&self) {
        self.sender.close();
    }
}
