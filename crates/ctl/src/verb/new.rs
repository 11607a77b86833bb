//! `new`: create a session.

mod life;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use protocol::reply::SessionView;
use protocol::request::New;
use protocol::session::Size;
use protocol::{OsBytes, Request};

use crate::cli::{Repeat, pair};
use crate::client::Client;
use crate::context::{Context, absolute};
use crate::error::Error;
use crate::exit;
use crate::show::json::SessionJson;
use crate::show::{out, time};
use crate::verb::ready::{self, Block};
use crate::verb::{expect_session, send};

pub(crate) use life::{Fate, Life, reaped_or_default};

/// Variables of the caller that a session gets with `--clean-env`: where programs are, how to write and speak to the user,
/// and the user's agent for keys.
const PASSED: [&str; 9] =
    ["PATH", "LANG", "TZ", "HOME", "USER", "LOGNAME", "SHELL", "COLORTERM", "SSH_AUTH_SOCK"];
const PASSED_PREFIXES: [&str; 2] = ["LC_", "XDG_"];

/// The part of `new --help` and `run --help` about the environment.
pub(crate) fn environment_help() -> String {
    let mut text =
        "Environment: the session gets this one, as it is kept for its restarts, without what belongs to\n\
                    this terminal and session:\n"
            .to_owned();
    let mut line = String::from(" ");
    for name in protocol::env::LEFT {
        if line.len() + name.len() >= 92 {
            text.push_str(&line);
            text.push('\n');
            line = String::from(" ");
        }
        line.push(' ');
        line.push_str(name);
    }
    text.push_str(&line);
    text.push_str(
        "\nTMUX is not set in it but for shells, so that an agent's own tmux never reaches the pool's.\n\
         [env] pass and drop of the configuration, --clean-env and --env change that.",
    );
    text
}

/// Create a session; prints its id when it is verified running
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = environment_help())]
pub(crate) struct Args {
    /// Its name, a-z 0-9 _ -; the pool makes one where none is given
    pub name: Option<String>,
    /// The kind of agent that it runs [default: shell, or none where a command is given]
    #[arg(long, value_name = "KIND")]
    pub agent: Option<String>,
    /// The workspace it belongs to [default: its name]
    #[arg(long, value_name = "NAME")]
    pub workspace: Option<String>,
    /// The directory it starts in; own: its own work directory [default: this one]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Pass on only PATH, HOME, the language and the like of this environment
    #[arg(long)]
    pub clean_env: bool,
    /// Set a variable; a name alone passes the caller's on
    #[arg(long, value_name = "K=V")]
    pub env: Vec<OsString>,
    /// Variables from a file: a line each, # starts a comment
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// Set a label
    #[arg(long, value_name = "K=V", value_parser = pair)]
    pub label: Vec<(String, String)>,
    /// Its first message, queued with the session itself
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<OsString>,
    /// Take the session of this workspace if there is one; start it if it does not run
    #[arg(long)]
    pub reuse: bool,
    /// Size of its terminal while nobody is attached
    #[arg(long, value_name = "COLSxROWS", value_parser = size)]
    pub size: Option<Size>,
    #[command(flatten)]
    pub block: Block,
    #[command(flatten)]
    pub life: Life,
    #[command(flatten)]
    pub repeat: Repeat,
    /// The program and its arguments [default: the agent's]
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

fn size(text: &str) -> Result<Size, String> {
    let number = |text: &str| text.parse().ok().filter(|n| (1..=10_000).contains(n));
    let size = text.split_once('x').and_then(|(c, r)| Some(Size { cols: number(c)?, rows: number(r)? }));
    size.ok_or_else(|| "write it like 200x50, each from 1 to 10000".into())
}

/// Creates it, prints its id.
pub(crate) fn run(context: &Context, args: Args) -> Result<u8, Error> {
    let mut client = context.client_for_slot(args.life.wait_slot, Duration::ZERO);
    let block = args.block;
    let view = create(context, &mut client, args)?;
    let id = view.session.id.to_string();
    let ready = ready::wait(context, block, view, None);
    match &ready {
        Ok(view) if context.style.json => out::json(&SessionJson::new(view, time::now()))?,
        // It is there, whatever became of its agent.
        _ => out::line(&id)?,
    }
    ready.map(|_| exit::OK)
}

/// Creates a session; it runs when this returns.
pub(crate) fn create(context: &Context, client: &mut Client, args: Args) -> Result<SessionView, Error> {
    let repeat = args.repeat.clone();
    let request = request(args)?;
    let _progress = context.progress("the session to run");
    expect_session(client.change(&repeat, Request::New(Box::new(request)))?)
}

fn request(args: Args) -> Result<New, Error> {
    let mut env = Vec::new();
    for file in &args.env_file {
        let text =
            std::fs::read(file).map_err(|error| Error::usage(format!("{}: {error}", file.display())))?;
        env.extend(env_lines(&text).map_err(|error| Error::usage(format!("{}: {error}", file.display())))?);
    }
    for entry in &args.env {
        env.extend(env_entry(entry.as_bytes()).map_err(|error| Error::usage(format!("--env: {error}")))?);
    }
    let prompt = args.prompt.map(OsBytes::from).map(send::fitting).transpose()?;
    // `./own` is a directory of that name.
    let own = args.cwd.as_deref() == Some(Path::new(OWN));
    let caller_cwd = if args.cwd.is_none() { Some(here()?) } else { None };
    let caller_env = if args.clean_env { passed(std::env::vars_os()) } else { all(std::env::vars_os()) };
    let new = New {
        name: args.name,
        workspace: args.workspace,
        agent: args.agent,
        command: args.command.into_iter().map(OsBytes::from).collect(),
        cwd: args.cwd.filter(|_| !own).map(|cwd| absolute(&cwd)).transpose()?.map(OsBytes::from),
        env,
        caller_env,
        caller_cwd,
        labels: args.label.into_iter().collect::<BTreeMap<_, _>>(),
        size: args.size,
        reuse: args.reuse,
        prompt,
        ..New::default()
    };
    Ok(args.life.applied(new))
}

/// Stands for a session's own work directory.
const OWN: &str = "own";

/// The directory that this is called from, by the path that the caller knows it by.
fn here() -> Result<OsBytes, Error> {
    let gone = |error| Error::usage(format!("this directory is gone ({error}): say --cwd DIR, or --cwd own"));
    let here = std::env::current_dir().map_err(gone)?;
    let identity = |path: &Path| path.metadata().map(|found| process::file::id(&found));
    let named = std::env::var_os("PWD").map(PathBuf::from).filter(|named| named.is_absolute());
    let same = named.filter(|named| matches!((identity(named), identity(&here)), (Ok(a), Ok(b)) if a == b));
    Ok(OsBytes::from(same.unwrap_or(here)))
}

type Variable = (OsBytes, OsBytes);

/// All of these variables but those that belong to the caller's terminal and session.
fn all(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<Variable> {
    let all = variables.filter(|(name, _)| !protocol::env::is_left(name.as_bytes()));
    all.map(|(name, value)| (name.into(), value.into())).collect()
}

/// Those of these variables that a session gets without asking.
fn passed(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<Variable> {
    let is_passed = |name: &OsStr| {
        let starts = |prefix: &&str| name.as_bytes().starts_with(prefix.as_bytes());
        PASSED.iter().any(|passed| name == *passed) || PASSED_PREFIXES.iter().any(starts)
    };
    let passed = variables.filter(|(name, _)| is_passed(name));
    passed.map(|(name, value)| (name.into(), value.into())).collect()
}

/// The variables of a file: `K=V` or `K` a line; blank lines and lines that start with `#` say nothing.
fn env_lines(text: &[u8]) -> Result<Vec<Variable>, String> {
    let mut variables = Vec::new();
    for (number, line) in text.split(|b| *b == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if !line.trim_ascii().is_empty() && !line.trim_ascii_start().starts_with(b"#") {
            variables.extend(env_entry(line).map_err(|error| format!("line {}: {error}", number + 1))?);
        }
    }
    Ok(variables)
}

/// `K=V`, or `K` for the caller's value; nothing where the caller has none.
fn env_entry(entry: &[u8]) -> Result<Option<Variable>, String> {
    let (name, value) = match entry.iter().position(|b| *b == b'=') {
        Some(at) => (&entry[..at], Some(entry[at + 1..].to_vec())),
        None => (entry, std::env::var_os(OsStr::from_bytes(entry)).map(OsStringExt::into_vec)),
    };
    if name.is_empty() || name.iter().any(u8::is_ascii_whitespace) || entry.contains(&0) {
        return Err("a variable is written like NAME=value".into());
    }
    Ok(value.map(|value| (OsBytes(name.to_vec()), OsBytes(value))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(variables: &[Variable]) -> Vec<String> {
        variables.iter().map(|(k, v)| format!("{}={}", k.to_string_lossy(), v.to_string_lossy())).collect()
    }

    #[test]
    fn an_env_file_has_a_variable_a_line() {
        let text = b"# comment\nA=1\n\n  # another\r\nB=x=y z\r\nEMPTY=\nPATH\nSURELY_NOT_SET_ANYWHERE\n";
        let variables = env_lines(text).unwrap();
        let path = format!("PATH={}", std::env::var("PATH").unwrap());
        assert_eq!(pairs(&variables), ["A=1", "B=x=y z", "EMPTY=", &path]);
        assert!(env_lines(b"A=1\n=2\n").unwrap_err().starts_with("line 2:"));
        assert!(env_lines(b"A=\0").is_err());
        assert_eq!(env_lines(b"A=\xff").unwrap()[0].1, OsBytes(vec![0xff]));
    }

    #[test]
    fn only_the_allowed_leaks_from_the_caller() {
        let names =
            ["PATH", "LC_ALL", "XDG_DATA_HOME", "TERM", "TMUX", "POOL_SOCKET", "AWS_SECRET", "PATHS", "LANG"];
        let passed = passed(names.into_iter().map(|name| (name.into(), "v".into())));
        assert_eq!(pairs(&passed), ["PATH=v", "LC_ALL=v", "XDG_DATA_HOME=v", "LANG=v"]);
    }

    #[test]
    fn sizes_have_bounds() {
        assert_eq!(size("80x24"), Ok(Size { cols: 80, rows: 24 }));
        for bad in ["", "80", "80x", "0x1", "80x10001", "80x24x2", "-1x5", "80X24"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
