//! Runs a program to its end within a deadline; its output and exit code.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Deadline after which the program is killed and the test fails.
const LIMIT: Duration = Duration::from_secs(60);

/// A finished program.
#[derive(Debug)]
pub(crate) struct Output {
    /// Command line, for messages.
    pub(crate) what: String,
    /// Exit code; 128 + signal number if a signal ended it.
    pub(crate) code: i32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    /// Runs the command with `input` on standard input.
    #[track_caller]
    #[must_use = "look at the output or assert how it ended"]
    pub(crate) fn of(command: &mut Command, input: &[u8]) -> Self {
        let what = format!("{:?} {:?}", command.get_program(), command.get_args().collect::<Vec<_>>());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{what}: {error}"));
        let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
        // A program need not read its input: a broken pipe is no failure.
        let writer = thread::spawn(move || drop(stdin.write_all(&input)));
        let stdout = reader(child.stdout.take().unwrap());
        let stderr = reader(child.stderr.take().unwrap());
        let began = Instant::now();
        let mut pause = Duration::from_micros(200);
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if began.elapsed() > LIMIT {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("did not end within {LIMIT:?}: {what}");
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        };
        writer.join().unwrap();
        let (bytes, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
        Self {
            what,
            code: code(status),
            stdout: String::from_utf8_lossy(&bytes).into_owned(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
            bytes,
        }
    }

    /// Fails the test unless the exit code is `code`.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}\n--- stdout\n{}--- stderr\n{}", self.what, self.stdout, self.stderr);
        self
    }

    /// The single JSON document on standard output.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The JSON documents on standard output, one a line.
    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.stdout.lines().map(parse).collect()
    }

    /// The JSON error document on standard error.
    #[track_caller]
    pub(crate) fn error(&self) -> Value {
        let last = self.stderr.lines().last().unwrap_or_default();
        let document: Value = serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        document["error"].clone()
    }

    /// Standard output without the final newline.
    pub(crate) fn text(&self) -> &str {
        self.stdout.trim_end()
    }
}

fn reader(mut from: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

/// Milliseconds of a timestamp within its day.
#[track_caller]
pub(crate) fn clock_ms(at: &Value) -> i64 {
    let text = at.as_str().unwrap_or_else(|| panic!("no time: {at}"));
    let part = |from: usize, to: usize| text[from..to].parse::<i64>().unwrap();
    ((part(11, 13) * 60 + part(14, 16)) * 60 + part(17, 19)) * 1000 + part(20, 23)
}
