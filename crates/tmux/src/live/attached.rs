//! A connection attached to the hidden session of the pool's own server: it receives all notifications and
//! carries the reads.

use std::collections::VecDeque;

use protocol::tmux::{HIDDEN_SESSION, TmuxTransport};

use super::channel::Channel;
use super::notice::LiveEvent;
use super::parse::{Block, Event};
use super::pending::PendingRead;
use super::{control, native};
use crate::command::CommandLine;
use crate::device::Device;
use crate::error::TmuxError;
use crate::guard::ServerRef;
use crate::imsg::Form;
use crate::query::{Query, Scope};
use crate::trust;

pub(super) struct Attached {
    channel: Channel,
    server: ServerRef,
    pending: VecDeque<PendingRead>,
    cap: usize,
}

impl Attached {
    /// Attaches, after creating the hidden session if it is missing.
    pub(super) async fn open(device: &Device, transport: TmuxTransport) -> Result<Self, TmuxError> {
        if transport == TmuxTransport::Control {
            // The client makes one attempt only: each one endangers the server.
            drop(trust::connect(&device.socket).await?);
            create_hidden_session(device).await?;
            return Self::self_test(device, control::spawn(device, attach().words())?).await;
        }
        // Without any session some versions end the connection without a message.
        match Self::native(device).await {
            Err(TmuxError::NotFound(_) | TmuxError::Closed) => {
                create_hidden_session(device).await?;
                Self::native(device).await
            }
            other => other,
        }
    }

    async fn native(device: &Device) -> Result<Self, TmuxError> {
        let attach = attach();
        let by =
            async |form| Self::self_test(device, native::connect(device, form, attach.words()).await?).await;
        // The narrow form comes first: a wide header would make an older server lose the descriptor.
        match by(Form::Narrow).await {
            Err(TmuxError::Closed) => by(Form::Wide).await,
            other => other,
        }
    }

    /// Proves by one read that attaching succeeded.
    async fn self_test(device: &Device, mut channel: Channel) -> Result<Self, TmuxError> {
        let query = Query::new(Scope::Alive, true);
        channel.send(&query.text());
        let mut answer = PendingRead::new(query, device.output_cap);
        loop {
            match channel.event(answer.mark()).await? {
                Event::Block(Block { ours: false, ok: false, text }) => {
                    return Err(TmuxError::from_message(&String::from_utf8_lossy(&text)));
                }
                Event::Block(block) if block.ours => {
                    if let Some(answered) = answer.take(&block) {
                        let (server, _) = answered?;
                        return Ok(Self {
                            channel,
                            server,
                            pending: VecDeque::new(),
                            cap: device.output_cap,
                        });
                    }
                }
                Event::Block(_) | Event::Notice(_) => {}
            }
        }
    }

    pub(super) fn server(&self) -> ServerRef {
        self.server
    }

    pub(super) fn request(&mut self, scope: Scope) {
        let query = Query::new(scope, true);
        self.channel.send(&query.text());
        self.pending.push_back(PendingRead::new(query, self.cap));
    }

    pub(super) async fn next(&mut self) -> Result<LiveEvent, TmuxError> {
        loop {
            let mark = self.pending.front().map_or("", PendingRead::mark);
            let block = match self.channel.event(mark).await? {
                Event::Notice(notice) => return Ok(LiveEvent::Notice(notice)),
                Event::Block(block) => block,
            };
            // A block that no read is pending for, or that is not ours, is forged.
            if let Some(answer) = self.pending.front_mut()
                && block.ours
                && let Some(answered) = answer.take(&block)
            {
                let scope = answer.scope();
                self.pending.pop_front();
                let (server, read) = answered?;
                let same = server == self.server;
                return if same { Ok(LiveEvent::Read(scope, read)) } else { Err(TmuxError::Incomplete) };
            }
        }
    }
}

fn target() -> String {
    format!("={HIDDEN_SESSION}:")
}

fn attach() -> CommandLine {
    CommandLine::default().then(["attach-session", "-t", &target(), "-f", "no-output,ignore-size"])
}

/// Creates the hidden session. Its program ends at once and the session stays, even if the server is set to
/// switch clients to another session instead.
async fn create_hidden_session(device: &Device) -> Result<(), TmuxError> {
    let target = target();
    let name = HIDDEN_SESSION;
    // Two words, so that no shell starts.
    let new = ["new-session", "-d", "-s", name, "-n", name, "-x", "1", "-y", "1", "--", "true", "true"];
    let line = CommandLine::default()
        .then(new)
        .then(["set-option", "-w", "-t", &target, "remain-on-exit", "on"])
        .then(["set-option", "-t", &target, "destroy-unattached", "off"])
        .then(["set-option", "-t", &target, "detach-on-destroy", "on"]);
    let reply = device.run(&line, None, false).await?;
    match reply.error() {
        _ if reply.ok => Ok(()),
        TmuxError::Duplicate(_) => Ok(()),
        error => Err(error),
    }
}
