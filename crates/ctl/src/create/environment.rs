//! The environment of a new session: the caller's variables, those of files and those of flags.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use agents::Adapter;
use protocol::OsBytes;

use crate::show::{escape, out};
use crate::{Context, Error};

/// The caller's variables that a session gets with `--clean-env`: where programs are, the user's language and
/// identity, and the user's agent for SSH keys.
const KEPT: [&str; 9] =
    ["PATH", "LANG", "TZ", "HOME", "USER", "LOGNAME", "SHELL", "COLORTERM", "SSH_AUTH_SOCK"];
const KEPT_PREFIXES: [&str; 2] = ["LC_", "XDG_"];
/// Columns of the list of variables in the help.
const HELP_WIDTH: usize = 92;

/// A name and its value.
type Variable = (OsBytes, OsBytes);
/// A name and its value; `None` if the caller has none.
type Entry = (OsBytes, Option<OsBytes>);

/// The part of `new --help` and `run --help` about the environment.
pub(crate) fn environment_help() -> String {
    let mut text =
        "Environment: the session gets this one, which is kept for its restarts, without the variables of\n\
                    this terminal and session:\n"
            .to_owned();
    let mut line = String::from(" ");
    for name in protocol::env::STRIPPED {
        if line.len() + name.len() >= HELP_WIDTH {
            text.push_str(&line);
            text.push('\n');
            line = String::from(" ");
        }
        line.push(' ');
        line.push_str(name);
    }
    text.push_str(&line);
    text.push_str(
        "\nTMUX is set for shells only, so that an agent's own tmux never reaches the pool's.\n\
         --clean-env, --env, and pass and drop in the [env] section of the configuration change that.",
    );
    text
}

/// The caller's variables for a new session: without those of the caller's terminal and session, or with
/// `clean` only those that every session gets.
pub(crate) fn of_caller(clean: bool) -> Vec<Variable> {
    if clean { kept(std::env::vars_os()) } else { all(std::env::vars_os()) }
}

/// Returns the variables of these files and of these `--env` flags, in that order. Variables that are named without a
/// value, and that the caller does not have, are reported on standard error.
pub(crate) fn of_flags(
    context: &Context,
    files: &[PathBuf],
    entries: &[OsString],
) -> Result<Vec<Variable>, Error> {
    let mut variables = Vec::new();
    for file in files {
        let failed = |error: String| Error::usage(format!("{}: {error}", file.display()));
        let text = std::fs::read(file).map_err(|error| failed(error.to_string()))?;
        variables.extend(of_lines(&text).map_err(failed)?);
    }
    for entry in entries {
        let variable = of_entry(entry.as_bytes()).map_err(|error| Error::usage(format!("--env: {error}")))?;
        variables.push(variable);
    }
    for (name, _) in variables.iter().filter(|(_, value)| value.is_none() && !context.style.quiet) {
        let name = escape::line(&name.to_string_lossy());
        out::note(&format!("poolctl: {name} has no value here, so it is not passed on"));
    }
    Ok(variables.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
}

/// Returns all variables that a session inherits. Those that the pool set for the hooks of another session are left
/// out.
fn all(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<Variable> {
    let variables: Vec<(OsString, OsString)> = variables.collect();
    let hooked =
        variables.iter().find(|(name, _)| name == "POOL_HOOKED").and_then(|(_, value)| value.to_str());
    let adapter = hooked.map_or(Adapter::None, Adapter::of);
    let stays = |name: &[u8]| protocol::env::is_stripped(name) || agents::wiring::is_variable(adapter, name);
    let all = variables.into_iter().filter(|(name, _)| !stays(name.as_bytes()));
    all.map(|(name, value)| (name.into(), value.into())).collect()
}

fn kept(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<Variable> {
    let is_kept = |name: &OsStr| {
        let starts = |prefix: &&str| name.as_bytes().starts_with(prefix.as_bytes());
        KEPT.iter().any(|kept| name == *kept) || KEPT_PREFIXES.iter().any(starts)
    };
    let kept = variables.filter(|(name, _)| is_kept(name));
    kept.map(|(name, value)| (name.into(), value.into())).collect()
}

/// Parses a file of variables: `K=V` or `K` per line; blank lines and lines that start with `#` are skipped.
fn of_lines(text: &[u8]) -> Result<Vec<Entry>, String> {
    let mut variables = Vec::new();
    for (number, line) in text.split(|b| *b == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if !line.trim_ascii().is_empty() && !line.trim_ascii_start().starts_with(b"#") {
            variables.push(of_entry(line).map_err(|error| format!("line {}: {error}", number + 1))?);
        }
    }
    Ok(variables)
}

/// Parses `K=V`, or `K` for the caller's value.
fn of_entry(entry: &[u8]) -> Result<Entry, String> {
    let (name, value) = match entry.iter().position(|b| *b == b'=') {
        Some(at) => (&entry[..at], Some(entry[at + 1..].to_vec())),
        None => (entry, std::env::var_os(OsStr::from_bytes(entry)).map(OsStringExt::into_vec)),
    };
    if name.is_empty() || name.iter().any(u8::is_ascii_whitespace) || entry.contains(&0) {
        return Err("a variable is written like NAME=value".into());
    }
    Ok((OsBytes(name.to_vec()), value.map(OsBytes)))
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
        let shown = |text: &[u8]| {
            let entry = |(name, value): Entry| match value {
                Some(value) => format!("{}={}", name.to_string_lossy(), value.to_string_lossy()),
                None => name.to_string_lossy(),
            };
            of_lines(text).unwrap().into_iter().map(entry).collect::<Vec<_>>()
        };
        let path = format!("PATH={}", std::env::var("PATH").unwrap());
        assert_eq!(shown(text), ["A=1", "B=x=y z", "EMPTY=", &path, "SURELY_NOT_SET_ANYWHERE"]);
        // No shell reads it.
        let literal = shown(b"A=\"x y\"\nB='1'\nC=$A # no comment \n");
        assert_eq!(literal, ["A=\"x y\"", "B='1'", "C=$A # no comment "]);
        assert!(of_lines(b"export A=1").is_err());
        assert!(of_lines(b"A=1\n=2\n").unwrap_err().starts_with("line 2:"));
        assert!(of_lines(b"A=\0").is_err());
        assert_eq!(of_lines(b"A=\xff").unwrap()[0].1, Some(OsBytes(vec![0xff])));
    }

    #[test]
    fn only_the_allowed_leaks_from_the_caller() {
        let names =
            ["PATH", "LC_ALL", "XDG_DATA_HOME", "TERM", "TMUX", "POOL_SOCKET", "AWS_SECRET", "PATHS", "LANG"];
        let kept = kept(names.into_iter().map(|name| (name.into(), "v".into())));
        assert_eq!(pairs(&kept), ["PATH=v", "LC_ALL=v", "XDG_DATA_HOME=v", "LANG=v"]);
    }
}
