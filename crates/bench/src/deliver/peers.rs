//! Delay of a prompt until the program has read it: by the pool, by hand, and by the other tools that are
//! installed.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::agents::{self, Agents, Kind};
use super::prompt::Chat;
use super::reader::Reader;
use crate::child::Spawned;
use crate::order::order;
use crate::pool::Pool;
use crate::stats::Times;
use crate::{interrupt, remains, report};

/// Programs of the other tools, and their Python packages.
const TMUX_CLI: &str = "tmux-cli";
const CAO: &str = "cao-server";
const PACKAGES: [(&str, &str); 2] = [(TMUX_CLI, "claude-code-tools"), (CAO, "cli-agent-orchestrator")];
/// Name of the mock agent of `cli-agent-orchestrator`.
const MOCK: &str = "mock_cli";
/// The session in the pool.
const SESSION: &str = "reads";
/// Time for its server to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Prompts before the first that counts.
const WARM_UP: usize = 1;
/// Time for a delivery to finish: some tools press Enter again later.
const SETTLE: Duration = Duration::from_millis(1500);

/// A way to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// tmux commands, by a program without other work.
    Hand,
    /// A request to the pool.
    Pool,
    /// `poolctl send --wait accepted`.
    Poolctl,
    /// `tmux-cli send`.
    TmuxCli,
    /// A message to `cli-agent-orchestrator`.
    Cao,
}

/// All measurements of one way.
pub(super) struct Row {
    pub(super) way: Way,
    /// Time until the program has read the prompt.
    pub(super) read: Times,
    /// Time until the sender has its reply.
    pub(super) told: Times,
    /// Number of prompts that were not read.
    pub(super) lost: usize,
}

/// All results.
pub(super) struct Peers {
    pub(super) rows: Vec<Row>,
    /// Reasons for missing tools.
    pub(super) missing: Vec<String>,
}

/// Sends this many prompts in each way, in turn.
pub(super) fn measure(pool: &Pool, agents: &Agents, reader: &Reader, runs: usize) -> Result<Peers> {
    let lacks = |(program, package): &(&str, &str)| {
        find(program)
            .is_none()
            .then(|| format!("{program}: not on the PATH; install it with `pip install {package}`"))
    };
    let missing: Vec<String> = PACKAGES.iter().filter_map(lacks).collect();
    let mut ways = vec![Way::Hand, Way::Pool, Way::Poolctl];
    ways.extend(find(TMUX_CLI).map(|_| Way::TmuxCli));
    ways.extend(find(CAO).map(|_| Way::Cao));
    let row = |way| Row { way, read: Times::default(), told: Times::default(), lost: 0 };
    let mut rows: Vec<Row> = ways.into_iter().map(row).collect();
    report(&format!("{runs} prompts in {} ways to a reading program", rows.len()));
    let server = Server::start(pool, agents)?;
    let begin = || {
        let has_cao = rows.iter().any(|row| row.way == Way::Cao);
        let cao = has_cao.then(|| Cao::start(&server, agents)).transpose()?;
        let chat = Chat::begin(pool, agents, (Kind::Fake, SESSION))?;
        anyhow::Ok(Senders { pool, chat, server: &server, cao })
    };
    let measured = begin().and_then(|senders| rounds(senders, reader, &mut rows, runs));
    let ended = server.end();
    measured?;
    ended?;
    Ok(Peers { rows, missing })
}

/// All ways to send.
struct Senders<'a> {
    pool: &'a Pool,
    chat: Chat<'a>,
    server: &'a Server<'a>,
    cao: Option<Cao>,
}

impl Senders<'_> {
    fn send(&mut self, way: Way, text: &str) -> Result<()> {
        match way {
            Way::Hand => self.chat.type_in(text),
            Way::Pool => self.chat.send(text).map(drop),
            Way::Poolctl => {
                succeed(self.pool.command("poolctl").args(["send", SESSION, text, "--wait", "accepted"]))
            }
            Way::TmuxCli => succeed(self.server.command(TMUX_CLI).args(["send", text, "--pane=fake"])),
            Way::Cao => self.cao.as_ref().context("no server")?.send(text),
        }
    }
}

fn rounds(mut senders: Senders<'_>, reader: &Reader, rows: &mut [Row], runs: usize) -> Result<()> {
    senders.chat.is_ready()?;
    for run in 0..WARM_UP + runs {
        for at in order(run, rows.len()) {
            interrupt::check()?;
            let row = &mut rows[at];
            let text = format!("{} number {run}", name(row.way));
            let began = Instant::now();
            senders.send(row.way, &text)?;
            let told = began.elapsed();
            let read = reader.wait(&text);
            interrupt::sleep(SETTLE)?;
            match read.filter(|_| run >= WARM_UP) {
                Some(at) => {
                    row.read.push(at.saturating_duration_since(began));
                    row.told.push(told);
                }
                None => row.lost += usize::from(run >= WARM_UP),
            }
        }
    }
    Ok(())
}

/// Name of the way in the table and in its prompts.
pub(super) fn name(way: Way) -> &'static str {
    match way {
        Way::Hand => "tmux by hand",
        Way::Pool => "the pool",
        Way::Poolctl => "poolctl send",
        Way::TmuxCli => "tmux-cli send",
        Way::Cao => "cli-agent-orchestrator",
    }
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| path.is_file())
}

fn succeed(command: &mut Command) -> Result<()> {
    let output = command.stdout(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

/// A tmux server for the other tools, where they look for one by default.
struct Server<'a> {
    pool: &'a Pool,
    dir: PathBuf,
}

impl<'a> Server<'a> {
    /// Starts it, with the script in a session.
    fn start(pool: &'a Pool, agents: &Agents) -> Result<Self> {
        let dir = pool.dir().join("peers");
        fs::create_dir_all(dir.join("bin"))?;
        let server = Self { pool, dir };
        let script = [agents.script(), agents.fifo()].map(|path| path.display().to_string());
        let mock = server.dir.join("bin").join(MOCK);
        fs::write(&mock, format!("#!/bin/sh\nexec bash {} {}\n", script[0], script[1]))?;
        fs::set_permissions(&mock, fs::Permissions::from_mode(0o700))?;
        for file in [".bash_profile", ".bashrc"] {
            fs::write(server.dir.join(file), format!("PATH={}:$PATH\n", server.dir.join("bin").display()))?;
        }
        let mut tmux = server.command("tmux");
        succeed(
            tmux.args(["-f", "/dev/null", "new-session", "-d", "-s", "fake", "--", "bash"]).args(script),
        )?;
        Ok(server)
    }

    /// Returns a command that finds this server, with a home of its own.
    fn command(&self, program: &str) -> Command {
        let mut command = self.pool.command(program);
        command.env("TMUX_TMPDIR", &self.dir).env("HOME", &self.dir).env("SHELL", "/bin/bash");
        command.env("LANG", "C.UTF-8").env("CAO_HOME_DIR", self.dir.join("cao")).current_dir(&self.dir);
        command
    }

    /// Ends the server with everything in it.
    fn end(&self) -> Result<()> {
        let processes = crate::pool::processes(self.command("tmux"));
        succeed(self.command("tmux").arg("kill-server"))?;
        remains::end(&processes?)
    }
}

/// A server of `cli-agent-orchestrator`, with the script as its agent.
struct Cao {
    port: u16,
    terminal: String,
    _process: Spawned,
}

impl Cao {
    fn start(server: &Server<'_>, agents: &Agents) -> Result<Self> {
        let port = agents::free_port()?;
        let mut command = server.command(CAO);
        command.args(["--port", &port.to_string(), "--terminal", "tmux"]);
        let process = Spawned::logged(&mut command, &server.dir.join("cao.out"))?;
        agents::listens(port).context(CAO)?;
        let place = agents.place();
        let new = format!(
            "/sessions?provider={MOCK}&agent_profile=developer&session_name=bench&working_directory={}",
            place.display()
        );
        let made = post(port, &new)?;
        let terminal = field(&made, "id").with_context(|| format!("{CAO}: {made}"))?.to_owned();
        Ok(Self { port, terminal, _process: process })
    }

    fn send(&self, text: &str) -> Result<()> {
        let (to, text) = (&self.terminal, text.replace(' ', "+"));
        let path = format!("/terminals/{to}/inbox/messages?sender_id={to}&message={text}");
        post(self.port, &path).map(drop)
    }
}

/// Sends a POST request without a body; returns the body of the answer.
fn post(port: u16, path: &str) -> Result<String> {
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    write!(
        socket,
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    match head.split(' ').nth(1) {
        Some(status) if status.starts_with('2') => Ok(body.to_owned()),
        _ => bail!("{path}: {body}"),
    }
}

/// Returns a text field of a JSON object, unless it contains escapes.
fn field<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    let (_, value) = json.split_once(&format!("\"{name}\":\""))?;
    value.split('"').next()
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener};
    use std::thread;

    use super::*;

    #[test]
    fn a_field_of_an_answer() {
        let json = r#"{"id":"378b1b70","name":"x","provider":"mock_cli"}"#;
        assert_eq!((field(json, "id"), field(json, "provider")), (Some("378b1b70"), Some("mock_cli")));
        assert_eq!(field(json, "status"), None);
    }

    #[test]
    fn an_answer_is_its_body_or_a_refusal() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            for answer in ["201 Created\r\n\r\nmade", "404 Not Found\r\n\r\nno such"] {
                let (mut peer, _) = listener.accept().unwrap();
                let mut asked = [0; 8];
                peer.read_exact(&mut asked).unwrap();
                assert_eq!(&asked, b"POST /a?");
                peer.write_all(format!("HTTP/1.1 {answer}").as_bytes()).unwrap();
                // Unread data would reset the connection.
                peer.shutdown(Shutdown::Write).unwrap();
                drop(peer.read_to_end(&mut Vec::new()));
            }
        });
        assert_eq!(post(port, "/a?b=c").unwrap(), "made");
        assert!(post(port, "/a?b=c").unwrap_err().to_string().contains("no such"));
        server.join().unwrap();
    }
}
