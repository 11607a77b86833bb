//! Reads of a server, and the proof of their answers: an answer lies between marks that only this server
//! can have written, in one queue pass.

use std::collections::BTreeMap;

use protocol::tmux::{HIDDEN_SESSION, TmuxPane, TmuxSession};
use protocol::{PaneId, TmuxSessionId, WindowId};

use crate::command::{CommandLine, script};
use crate::device::Device;
use crate::error::TmuxError;
use crate::format;
use crate::guard::{Nonce, ServerRef};
use crate::listing::Listing;

/// Format: true for a window that several sessions show, or one session twice: the list of sessions then has a comma.
/// Their number cannot be used, as it has another meaning from 3.7 on. A comma in a name looks the same.
const LINKED: &str = "#{m:*#,*,#{window_linked_sessions_list}}";

/// Format: true of a session that has such a window.
const HAS_LINKED: &str = "#{m:*#,*,#{W:#{window_linked_sessions_list}}}";

/// Extent of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Nothing: only the fact that the server answers.
    Alive,
    /// The whole server.
    All,
    /// All sessions, without panes.
    Sessions,
    /// One session with its panes.
    Session(TmuxSessionId),
    /// One window with its panes, and its session.
    Window(WindowId),
    /// One pane, wherever it is now, and its session.
    Pane(PaneId),
}

/// Result of a read, proved complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// For [`Scope::Alive`].
    Alive,
    /// For [`Scope::All`].
    All(Listing),
    /// For [`Scope::Sessions`]: a session that is not in it does not exist.
    Sessions(BTreeMap<TmuxSessionId, TmuxSession>),
    /// For [`Scope::Session`], [`Scope::Window`] and [`Scope::Pane`]: `None` if this server has no part with that id.
    Part(Option<SessionPart>),
    /// For the same three: the part exists, and several sessions may show it or some of it, or the hidden one does.
    /// Only [`Scope::All`] tells which of them it belongs to.
    Shared,
}

/// A whole session, or one window or pane of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPart {
    /// The session's id.
    pub id: TmuxSessionId,
    /// The session's facts.
    pub session: TmuxSession,
    /// The panes of the session or of the window, or the one pane.
    pub panes: BTreeMap<PaneId, TmuxPane>,
}

/// One read with its random marks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Query {
    scope: Scope,
    nonce: Nonce,
    /// True on the pool's own server, where the hidden session is left out.
    own: bool,
}

impl Query {
    pub(crate) fn new(scope: Scope, own: bool) -> Self {
        Self { scope, nonce: Nonce::new(), own }
    }

    pub(crate) fn scope(&self) -> Scope {
        self.scope
    }

    /// Prefix of an answer's first line.
    pub(crate) fn begins(&self) -> String {
        self.mark("BEGIN")
    }

    /// Prefix of an answer's last line.
    pub(crate) fn ends(&self) -> String {
        self.mark("END")
    }

    fn mark(&self, word: &str) -> String {
        format!("{word} {} ", self.nonce)
    }

    /// Returns the read as a command line for a client.
    pub(crate) fn line(&self) -> CommandLine {
        self.commands().into_iter().fold(CommandLine::default(), CommandLine::then)
    }

    /// Returns the read as one line of text for a control connection, with its line end.
    pub(crate) fn text(&self) -> String {
        script(self.commands().iter().map(Vec::as_slice)) + "\n"
    }

    fn commands(&self) -> Vec<Vec<String>> {
        let mark = |word| words(&["display-message", "-p", &(self.mark(word) + "#{pid} #{start_time}")]);
        let sessions = words(&["list-sessions", "-F", format::SESSION]);
        // A window that several sessions show belongs to the first of them, which only a whole listing tells. A missing
        // target is an error after the first mark.
        let part = |target: &str, has_linked, list: &[&str]| {
            let list = [list, &["-t", target, "-F", format::PANE]].concat();
            let one = words(&["display-message", "-p", "-t", target, format::SESSION]);
            let body = [one, mark("PANES"), words(&list), mark("END")];
            let shared = script([mark("SHARED"), mark("END")].iter().map(Vec::as_slice));
            let part = script(body.iter().map(Vec::as_slice));
            vec![words(&["if-shell", "-F", "-t", target, has_linked, &shared, &part])]
        };
        let body = match self.scope {
            Scope::Alive => vec![mark("END")],
            Scope::Sessions => vec![sessions, mark("END")],
            Scope::All => {
                let panes = words(&["list-panes", "-a", "-F", format::PANE]);
                vec![sessions, mark("PANES"), panes, mark("END")]
            }
            Scope::Session(id) => part(&id.to_string(), HAS_LINKED, &["list-panes", "-s"]),
            Scope::Window(id) => part(&id.to_string(), LINKED, &["list-panes"]),
            Scope::Pane(id) => {
                let only = format!("#{{==:#{{pane_id}},{id}}}");
                part(&id.to_string(), LINKED, &["list-panes", "-f", &only])
            }
        };
        std::iter::once(mark("BEGIN")).chain(body).collect()
    }

    /// Parses an answer, and returns the reading and the server's identity; `otherwise` if a mark is
    /// missing. If `otherwise` is [`TmuxError::NotFound`] and the first mark is there, the requested part
    /// does not exist.
    pub(crate) fn read(&self, text: &[u8], otherwise: TmuxError) -> Result<(ServerRef, Reading), TmuxError> {
        let Some((server, rest)) = mark(text, &self.begins()) else { return Err(otherwise) };
        let is_part = matches!(self.scope, Scope::Session(_) | Scope::Window(_) | Scope::Pane(_));
        if is_part && matches!(otherwise, TmuxError::NotFound(_)) {
            return Ok((server, Reading::Part(None)));
        }
        if is_part && self.is_shared(server, rest) {
            return Ok((server, Reading::Shared));
        }
        let Some(listing) = self.listing(server, rest)? else { return Err(otherwise) };
        if is_part && listing.panes.values().any(|pane| !listing.sessions.contains_key(&pane.session)) {
            return Ok((server, Reading::Shared));
        }
        let read = match self.scope {
            Scope::Alive => Reading::Alive,
            Scope::All => Reading::All(listing),
            Scope::Sessions => Reading::Sessions(listing.sessions),
            Scope::Session(id) => Reading::Part(part(listing, id, None)),
            Scope::Window(id) => {
                let session = listing.panes.values().find(|pane| pane.window == id).map(|pane| pane.session);
                Reading::Part(session.and_then(|session| part(listing, session, Some(id))))
            }
            Scope::Pane(id) => {
                let pane = listing.panes.get(&id).map(|pane| (pane.session, pane.window));
                Reading::Part(pane.and_then(|(session, window)| part(listing, session, Some(window))))
            }
        };
        Ok((server, read))
    }

    /// True if the text after the first mark says that several sessions show the part.
    fn is_shared(&self, server: ServerRef, text: &[u8]) -> bool {
        let Some((first, rest)) = mark(text, &self.mark("SHARED")) else { return false };
        matches!(mark(rest, &self.ends()), Some((second, b"")) if first == server && second == server)
    }

    /// Parses the text after the first mark; `None` if a further one is missing. Without sessions
    /// `list-panes` is an error and ends the line, but then the mark before it proves that the list of
    /// sessions was complete.
    fn listing(&self, server: ServerRef, text: &[u8]) -> Result<Option<Listing>, TmuxError> {
        let has_panes = !matches!(self.scope, Scope::Alive | Scope::Sessions);
        let second = if has_panes { self.mark("PANES") } else { self.ends() };
        let Some((sessions, after, rest)) = split_at_mark(text, &second) else { return Ok(None) };
        let mut sessions = format::sessions(sessions)?;
        let (panes, end) = match split_at_mark(rest, &self.ends()) {
            Some((panes, end, b"")) if has_panes => (panes, end),
            None if rest.is_empty() && (!has_panes || sessions.is_empty()) => (&b""[..], after),
            _ => return Ok(None),
        };
        if after != server || end != server {
            return Err(TmuxError::Incomplete);
        }
        let hidden = self.hidden(&sessions);
        let panes = format::panes(panes, hidden, &sessions)?;
        sessions.retain(|id, _| Some(*id) != hidden);
        let is_listed =
            |pane: &TmuxPane| sessions.contains_key(&pane.session) || Some(pane.session) == hidden;
        if let Some((id, pane)) = panes.iter().find(|(_, pane)| !is_listed(pane)) {
            return Err(TmuxError::Output(format!("{id} is in {}, which is not listed", pane.session)));
        }
        Ok(Some(Listing { server, sessions, panes }))
    }

    fn hidden(&self, sessions: &BTreeMap<TmuxSessionId, TmuxSession>) -> Option<TmuxSessionId> {
        let found = sessions.iter().find(|(_, session)| self.own && session.name == HIDDEN_SESSION);
        found.map(|(id, _)| *id)
    }
}

impl Device {
    /// Lists sessions and panes in one queue pass of the server.
    ///
    /// # Errors
    /// [`TmuxError::NoServer`] if nothing listens; after any other error the state is unknown.
    pub async fn observe(&self) -> Result<Listing, TmuxError> {
        let query = Query::new(Scope::All, self.own);
        let reply = self.run(&query.line(), None, false).await?;
        match query.read(&reply.stdout, reply.error())? {
            (_, Reading::All(listing)) => Ok(listing),
            (_, other) => Err(TmuxError::Output(format!("{other:?} for a whole listing"))),
        }
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Extracts one session of a listing, or one window of it.
fn part(mut listing: Listing, id: TmuxSessionId, window: Option<WindowId>) -> Option<SessionPart> {
    let session = listing.sessions.remove(&id)?;
    let mut panes = listing.panes;
    panes.retain(|_, pane| pane.session == id && window.is_none_or(|window| pane.window == window));
    Some(SessionPart { id, session, panes })
}

/// Parses the mark at the start of the text, and returns the rest too.
fn mark<'a>(text: &'a [u8], start: &str) -> Option<(ServerRef, &'a [u8])> {
    let (line, rest) = format::take_line(text.strip_prefix(start.as_bytes())?)?;
    let split = line.iter().position(|&b| b == b' ')?;
    let pid = format::field(Some(&line[..split]))?;
    let started_at = format::field(Some(&line[split + 1..]))?;
    Some((ServerRef { pid, started_at }, rest))
}

/// Splits the text at the next mark: the text before it, the mark, and the rest.
fn split_at_mark<'a>(text: &'a [u8], start: &str) -> Option<(&'a [u8], ServerRef, &'a [u8])> {
    let mut at = 0;
    loop {
        if let Some((server, rest)) = mark(&text[at..], start) {
            return Some((&text[..at], server, rest));
        }
        at += text[at..].iter().position(|&b| b == b'\n')? + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "S\t$3\t1700000000\t1\t-\tname with  blanks\n";
    const HIDDEN: &str = "S\t$0\t1700000000\t1\t-\t_pool\n";
    const PANE: &str = "P\t$3\t@4\t%7\t4242\t0\t\t\t0\t80\t24\t-\n";

    fn query(scope: Scope) -> Query {
        Query::new(scope, true)
    }

    fn framed(query: Query, sessions: &str, panes: &str) -> String {
        let at = |word| format!("{}10 99\n", query.mark(word));
        format!("{}{sessions}{}{panes}{}", at("BEGIN"), at("PANES"), at("END"))
    }

    fn read(query: Query, text: &str) -> Result<Reading, TmuxError> {
        query.read(text.as_bytes(), TmuxError::NoServer).map(|(_, read)| read)
    }

    fn whole(query: Query, text: &str) -> Listing {
        match read(query, text).unwrap() {
            Reading::All(listing) => listing,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_listing_needs_all_its_marks() {
        let query = query(Scope::All);
        let text = framed(query, ONE, PANE);
        let listing = whole(query, &text);
        assert_eq!((listing.sessions.len(), listing.panes.len()), (1, 1));
        for end in 0..text.len() {
            assert!(read(query, &text[..end]).is_err(), "cut at {end}");
        }
        let other = Query::new(Scope::All, true);
        assert!(matches!(read(other, &text), Err(TmuxError::NoServer)), "another call's answer");
    }

    #[test]
    fn two_servers_in_one_listing_are_refused() {
        let query = query(Scope::All);
        for word in ["PANES", "END"] {
            let mark = query.mark(word);
            let text = framed(query, ONE, PANE).replace(&format!("{mark}10 99"), &format!("{mark}10 98"));
            assert!(matches!(read(query, &text), Err(TmuxError::Incomplete)), "{word}");
        }
    }

    #[test]
    fn an_empty_server_is_proved_by_the_mark_after_its_sessions() {
        let query = query(Scope::All);
        let cut = |text: String| text.split("END").next().unwrap().to_owned();
        let empty = whole(query, &cut(framed(query, "", "")));
        assert!(empty.sessions.is_empty() && empty.panes.is_empty());
        assert!(read(query, &cut(framed(query, ONE, ""))).is_err());
    }

    #[test]
    fn the_hidden_session_is_not_there() {
        let all = query(Scope::All);
        let shared = PANE.replace("$3", "$0");
        let alone = PANE.replace("$3", "$0").replace("@4", "@0").replace("%7", "%0");
        let panes = format!("{alone}{shared}{PANE}");
        let listing = whole(all, &framed(all, &format!("{HIDDEN}{ONE}"), &panes));
        assert_eq!(listing.sessions.keys().map(|id| id.0).collect::<Vec<_>>(), [3]);
        assert_eq!(listing.panes.values().map(|pane| pane.session.0).collect::<Vec<_>>(), [3]);
        let part = query(Scope::Session(TmuxSessionId(0)));
        assert_eq!(read(part, &framed(part, HIDDEN, &alone)).unwrap(), Reading::Part(None));
        let window = query(Scope::Window(WindowId(0)));
        assert_eq!(read(window, &framed(window, HIDDEN, &alone)).unwrap(), Reading::Part(None));
        let foreign = Query::new(Scope::All, false);
        assert_eq!(whole(foreign, &framed(foreign, HIDDEN, &alone)).sessions.len(), 1);
    }

    #[test]
    fn a_pane_of_the_pool_in_the_hidden_session_is_there() {
        let moved = PANE.replace("$3", "$0").replace("\t-\n", &format!("\t+{}\n", "5a".repeat(16)));
        let all = query(Scope::All);
        let listing = whole(all, &framed(all, HIDDEN, &moved));
        assert!(listing.sessions.is_empty());
        assert_eq!(listing.panes.keys().map(|id| id.0).collect::<Vec<_>>(), [7]);
        for scope in [Scope::Pane(PaneId(7)), Scope::Window(WindowId(4)), Scope::Session(TmuxSessionId(0))] {
            let part = query(scope);
            assert_eq!(read(part, &framed(part, HIDDEN, &moved)).unwrap(), Reading::Shared, "{scope:?}");
        }
    }

    #[test]
    fn a_part_is_what_the_whole_says_of_it() {
        let other = PANE.replace("@4", "@5").replace("%7", "%8");
        let second = ONE.replace("$3", "$5");
        let foreign = PANE.replace("$3", "$5").replace("@4", "@6").replace("%7", "%9");
        let (sessions, panes) = (format!("{ONE}{second}"), format!("{PANE}{other}{foreign}"));
        let panes_of = |scope| {
            let query = query(scope);
            let Reading::Part(part) = read(query, &framed(query, &sessions, &panes)).unwrap() else {
                panic!()
            };
            part.map(|part| (part.id.0, part.panes.keys().map(|id| id.0).collect::<Vec<_>>()))
        };
        assert_eq!(panes_of(Scope::Session(TmuxSessionId(3))), Some((3, vec![7, 8])));
        assert_eq!(panes_of(Scope::Session(TmuxSessionId(4))), None);
        assert_eq!(panes_of(Scope::Window(WindowId(5))), Some((3, vec![8])));
        assert_eq!(panes_of(Scope::Window(WindowId(7))), None);
    }

    #[test]
    fn what_several_sessions_show_is_only_said_to_be_there() {
        let pane = query(Scope::Pane(PaneId(7)));
        let at = |word| format!("{}10 99\n", pane.mark(word));
        let text = at("BEGIN") + &at("SHARED") + &at("END");
        assert_eq!(read(pane, &text).unwrap(), Reading::Shared);
        assert!(read(pane, &text[..text.len() - 1]).is_err(), "cut");
        let Reading::Part(Some(found)) = read(pane, &framed(pane, ONE, PANE)).unwrap() else { panic!() };
        assert_eq!((found.id.0, found.panes.len()), (3, 1));
    }

    #[test]
    fn absence_needs_the_first_mark() {
        let query = query(Scope::Session(TmuxSessionId(9)));
        let gone = || TmuxError::NotFound("can't find session: $9".to_owned());
        let begun = format!("{}10 99\n", query.begins());
        assert_eq!(query.read(begun.as_bytes(), gone()).unwrap().1, Reading::Part(None));
        assert!(matches!(query.read(b"", gone()), Err(TmuxError::NotFound(_))));
        assert!(matches!(query.read(begun.as_bytes(), TmuxError::Incomplete), Err(TmuxError::Incomplete)));
    }
}
