//! An in-memory tmux for tests, with failures on demand. It obeys the same guards as the real one.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use protocol::ids::{PaneId, Tag, TmuxSessionId, WindowId};
use protocol::text::Name;
use protocol::tmux::{TmuxPane, TmuxSession};

use crate::act::{Client, Lines};
use crate::adopt::Adopt;
use crate::create::{Create, Created, Size};
use crate::device::DEADLINE;
use crate::driver::{Call, Driver};
use crate::error::TmuxError;
use crate::guard::{Answer, Needs, PaneRef, ServerRef};
use crate::keys::Key;
use crate::log::LogOptions;
use crate::observe::Listing;

/// How a call fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Nothing happens and no answer comes: timed out, at once.
    Hang,
    /// The effect happens, and no answer comes: timed out, at once.
    LoseReply,
    /// Nothing listens at the socket; the server lives on.
    NoServer,
    /// The effect happens and the answer is cut off.
    CutReply,
    /// tmux says no, with these words.
    Refuse(String),
}

/// The server. All its methods but the driver's are for the test: they never fail by a [`Fault`].
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
    clients: BTreeMap<TmuxSessionId, Vec<Client>>,
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

impl Fake {
    /// The next calls fail like this, one after the other.
    pub fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state().faults.extend(faults);
    }

    /// Names of all calls so far, failed ones too.
    #[must_use]
    pub fn calls(&self) -> Vec<&'static str> {
        self.state().calls.clone()
    }

    /// What was typed into a pane, Enter as a carriage return and keys by name in `<>`.
    #[must_use]
    pub fn typed(&self, pane: PaneId) -> Vec<u8> {
        self.state().typed.get(&pane).cloned().unwrap_or_default()
    }

    /// Changes a pane: its program ends, a mode is entered, its tag is tampered with.
    pub fn change(&self, pane: PaneId, change: impl FnOnce(&mut TmuxPane)) {
        if let Some(pane) = self.state().panes.get_mut(&pane) {
            change(pane);
        }
    }

    /// A session that someone else created.
    pub fn add_foreign(&self, name: &str) -> TmuxSessionId {
        self.state().add(name, None, Size { width: 80, height: 24 }).0
    }

    /// Attaches a client.
    pub fn attach(&self, session: TmuxSessionId, client: Client) {
        let mut state = self.state();
        state.clients.entry(session).or_default().push(client);
        state.count_clients();
    }

    /// The server dies with all it has.
    pub fn kill_server(&self) {
        self.state().stop();
    }

    /// A new server starts in place of any other, and gives out the same ids again.
    pub fn restart_server(&self) {
        let mut state = self.state();
        state.stop();
        state.start();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One call: the fault that is due, or the effect.
    fn call<'a, T: Send + 'a>(
        &'a self,
        name: &'static str,
        effect: impl FnOnce(&mut State) -> Result<T, TmuxError> + Send + 'a,
    ) -> Call<'a, T> {
        Box::pin(async move {
            let mut state = self.state();
            state.calls.push(name);
            match state.faults.pop_front() {
                None => effect(&mut state),
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
        self.clients.clear();
    }

    fn up(&self) -> Result<ServerRef, TmuxError> {
        self.server.ok_or(TmuxError::NoServer)
    }

    fn add(&mut self, name: &str, tag: Option<Tag>, size: Size) -> (TmuxSessionId, PaneId) {
        let n = self.next;
        self.next += 1;
        let (session, window, id) = (TmuxSessionId(n), WindowId(n), PaneId(n));
        let created_at = self.server.map_or(0, |server| server.started_at);
        self.sessions.insert(session, TmuxSession { name: name.to_owned(), created_at, attached: 0 });
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
        let (window, pid) = (self.panes[&pane].window, self.panes[&pane].pid);
        Ok(Created { pane: PaneRef { server, pane, tag: create.tag }, session, window, pid })
    }

    /// The guard, and behind it the effect.
    fn guarded(
        &mut self,
        pane: PaneRef,
        needs: Needs,
        effect: impl FnOnce(&mut Self) -> Result<(), TmuxError>,
    ) -> Result<Answer, TmuxError> {
        if self.up()? != pane.server {
            return Ok(Answer::OtherServer);
        }
        let Some(found) = self.panes.get(&pane.pane) else { return Ok(Answer::Gone) };
        if found.tag != Some(pane.tag) {
            return Ok(Answer::NotOurs);
        }
        match needs {
            Needs::Alive | Needs::Open | Needs::Typable if found.dead => Ok(Answer::Dead),
            Needs::Typable if found.in_mode => Ok(Answer::InMode),
            Needs::Unattended if self.clients.get(&found.session).is_some_and(|c| !c.is_empty()) => {
                Ok(Answer::Attached)
            }
            _ => effect(self).map(|()| Answer::Done),
        }
    }

    fn type_in(&mut self, pane: PaneRef, needs: Needs, text: &[u8]) -> Result<Answer, TmuxError> {
        self.guarded(pane, needs, |state| {
            state.typed.entry(pane.pane).or_default().extend_from_slice(text);
            Ok(())
        })
    }

    fn kill(&mut self, pane: PaneRef, needs: Needs) -> Result<Answer, TmuxError> {
        self.guarded(pane, needs, |state| {
            state.remove(pane.pane);
            Ok(())
        })
    }

    fn remove(&mut self, pane: PaneId) {
        self.typed.remove(&pane);
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

impl Driver for Fake {
    fn observe(&self) -> Call<'_, Listing> {
        self.call("observe", |state| {
            let server = state.up()?;
            Ok(Listing { server, sessions: state.sessions.clone(), panes: state.panes.clone() })
        })
    }

    fn create<'a>(&'a self, create: &'a Create) -> Call<'a, Created> {
        self.call("create", |state| state.create(create))
    }

    /// What was typed is what is on the screen.
    fn capture(&self, pane: PaneRef, _lines: Lines, _ansi: bool) -> Call<'_, (Answer, Vec<u8>)> {
        self.call("capture", move |state| {
            let answer = state.guarded(pane, Needs::Ours, |_| Ok(()))?;
            let text = if answer == Answer::Done { state.typed.get(&pane.pane).cloned() } else { None };
            Ok((answer, text.unwrap_or_default()))
        })
    }

    fn paste<'a>(&'a self, pane: PaneRef, text: &'a [u8]) -> Call<'a, Answer> {
        self.call("paste", move |state| match text {
            [] => Err(TmuxError::Refused("an empty text cannot be pasted".to_owned())),
            _ => state.type_in(pane, Needs::Typable, text),
        })
    }

    fn enter(&self, pane: PaneRef) -> Call<'_, Answer> {
        self.call("enter", move |state| state.type_in(pane, Needs::Open, b"\r"))
    }

    fn keys<'a>(&'a self, pane: PaneRef, keys: &'a [Key]) -> Call<'a, Answer> {
        let names: String = keys.iter().map(|key| format!("<{key}>")).collect();
        self.call("keys", move |state| state.type_in(pane, Needs::Typable, names.as_bytes()))
    }

    fn peek(&self, pane: PaneRef) -> Call<'_, Answer> {
        self.call("peek", move |state| state.guarded(pane, Needs::Ours, |_| Ok(())))
    }

    fn kill_pane(&self, pane: PaneRef) -> Call<'_, Answer> {
        self.call("kill_pane", move |state| state.kill(pane, Needs::Ours))
    }

    fn kill_unattended(&self, pane: PaneRef) -> Call<'_, Answer> {
        self.call("kill_unattended", move |state| state.kill(pane, Needs::Unattended))
    }

    fn rename<'a>(&'a self, pane: PaneRef, session: TmuxSessionId, name: &'a Name) -> Call<'a, Answer> {
        self.call("rename", move |state| {
            state.guarded(pane, Needs::Ours, |state| state.rename(session, name))
        })
    }

    fn release(&self, pane: PaneRef) -> Call<'_, Answer> {
        self.call("release", move |state| {
            state.guarded(pane, Needs::Ours, |state| {
                let found = state.panes.entry(pane.pane);
                found.and_modify(|found| (found.tag, found.detached) = (None, true));
                Ok(())
            })
        })
    }

    fn adopt<'a>(
        &'a self,
        server: ServerRef,
        session: TmuxSessionId,
        pane: PaneId,
        adopt: &'a Adopt,
    ) -> Call<'a, Answer> {
        self.call("adopt", move |state| {
            if state.up()? != server {
                return Ok(Answer::OtherServer);
            }
            Ok(match state.panes.get_mut(&pane) {
                Some(found) if found.session == session && found.dead => Answer::Dead,
                Some(found) if found.session == session => {
                    if found.tag.is_some_and(|tag| tag != adopt.tag) {
                        return Ok(Answer::NotOurs);
                    }
                    (found.tag, found.detached) = (Some(adopt.tag), false);
                    Answer::Done
                }
                _ => Answer::Gone,
            })
        })
    }

    fn reopen_log<'a>(&'a self, pane: PaneRef, _: &'a LogOptions, _: &'a Path) -> Call<'a, Answer> {
        self.call("reopen_log", move |state| state.guarded(pane, Needs::Alive, |_| Ok(())))
    }

    fn resize(&self, pane: PaneRef, size: Size) -> Call<'_, Answer> {
        self.call("resize", move |state| {
            state.guarded(pane, Needs::Ours, |state| {
                let found = state.panes.entry(pane.pane);
                found.and_modify(|found| (found.width, found.height) = (size.width, size.height));
                Ok(())
            })
        })
    }

    fn clear_history(&self, pane: PaneRef) -> Call<'_, Answer> {
        self.call("clear_history", move |state| state.guarded(pane, Needs::Ours, |_| Ok(())))
    }

    fn clients(&self, server: ServerRef, session: TmuxSessionId) -> Call<'_, Vec<Client>> {
        self.call("clients", move |state| {
            if state.up()? != server || !state.sessions.contains_key(&session) {
                return Err(not_found(session));
            }
            Ok(state.clients.get(&session).cloned().unwrap_or_default())
        })
    }

    fn switch_client<'a>(
        &'a self,
        server: ServerRef,
        client: &'a str,
        session: TmuxSessionId,
    ) -> Call<'a, ()> {
        self.call("switch_client", move |state| {
            if state.up()? == server { state.switch(client, session) } else { Err(not_found(session)) }
        })
    }
}
