//! A connection to a server that is not the pool's: attached to nothing, it hears what everyone is
//! told, and each question goes over a short connection of its own. Nothing is made or changed.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::answer::{Answer, Answered};
use super::parse::Event;
use super::wire::Wire;
use super::{Ask, Heard, Read, native};
use crate::device::Device;
use crate::error::TmuxError;
use crate::guard::ServerRef;
use crate::imsg::Form;
use crate::query::Query;

/// How many questions go out at a time.
const AT_ONCE: usize = 8;

pub(super) struct Apart {
    wire: Wire,
    server: ServerRef,
    device: Device,
    form: Form,
    asked: VecDeque<Asked>,
    turns: Arc<Semaphore>,
    /// A server that was seen with sessions may want to exit with the last of them, and waits for all
    /// its connections.
    had_sessions: bool,
}

/// A question on its way. Dropping it takes it back.
struct Asked {
    ask: Ask,
    answered: JoinHandle<Answered>,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.answered.abort();
    }
}

impl Apart {
    pub(super) async fn open(device: &Device) -> Result<Self, TmuxError> {
        // The wide form must not come first: an older server would lose the descriptor.
        let (form, server) = match once(device, Form::Narrow, Ask::Alive).await {
            Err(TmuxError::Closed) => (Form::Wide, once(device, Form::Wide, Ask::Alive).await?.0),
            other => (Form::Narrow, other?.0),
        };
        Ok(Self {
            wire: native::connect(device, form, &[]).await?,
            server,
            device: device.clone(),
            form,
            asked: VecDeque::new(),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            had_sessions: false,
        })
    }

    pub(super) fn server(&self) -> ServerRef {
        self.server
    }

    pub(super) fn ask(&mut self, ask: Ask) {
        let (device, form, turns) = (self.device.clone(), self.form, Arc::clone(&self.turns));
        let answered = tokio::spawn(async move {
            let _turn = turns.acquire().await;
            once(&device, form, ask).await
        });
        self.asked.push_back(Asked { ask, answered });
    }

    pub(super) async fn hear(&mut self) -> Result<Heard, TmuxError> {
        loop {
            let answered = tokio::select! {
                answered = next(&mut self.asked) => answered,
                event = self.wire.event("") => match event? {
                    Event::Notice(notice) => return Ok(Heard::Notice(notice)),
                    Event::Block(_) => continue,
                },
            };
            let Some(Asked { ask, .. }) = self.asked.pop_front() else { continue };
            let (server, read) = answered?;
            if server != self.server {
                return Err(TmuxError::Incomplete);
            }
            self.leave_if_empty(&read);
            return Ok(Heard::Read(ask, read));
        }
    }

    fn leave_if_empty(&mut self, read: &Read) {
        let empty = match read {
            Read::All(listing) => listing.sessions.is_empty(),
            Read::Sessions(sessions) => sessions.is_empty(),
            Read::Alive | Read::Part(_) | Read::Shared => return,
        };
        if empty && self.had_sessions {
            self.wire.close();
        }
        self.had_sessions = !empty;
    }
}

/// What came of the oldest question. May be cancelled.
async fn next(asked: &mut VecDeque<Asked>) -> Answered {
    match asked.front_mut() {
        Some(asked) => (&mut asked.answered).await.unwrap_or(Err(TmuxError::Incomplete)),
        None => std::future::pending().await,
    }
}

/// Asks over a connection that is opened for it, and that ends with the answer.
async fn once(device: &Device, form: Form, ask: Ask) -> Answered {
    let query = Query::new(ask, device.own);
    let mut wire = native::connect(device, form, query.line().words()).await?;
    let mut answer = Answer::new(query, device.output_cap);
    loop {
        if let Event::Block(block) = wire.event(answer.mark()).await?
            && let Some(answered) = answer.take(&block)
        {
            return answered;
        }
    }
}
