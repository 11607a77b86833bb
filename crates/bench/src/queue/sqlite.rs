//! Peer SQLite in WAL mode with `synchronous=FULL`: each client is a `sqlite3` process, fed through pipes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::drive::{Client, Talk, Turn};
use super::subject::{BODY, Server, Work};
use crate::child::Spawned;
use std::io::Write;

pub(super) const PROGRAM: &str = "sqlite3";

/// Maximum time a client waits for another's transaction, in milliseconds.
const BUSY_MS: u32 = 60_000;
/// Messages that are only enqueued need no index.
const SCHEMA: &str = "PRAGMA journal_mode=WAL;
CREATE TABLE log(id INTEGER PRIMARY KEY, body BLOB);
CREATE TABLE message(id INTEGER PRIMARY KEY, queue INTEGER, held INTEGER, body BLOB);
CREATE INDEX waiting ON message(queue, id) WHERE held = 0;";

/// A database.
pub(super) struct Sqlite {
    file: PathBuf,
}

impl Sqlite {
    /// Creates a database in this directory.
    pub(super) fn create(dir: &Path) -> Result<Self> {
        let file = dir.join("sqlite.db");
        let output = Command::new(PROGRAM)
            .args(["-bail", "-batch"])
            .args([file.as_os_str(), SCHEMA.as_ref()])
            .stdin(Stdio::null())
            .output()
            .context(PROGRAM)?;
        ensure!(output.status.success(), "{PROGRAM}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(Self { file })
    }
}

impl Server for Sqlite {
    fn name(&self) -> &'static str {
        "SQLite WAL FULL"
    }

    fn client(&self, work: Work, number: usize) -> Result<Client> {
        let mut command = Command::new(PROGRAM);
        command.args(["-bail", "-batch"]).arg(&self.file);
        command.args(["-cmd", &format!(".timeout {BUSY_MS}"), "-cmd", "PRAGMA synchronous=FULL;"]);
        Client::of(Spawned::piped(&mut command)?, Sql { work, number, step: Step::Insert })
    }
}

/// Its protocol: one transaction a request, answered by a line.
struct Sql {
    work: Work,
    number: usize,
    step: Step,
}

enum Step {
    Insert,
    Take,
    Delete(String),
}

impl Talk for Sql {
    fn ask(&mut self, to: &mut Vec<u8>) -> Result<()> {
        let (body, queue) = (String::from_utf8_lossy(&BODY), self.number);
        match &self.step {
            Step::Insert if self.work == Work::Enqueue => {
                write!(to, "INSERT INTO log(body) VALUES('{body}'); SELECT 'ok';")?;
            }
            Step::Insert => write!(
                to,
                "INSERT INTO message(queue, held, body) VALUES({queue}, 0, '{body}'); SELECT 'ok';"
            )?,
            Step::Take => write!(
                to,
                "UPDATE message SET held = 1 WHERE id = (SELECT id FROM message WHERE queue = {queue} AND held = 0 \
                 ORDER BY id LIMIT 1) RETURNING id, body;"
            )?,
            Step::Delete(id) => write!(to, "DELETE FROM message WHERE id = {id}; SELECT 'ok';")?,
        }
        to.push(b'\n');
        Ok(())
    }

    fn answer(&mut self, from: &[u8]) -> Result<Option<(usize, Turn)>> {
        let Some(line) = from.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let text = String::from_utf8_lossy(&from[..line]);
        let (next, turn) = match (&self.step, text.split_once('|')) {
            (Step::Insert, None) if text == "ok" && self.work == Work::Enqueue => (Step::Insert, Turn::Over),
            (Step::Insert, None) if text == "ok" => (Step::Take, Turn::Further),
            (Step::Take, Some((id, _))) => (Step::Delete(id.to_owned()), Turn::Further),
            (Step::Delete(_), None) if text == "ok" => (Step::Insert, Turn::Over),
            _ => bail!("{PROGRAM}: {text}"),
        };
        self.step = next;
        Ok(Some((line + 1, turn)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_insert_take_delete() {
        let mut talk = Sql { work: Work::Cycle, number: 3, step: Step::Insert };
        for (answer, turn) in [("ok\n", Turn::Further), ("12|xxx\n", Turn::Further), ("ok\n", Turn::Over)] {
            assert_eq!(talk.answer(&answer.as_bytes()[1..1]).unwrap(), None);
            assert_eq!(talk.answer(answer.as_bytes()).unwrap(), Some((answer.len(), turn)));
        }
        assert!(talk.answer(b"Error\n").is_err());
    }
}
