//! One command line over a connection of our own, in tmux's socket protocol: all that a tmux client
//! would do with it, without starting one. It ends with this process, whatever it dies of.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::command::Line;
use crate::device::{Device, is_passed};
use crate::error::TmuxError;
use crate::guard::Nonce;
use crate::imsg::{self, Form, Frame, HEADER, MAX, kind};
use crate::owner;
use crate::run::{Reply, STDERR_CAP};

/// Without descriptors both forms of a header are the same bytes, on a machine that writes the lowest
/// byte first. On any other a client is run.
const FORM: Option<Form> = if cfg!(target_endian = "little") { Some(Form::Narrow) } else { None };

/// Whether the server that answers at the socket was found to take commands without a client. All
/// clones of a device know it.
#[derive(Debug, Clone, Default)]
pub struct Direct(Arc<Mutex<Known>>);

#[derive(Debug, Clone, Copy, Default)]
enum Known {
    #[default]
    Nothing,
    /// Of the server with this pid.
    Of(i32, bool),
    Never,
}

impl Direct {
    /// A client is run for each call, whatever the server understands.
    #[must_use]
    pub fn never() -> Self {
        Self(Arc::new(Mutex::new(Known::Never)))
    }

    fn works_with(&self, server: i32) -> Option<bool> {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Known::Of(known, works) if known == server => Some(works),
            Known::Of(..) | Known::Nothing => None,
            Known::Never => Some(false),
        }
    }

    fn learn(&self, server: i32, works: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Known::Of(server, works);
    }
}

/// Runs the line. `None` where it certainly did not run, and a client may do better, or say why not.
///
/// # Errors
/// [`TmuxError::ServerExited`], [`TmuxError::TooLong`], [`TmuxError::Output`]: it may have run.
pub(crate) async fn run(
    device: &Device,
    line: &Line,
    input: Option<&[u8]>,
) -> Option<Result<Reply, TmuxError>> {
    let request = request(line.words())?;
    loop {
        let stream = match owner::connect(&device.socket).await {
            Ok(stream) => stream,
            Err(error @ TmuxError::Foreign(_)) => return Some(Err(error)),
            Err(_) => return None,
        };
        let server = stream.peer_cred().ok()?.pid()?;
        match device.direct.works_with(server) {
            Some(true) => {
                let exchange = Exchange::begin(stream, &request, device.output_cap).await.ok()?;
                return Some(exchange.finish(input.unwrap_or_default()).await);
            }
            Some(false) => return None,
            None => {
                let works = proves_itself(stream, device.deadline / 2).await;
                if !works {
                    tracing::warn!(server, "this tmux takes commands from its own clients alone");
                }
                device.direct.learn(server, works);
            }
        }
    }
}

/// Whether a command that does nothing is answered as it must be, in time.
async fn proves_itself(stream: UnixStream, patience: Duration) -> bool {
    let said = Nonce::new().to_string();
    let line = Line::default().then(["display-message", "-p", &said]);
    let Some(request) = request(line.words()) else { return false };
    let answered = async { Exchange::begin(stream, &request, MAX).await.ok()?.finish(b"").await.ok() };
    let reply = tokio::time::timeout(patience, answered).await.ok().flatten();
    reply.is_some_and(|reply| reply.ok && reply.stdout == format!("{said}\n").as_bytes())
}

/// What a client sends before it reads anything: who it is and its command, which is the last and is
/// taken whole or not at all. `None` where it does not fit.
fn request(command: &[OsString]) -> Option<Vec<u8>> {
    let directory = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let ended = |text: &[u8]| [text, b"\0"].concat();
    let mut request = Vec::new();
    let mut add = |kind, data: &[u8]| encode(kind, data, &mut request);
    add(kind::LONG_FLAGS, &imsg::UTF8.to_ne_bytes())?;
    add(kind::TERM, b"dumb\0")?;
    add(kind::TTY_NAME, b"\0")?;
    add(kind::CWD, &ended(directory.as_os_str().as_bytes()))?;
    add(kind::CLIENT_PID, &std::process::id().to_ne_bytes())?;
    for (name, value) in std::env::vars_os().filter(|(name, _)| is_passed(name)) {
        // One that is too long does not come from a client either.
        add(kind::ENVIRON, &ended(&[name.as_bytes(), b"=", value.as_bytes()].concat()));
    }
    add(kind::DONE, b"")?;
    add(kind::COMMAND, &imsg::words(command))?;
    Some(request)
}

fn encode(kind: u32, data: &[u8], into: &mut Vec<u8>) -> Option<()> {
    imsg::encode(FORM?, Frame { kind, carries: false, data }, into).ok()
}

/// A command under way.
struct Exchange {
    stream: UnixStream,
    /// What came and was not looked at yet.
    buffer: Vec<u8>,
    /// The streams that the server writes to, each with its descriptor: 1 or 2.
    streams: Vec<(i32, i32)>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    cap: usize,
}

impl Exchange {
    /// Sends the request. An error: the command did not get there.
    async fn begin(mut stream: UnixStream, request: &[u8], cap: usize) -> io::Result<Self> {
        stream.write_all(request).await?;
        let (buffer, streams) = (Vec::with_capacity(4096), Vec::new());
        Ok(Self { stream, buffer, streams, stdout: Vec::new(), stderr: Vec::new(), cap })
    }

    /// Serves the server's requests for input and output until it says that the command is over.
    async fn finish(mut self, input: &[u8]) -> Result<Reply, TmuxError> {
        loop {
            while let Some((kind, data)) = self.next()? {
                if kind == kind::EXIT {
                    let ok = int(&data, 0).unwrap_or(0) == 0;
                    return Ok(Reply { ok, stdout: self.stdout, stderr: self.stderr });
                }
                self.serve(kind, &data, input).await?;
            }
            match self.stream.read_buf(&mut self.buffer).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Err(TmuxError::ServerExited),
            }
        }
    }

    /// Takes a message out of what came.
    fn next(&mut self) -> Result<Option<(u32, Vec<u8>)>, TmuxError> {
        let form = FORM.unwrap_or(Form::Wide);
        let Some((frame, length)) = imsg::decode(form, &self.buffer)? else { return Ok(None) };
        let message = (frame.kind, frame.data.to_vec());
        self.buffer.drain(..length);
        Ok(Some(message))
    }

    async fn serve(&mut self, kind: u32, data: &[u8], input: &[u8]) -> Result<(), TmuxError> {
        let stream = int(data, 0).unwrap_or(-1);
        match kind {
            kind::WRITE_OPEN => {
                self.streams.push((stream, int(data, 1).unwrap_or(-1)));
                self.send(kind::WRITE_READY, &[&stream.to_ne_bytes(), &[0; 4]]).await
            }
            kind::WRITE => self.take(stream, data.get(4..).unwrap_or_default()),
            kind::READ_OPEN => self.feed(stream, input).await,
            kind if kind == kind::VERSION || kind::ENDS.contains(&kind) => Err(TmuxError::ServerExited),
            _ => Ok(()),
        }
    }

    fn take(&mut self, stream: i32, data: &[u8]) -> Result<(), TmuxError> {
        let descriptor = self.streams.iter().find(|(known, _)| *known == stream).map(|(_, fd)| *fd);
        let (into, cap) = match descriptor {
            Some(1) => (&mut self.stdout, self.cap),
            _ => (&mut self.stderr, STDERR_CAP),
        };
        into.extend_from_slice(data);
        if into.len() > cap { Err(TmuxError::TooLong(cap)) } else { Ok(()) }
    }

    /// All of the input, in parts; only its end makes it count.
    async fn feed(&mut self, stream: i32, input: &[u8]) -> Result<(), TmuxError> {
        let stream = stream.to_ne_bytes();
        for part in input.chunks(MAX - HEADER - stream.len()) {
            self.send(kind::READ, &[&stream, part]).await?;
        }
        self.send(kind::READ_DONE, &[&stream, &[0; 4]]).await
    }

    async fn send(&mut self, kind: u32, data: &[&[u8]]) -> Result<(), TmuxError> {
        let mut bytes = Vec::new();
        encode(kind, &data.concat(), &mut bytes).ok_or(TmuxError::TooLong(MAX))?;
        self.stream.write_all(&bytes).await.map_err(|_| TmuxError::ServerExited)
    }
}

/// The `at`-th number at the start of a message.
fn int(data: &[u8], at: usize) -> Option<i32> {
    let bytes = data.get(at * 4..at * 4 + 4)?;
    Some(i32::from_ne_bytes(bytes.try_into().ok()?))
}
