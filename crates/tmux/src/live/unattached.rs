//! A connection to a server that is not the pool's. It is attached to no session, receives the
//! notifications for all clients, and sends each read over a short connection of its own. Nothing is
//! created or changed.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::channel::Channel;
use super::native;
use super::notice::LiveEvent;
use super::parse::Event;
use super::pending::{PendingRead, ReadResult};
use crate::device::Device;
use crate::error::TmuxError;
use crate::guard::ServerRef;
use crate::imsg::Form;
use crate::query::{Query, Reading, Scope};

/// Maximum number of reads in progress.
const MAX_CONCURRENT: usize = 8;

pub(super) struct Unattached {
    channel: Channel,
    server: ServerRef,
    device: Device,
    form: Form,
    pending: VecDeque<Request>,
    permits: Arc<Semaphore>,
    /// True once the server had a session: it may exit with the last one, and then waits for all its
    /// connections to close.
    had_sessions: bool,
}

/// A read in progress. Dropping it cancels it.
struct Request {
    scope: Scope,
    answer: JoinHandle<ReadResult>,
}

impl Drop for Request {
    fn drop(&mut self) {
        self.answer.abort();
    }
}

impl Unattached {
    pub(super) async fn open(device: &Device) -> Result<Self, TmuxError> {
        // The narrow form comes first: a wide header would make an older server lose the descriptor.
        let (form, server) = match read_once(device, Form::Narrow, Scope::Alive).await {
            Err(TmuxError::Closed) => (Form::Wide, read_once(device, Form::Wide, Scope::Alive).await?.0),
            other => (Form::Narrow, other?.0),
        };
        Ok(Self {
            channel: native::connect(device, form, &[]).await?,
            server,
            device: device.clone(),
            form,
            pending: VecDeque::new(),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT)),
            had_sessions: false,
        })
    }

    pub(super) fn server(&self) -> ServerRef {
        self.server
    }

    pub(super) fn request(&mut self, scope: Scope) {
        let (device, form, permits) = (self.device.clone(), self.form, Arc::clone(&self.permits));
        let answer = tokio::spawn(async move {
            let _permit = permits.acquire().await;
            read_once(&device, form, scope).await
        });
        self.pending.push_back(Request { scope, answer });
    }

    pub(super) async fn next(&mut self) -> Result<LiveEvent, TmuxError> {
        loop {
            let answered = tokio::select! {
                answered = oldest_answer(&mut self.pending) => answered,
                event = self.channel.event("") => match event? {
                    Event::Notice(notice) => return Ok(LiveEvent::Notice(notice)),
                    Event::Block(_) => continue,
                },
            };
            let Some(Request { scope, .. }) = self.pending.pop_front() else { continue };
            let (server, read) = answered?;
            if server != self.server {
                return Err(TmuxError::Incomplete);
            }
            self.leave_if_empty(&read);
            return Ok(LiveEvent::Read(scope, read));
        }
    }

    fn leave_if_empty(&mut self, read: &Reading) {
        let empty = match read {
            Reading::All(listing) => listing.sessions.is_empty(),
            Reading::Sessions(sessions) => sessions.is_empty(),
            Reading::Alive | Reading::Part(_) | Reading::Shared => return,
        };
        if empty && self.had_sessions {
            self.channel.close();
        }
        self.had_sessions = !empty;
    }
}

/// Waits for the answer to the oldest read. Cancel-safe.
async fn oldest_answer(pending: &mut VecDeque<Request>) -> ReadResult {
    match pending.front_mut() {
        Some(request) => (&mut request.answer).await.unwrap_or(Err(TmuxError::Incomplete)),
        None => std::future::pending().await,
    }
}

/// Reads over a connection opened for this read only.
async fn read_once(device: &Device, form: Form, scope: Scope) -> ReadResult {
    let query = Query::new(scope, device.own);
    let mut channel = native::connect(device, form, query.line().words()).await?;
    let mut answer = PendingRead::new(query, device.output_cap);
    loop {
        if let Event::Block(block) = channel.event(answer.mark()).await?
            && let Some(answered) = answer.take(&block)
        {
            return answered;
        }
    }
}
