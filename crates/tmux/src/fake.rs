//! In-memory tmux for tests, with failures on demand. It enforces the same guards as the real one.

mod driver;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::tmux::{TmuxPane, TmuxSession};
use protocol::{Name, PaneId, Tag, TmuxSessionId, Token, WindowId};

use crate::act::Client;
use crate::create::{Create, Created, Size};
use crate::device::DEADLINE;
use crate::driver::Call;
use crate::error::TmuxError;
use crate::guard::{Answer, PaneRef, Precondition, ServerRef};
use crate::pane_snapshot::PaneSnapshot;
use crate::receipt::Receipt;

/// Failure of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Nothing happens and no answer comes: immediate [`TmuxError::TimedOut`].
    Hang,
    /// The effect happens and no answer comes: immediate [`TmuxError::TimedOut`].
    LoseReply,
    /// Nothing listens at the socket; the server lives on.
    NoServer,
    /// The effect happens and the answer is cut off.
    CutReply,
    /// tmux refuses with this message.
    Refuse(String),
    /// The effect happens after this delay.
    Late(Duration),
}

/// The server. Methods outside of the driver are for the test, and never fail by a [`Fault`].
#[derive(Debug)]
pub struct Fake(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// `None` while no server runs.
    server: Option<ServerRef>,
    starts: u32,
    next: u32,
    sessions: BTreeMap<TmuxSessionId, TmuxSession>,
    panes: BTreeMap<PaneId, TmuxPane>,
    typed: BTreeMap<PaneId, Vec<u8>>,
    receipts: BTreeMap<PaneId, (Token, Receipt)>,
    clients: BTreeMap<TmuxSessionId, Vec<Client>>,
    /// Panes whose output their user pipes to a command.
    piped: BTreeSet<PaneId>,
    /// Screens set by the test.
    shown: BTreeMap<PaneId, PaneSnapshot>,
    faults: VecDeque<Fault>,
    calls: Vec<&'static str>,
}

/// Pid of the first pane; each further one has the next.
const FIRST_PID: u32 = 1000;

impl Default for Fake {
    fn default() -> Self {
        let mut state = State::default();
        state.start();
        Self(Mutex::new(state))
    }
}

/// The terminal of a person, by a number that is also the pid of its client.
pub fn terminal(number: u32) -> Client {
    let name = format!("/dev/pts/{number}");
    Client { name, pid: number, control: false, read_only: false, active_at: 0 }
}

impl Fake {
    /// Schedules failures for the next calls, in order.
    pub fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state().faults.extend(faults);
    }

    /// Returns the names of all calls so far, failed ones too.
    pub fn calls(&self) -> Vec<&'static str> {
        self.state().calls.clone()
    }

    /// Returns everything typed into a pane, with Enter as a carriage return and keys by name in `<>`.
    pub fn typed(&self, pane: PaneId) -> Vec<u8> {
        self.state().typed.get(&pane).cloned().unwrap_or_default()
    }

    /// Changes a pane, e.g. ends its program, enters a mode or replaces its tag.
    pub fn change(&self, pane: PaneId, change: impl FnOnce(&mut TmuxPane)) {
        if let Some(pane) = self.state().panes.get_mut(&pane) {
            change(pane);
        }
    }

    /// Sets the pane's snapshot, except for size, mode and death, which come from the pane
    /// ([`Fake::change`]). By default the screen shows the typed text and no client is attached.
    pub fn show(&self, pane: PaneId, shown: PaneSnapshot) {
        self.state().shown.insert(pane, shown);
    }

    /// Pipes a pane's output to a command, as its user does (`pipe-pane`).
    pub fn pipe(&self, pane: PaneId) {
        self.state().piped.insert(pane);
    }

    /// Adds a session created outside of the pool.
    pub fn add_foreign(&self, name: &str) -> TmuxSessionId {
        self.state().add(name, None, Size { width: 80, height: 24 }).0
    }

    /// Adds a session created outside of the pool, with this process in its pane. `None` if the name is taken, or
    /// there is no server.
    pub fn add_program(&self, name: &str, pid: u32) -> Option<(TmuxSessionId, PaneId)> {
        let mut state = self.state();
        if state.server.is_none() || state.sessions.values().any(|session| session.name == name) {
            return None;
        }
        let (session, pane) = state.add(name, None, Size { width: 80, height: 24 });
        state.panes.entry(pane).and_modify(|pane| pane.pid = pid);
        Some((session, pane))
    }

    /// Closes a pane whose program has ended.
    pub fn close(&self, pane: PaneId) {
        self.state().remove(pane);
    }

    /// Attaches a client.
    pub fn attach(&self, session: TmuxSessionId, client: Client) {
        let mut state = self.state();
        state.clients.entry(session).or_default().push(client);
        state.count_clients();
    }

    /// Detaches all clients of a session.
    pub fn detach(&self, session: TmuxSessionId) {
        let mut state = self.state();
        state.clients.remove(&session);
        state.count_clients();
    }

    /// Kills the server with everything on it.
    pub fn kill_server(&self) {
        self.state().stop();
    }

    /// Starts a new server in place of any other; it assigns the same ids again.
    pub fn restart_server(&self) {
        let mut state = self.state();
        state.stop();
        state.start();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a call, and returns the scheduled failure.
    fn begin(&self, name: &'static str) -> Option<Fault> {
        let mut state = self.state();
        state.calls.push(name);
        state.faults.pop_front()
    }

    /// Runs one call: applies the scheduled failure, or the effect.
    fn call<'a, T: Send + 'a>(
        &'a self,
        name: &'static str,
        effect: impl FnOnce(&mut State) -> Result<T, TmuxError> + Send + 'a,
    ) -> Call<'a, T> {
        Box::pin(async move {
            let fault = self.begin(name);
            if let Some(Fault::Late(by)) = fault {
                tokio::time::sleep(by).await;
            }
            let mut state = self.state();
            match fault {
                None | Some(Fault::Late(_)) => effect(&mut state),
                Some(Fault::Hang) => Err(TmuxError::TimedOut(DEADLINE)),
                Some(Fault::LoseReply) => effect(&mut state).and(Err(TmuxError::TimedOut(DEADLINE))),
                Some(Fault::NoServer) => Err(TmuxError::NoServer),
                Some(Fault::CutReply) => effect(&mut state).and(Err(TmuxError::Incomplete)),
                Some(Fault::Refuse(words)) => Err(TmuxError::Refused(words)),
            }
        })
    }
}

impl State {
    fn start(&mut self) {
        self.starts += 1;
        self.server =
            Some(ServerRef { pid: 100 + self.starts, started_at: 1_700_000_000 + u64::from(self.starts) });
    }

    fn stop(&mut self) {
        (self.server, self.next) = (None, 0);
        self.sessions.clear();
        self.panes.clear();
        self.typed.clear();
        self.receipts.clear();
        self.clients.clear();
        self.piped.clear();
        self.shown.clear();
    }

    fn up(&self) -> Result<ServerRef, TmuxError> {
        self.server.ok_or(TmuxError::NoServer)
    }

    fn add(&mut self, name: &str, tag: Option<Tag>, size: Size) -> (TmuxSessionId, PaneId) {
        let n = self.next;
        self.next += 1;
        let (session, window, id) = (TmuxSessionId(n), WindowId(n), PaneId(n));
        let created_at = self.server.map_or(0, |server| server.started_at);
        self.sessions.insert(
            session,
            TmuxSession {
                name: name.to_owned(),
                created_at,
                attached: 0,
                pooled: tag.is_some(),
                made_for: tag,
                renamed: false,
            },
        );
        let pane = TmuxPane {
            tag,
            width: size.width,
            height: size.height,
            ..TmuxPane::bare(session, window, FIRST_PID + n)
        };
        self.panes.insert(id, pane);
        (session, id)
    }

    fn create(&mut self, create: &Create) -> Result<Created, TmuxError> {
        if self.server.is_none() {
            self.start();
        }
        let server = self.up()?;
        let name = create.name.as_str();
        if self.sessions.values().any(|session| session.name == name) {
            return Err(TmuxError::Duplicate(format!("duplicate session: {name}")));
        }
        let (session, pane) = self.add(name, Some(create.tag), create.size);
        self.receipts.insert(pane, (create.token, Receipt::Revoked));
        let (window, pid) = (self.panes[&pane].window, self.panes[&pane].pid);
        Ok(Created { pane: PaneRef { server, pane, tag: create.tag }, session, window, pid })
    }

    /// Checks the guard, then applies the effect.
    fn guarded(
        &mut self,
        pane: PaneRef,
        precondition: Precondition,
        effect: impl FnOnce(&mut Self) -> Result<(), TmuxError>,
    ) -> Result<Answer, TmuxError> {
        if self.up()? != pane.server {
            return Ok(Answer::OtherServer);
        }
        let Some(found) = self.panes.get(&pane.pane) else { return Ok(Answer::Gone) };
        if found.tag != Some(pane.tag) {
            return Ok(Answer::NotOurs);
        }
        match precondition {
            Precondition::Alive
            | Precondition::Open
            | Precondition::Typable
            | Precondition::Untyped(_)
            | Precondition::Unentered(_)
                if found.dead =>
            {
                Ok(Answer::Dead)
            }
            Precondition::Typable | Precondition::Untyped(_) if found.in_mode => Ok(Answer::InMode),
            Precondition::Untyped(token)
                if self.receipts.get(&pane.pane).is_some_and(|(last, _)| *last >= token) =>
            {
                Ok(Answer::Already)
            }
            Precondition::Unentered(token)
                if self.receipts.get(&pane.pane) != Some(&(token, Receipt::Typed)) =>
            {
                Ok(Answer::Already)
            }
            Precondition::Unattended if self.clients.get(&found.session).is_some_and(|c| !c.is_empty()) => {
                Ok(Answer::Attached)
            }
            _ => effect(self).map(|()| Answer::Done),
        }
    }

    fn type_in(
        &mut self,
        pane: PaneRef,
        precondition: Precondition,
        text: &[u8],
    ) -> Result<Answer, TmuxError> {
        self.guarded(pane, precondition, |state| {
            let receipt = match precondition {
                Precondition::Untyped(token) => Some((token, Receipt::Typed)),
                Precondition::Unentered(token) => Some((token, Receipt::Entered)),
                _ => None,
            };
            state.receipts.extend(receipt.map(|receipt| (pane.pane, receipt)));
            state.typed.entry(pane.pane).or_default().extend_from_slice(text);
            Ok(())
        })
    }

    /// Returns the snapshot of an existing pane.
    fn snapshot(&self, id: PaneId) -> PaneSnapshot {
        let mut snapshot = self.shown.get(&id).cloned().unwrap_or_else(|| PaneSnapshot {
            screen: self.typed.get(&id).cloned().unwrap_or_default(),
            cursor_shown: true,
            ..PaneSnapshot::refused(Answer::Done)
        });
        if let Some(pane) = self.panes.get(&id) {
            snapshot.size = Size { width: pane.width, height: pane.height };
            (snapshot.in_mode, snapshot.dead) = (pane.in_mode, pane.dead);
        }
        snapshot
    }

    fn kill(&mut self, pane: PaneRef, precondition: Precondition) -> Result<Answer, TmuxError> {
        self.guarded(pane, precondition, |state| {
            state.remove(pane.pane);
            Ok(())
        })
    }

    /// Returns the state of a token, and revokes it if nothing was typed under it.
    fn revoke(&mut self, pane: PaneId, token: Token) -> Receipt {
        match self.receipts.get(&pane).copied() {
            Some((last, receipt)) if last == token => receipt,
            Some((last, _)) if last < token => {
                self.receipts.insert(pane, (token, Receipt::Revoked));
                Receipt::Revoked
            }
            _ => Receipt::Unknown,
        }
    }

    fn remove(&mut self, pane: PaneId) {
        self.typed.remove(&pane);
        self.receipts.remove(&pane);
        if let Some(TmuxPane { session, .. }) = self.panes.remove(&pane)
            && !self.panes.values().any(|pane| pane.session == session)
        {
            self.sessions.remove(&session);
            self.clients.remove(&session);
        }
    }

    fn rename(&mut self, session: TmuxSessionId, name: &Name) -> Result<(), TmuxError> {
        if self.sessions.iter().any(|(id, other)| *id != session && other.name == name.as_str()) {
            return Err(TmuxError::Duplicate(format!("duplicate session: {name}")));
        }
        let found = self.sessions.get_mut(&session).ok_or_else(|| not_found(session))?;
        found.name = name.as_str().to_owned();
        Ok(())
    }

    fn switch(&mut self, client: &str, to: TmuxSessionId) -> Result<(), TmuxError> {
        if !self.sessions.contains_key(&to) {
            return Err(not_found(to));
        }
        let at =
            self.clients.iter().find_map(|(id, all)| Some((*id, all.iter().position(|c| c.name == client)?)));
        let (from, i) = at.ok_or_else(|| TmuxError::NotFound(format!("can't find client: {client}")))?;
        let moved = self.clients.get_mut(&from).map(|all| all.remove(i));
        self.clients.entry(to).or_default().extend(moved);
        self.count_clients();
        Ok(())
    }

    fn count_clients(&mut self) {
        for (id, session) in &mut self.sessions {
            let all = self.clients.get(id).map_or(0, Vec::len);
            session.attached = u32::try_from(all).unwrap_or(u32::MAX);
        }
    }
}

fn not_found(session: TmuxSessionId) -> TmuxError {
    TmuxError::NotFound(format!("can't find session: {session}"))
}
