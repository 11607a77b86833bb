//! A connection that is attached to the hidden session of the pool's own server: it hears of
//! everything, and questions go over it.

use std::collections::VecDeque;

use protocol::tmux::{HIDDEN_SESSION, Means};

use super::answer::Answer;
use super::parse::{Block, Event};
use super::wire::Wire;
use super::{Ask, Heard, control, native};
use crate::command::Line;
use crate::device::Device;
use crate::error::TmuxError;
use crate::guard::ServerRef;
use crate::imsg::Form;
use crate::owner;
use crate::query::Query;

pub(super) struct Attached {
    wire: Wire,
    server: ServerRef,
    asked: VecDeque<Answer>,
    cap: usize,
}

impl Attached {
    /// Attaches; makes the hidden session first, where it is missing.
    pub(super) async fn open(device: &Device, means: Means) -> Result<Self, TmuxError> {
        if means == Means::Control {
            // A client is not to try twice: each time is a danger to the server.
            drop(owner::connect(&device.socket).await?);
            hide(device).await?;
            return Self::prove(device, control::spawn(device, attach().words())?).await;
        }
        // With no session at all some versions end the connection without a word.
        match Self::native(device).await {
            Err(TmuxError::NotFound(_) | TmuxError::Closed) => {
                hide(device).await?;
                Self::native(device).await
            }
            other => other,
        }
    }

    async fn native(device: &Device) -> Result<Self, TmuxError> {
        let attach = attach();
        let by = async |form| Self::prove(device, native::connect(device, form, attach.words()).await?).await;
        // The wide form must not come first: an older server would lose the descriptor.
        match by(Form::Narrow).await {
            Err(TmuxError::Closed) => by(Form::Wide).await,
            other => other,
        }
    }

    /// A question is answered, hence the attaching went well.
    async fn prove(device: &Device, mut wire: Wire) -> Result<Self, TmuxError> {
        let query = Query::new(Ask::Alive, true);
        wire.send(&query.text());
        let mut answer = Answer::new(query, device.output_cap);
        loop {
            match wire.event(answer.mark()).await? {
                Event::Block(Block { ours: false, ok: false, text }) => {
                    return Err(TmuxError::from_message(&String::from_utf8_lossy(&text)));
                }
                Event::Block(block) if block.ours => {
                    if let Some(answered) = answer.take(&block) {
                        let (server, _) = answered?;
                        return Ok(Self { wire, server, asked: VecDeque::new(), cap: device.output_cap });
                    }
                }
                Event::Block(_) | Event::Notice(_) => {}
            }
        }
    }

    pub(super) fn server(&self) -> ServerRef {
        self.server
    }

    pub(super) fn ask(&mut self, ask: Ask) {
        let query = Query::new(ask, true);
        self.wire.send(&query.text());
        self.asked.push_back(Answer::new(query, self.cap));
    }

    pub(super) async fn hear(&mut self) -> Result<Heard, TmuxError> {
        loop {
            let mark = self.asked.front().map_or("", Answer::mark);
            let block = match self.wire.event(mark).await? {
                Event::Notice(notice) => return Ok(Heard::Notice(notice)),
                Event::Block(block) => block,
            };
            // Without a question it is a forgery, as is one that is not ours.
            if let Some(answer) = self.asked.front_mut()
                && block.ours
                && let Some(answered) = answer.take(&block)
            {
                let ask = answer.ask();
                self.asked.pop_front();
                let (server, read) = answered?;
                let same = server == self.server;
                return if same { Ok(Heard::Read(ask, read)) } else { Err(TmuxError::Incomplete) };
            }
        }
    }
}

fn target() -> String {
    format!("={HIDDEN_SESSION}:")
}

fn attach() -> Line {
    Line::default().then(["attach-session", "-t", &target(), "-f", "no-output,ignore-size"])
}

/// Makes the hidden session. Its program ends at once and the session stays, also when the server is
/// set to show clients another one instead.
async fn hide(device: &Device) -> Result<(), TmuxError> {
    let target = target();
    let name = HIDDEN_SESSION;
    // Two words, so that no shell starts.
    let new = ["new-session", "-d", "-s", name, "-n", name, "-x", "1", "-y", "1", "--", "true", "true"];
    let line = Line::default()
        .then(new)
        .then(["set-option", "-w", "-t", &target, "remain-on-exit", "on"])
        .then(["set-option", "-t", &target, "detach-on-destroy", "on"]);
    let reply = device.run(&line, None, false).await?;
    match reply.error() {
        _ if reply.ok => Ok(()),
        TmuxError::Duplicate(_) => Ok(()),
        error => Err(error),
    }
}
