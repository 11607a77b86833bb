//! Runs one command line over a connection in tmux's socket protocol, as a tmux client would, but without
//! starting one. The connection ends with this process, however it dies.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::command::{CommandLine, Reply, STDERR_CAP};
use crate::device::{Device, is_passed};
use crate::error::TmuxError;
use crate::guard::Nonce;
use crate::imsg::{self, Form, Frame, HEADER, MAX, kind};
use crate::trust;

/// Without descriptors both header forms are the same bytes on a little-endian machine. On any other a
/// client is run.
const FORM: Option<Form> = if cfg!(target_endian = "little") { Some(Form::Narrow) } else { None };

/// Runs the line. `None` if it certainly did not run, and a client may succeed or explain why not.
///
/// # Errors
/// [`TmuxError::ServerExited`], [`TmuxError::TooLong`], [`TmuxError::Output`]: the line may have run.
pub(crate) async fn run(
    device: &Device,
    line: &CommandLine,
    input: Option<&[u8]>,
) -> Option<Result<Reply, TmuxError>> {
    let request = request(line.words())?;
    loop {
        let stream = match trust::connect(&device.socket).await {
            Ok(stream) => stream,
            Err(error @ TmuxError::Untrusted(_)) => return Some(Err(error)),
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
                let works = self_test(stream, device.deadline / 2).await;
                if works == Some(false) {
                    tracing::warn!(server, "this tmux server takes commands from tmux clients only");
                }
                device.direct.learn(server, works);
            }
        }
    }
}

/// True if a command without effect is answered correctly; `None` if it is not answered in time.
async fn self_test(stream: UnixStream, patience: Duration) -> Option<bool> {
    let expected = Nonce::new().to_string();
    let line = CommandLine::default().then(["display-message", "-p", &expected]);
    let Some(request) = request(line.words()) else { return Some(false) };
    let answered = async { Exchange::begin(stream, &request, MAX).await.ok()?.finish(b"").await.ok() };
    let reply = tokio::time::timeout(patience, answered).await.ok()?;
    Some(reply.is_some_and(|reply| reply.ok && reply.stdout == format!("{expected}\n").as_bytes()))
}

/// Encodes everything that a client sends before it reads: its identification and its command, which comes
/// last and is executed whole or not at all. `None` if it does not fit.
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
        // A variable that is too long does not come from a client either.
        add(kind::ENVIRON, &ended(&[name.as_bytes(), b"=", value.as_bytes()].concat()));
    }
    add(kind::DONE, b"")?;
    add(kind::COMMAND, &imsg::words(command))?;
    Some(request)
}

fn encode(kind: u32, data: &[u8], into: &mut Vec<u8>) -> Option<()> {
    imsg::encode(FORM?, Frame { kind, carries: false, data }, into).ok()
}

/// Command in progress.
struct Exchange {
    stream: UnixStream,
    /// Received bytes not yet decoded.
    buffer: Vec<u8>,
    /// Streams that the server writes to, each with its descriptor: 1 or 2.
    streams: Vec<(i32, i32)>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    cap: usize,
}

impl Exchange {
    /// Sends the request. An error means that the command did not arrive.
    async fn begin(mut stream: UnixStream, request: &[u8], cap: usize) -> io::Result<Self> {
        stream.write_all(request).await?;
        let (buffer, streams) = (Vec::with_capacity(4096), Vec::new());
        Ok(Self { stream, buffer, streams, stdout: Vec::new(), stderr: Vec::new(), cap })
    }

    /// Serves the server's requests for input and output until the command ends.
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

    /// Removes the next complete message from the buffer.
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

    /// Sends the whole input in parts; the server uses it only once its end has arrived.
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

/// Reads the `at`-th 32-bit integer of a message.
fn int(data: &[u8], at: usize) -> Option<i32> {
    let bytes = data.get(at * 4..at * 4 + 4)?;
    Some(i32::from_ne_bytes(bytes.try_into().ok()?))
}
