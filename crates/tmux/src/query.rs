//! Questions to a server, and the proof that an answer is one: it stands between marks that only the
//! server that was asked can have written, in one queue pass.

use std::collections::BTreeMap;

use protocol::ids::TmuxSessionId;
use protocol::tmux::{HIDDEN_SESSION, TmuxSession};

use crate::command::{Line, script};
use crate::error::TmuxError;
use crate::format;
use crate::guard::{Nonce, ServerRef};
use crate::live::{Ask, Part, Read};
use crate::observe::Listing;

/// True of a window that more than one session shows, or one session twice: the list has a comma. The
/// number of them means another thing from 3.7 on. A comma in a name looks the same.
const LINKED: &str = "#{m:*#,*,#{window_linked_sessions_list}}";

/// True of a session that has such a window.
const HAS_LINKED: &str = "#{m:*#,*,#{W:#{window_linked_sessions_list}}}";

/// A question.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Query {
    ask: Ask,
    nonce: Nonce,
    /// Whether the hidden session is to be left out: on the pool's own server.
    own: bool,
}

impl Query {
    pub(crate) fn new(ask: Ask, own: bool) -> Self {
        Self { ask, nonce: Nonce::new(), own }
    }

    pub(crate) fn ask(&self) -> Ask {
        self.ask
    }

    /// What an answer begins with.
    pub(crate) fn begins(&self) -> String {
        self.mark("BEGIN")
    }

    /// What the last line of an answer begins with.
    pub(crate) fn ends(&self) -> String {
        self.mark("END")
    }

    fn mark(&self, word: &str) -> String {
        format!("{word} {} ", self.nonce)
    }

    /// As words for a client.
    pub(crate) fn line(&self) -> Line {
        self.commands().into_iter().fold(Line::default(), Line::then)
    }

    /// As one line of text for a connection, with its end.
    pub(crate) fn text(&self) -> String {
        script(self.commands().iter().map(Vec::as_slice)) + "\n"
    }

    fn commands(&self) -> Vec<Vec<String>> {
        let mark = |word| words(&["display-message", "-p", &(self.mark(word) + "#{pid} #{start_time}")]);
        let sessions = words(&["list-sessions", "-F", format::SESSION]);
        // A window that several sessions show belongs to the first of them: which that is, only a
        // whole listing tells. A target that is missing gives an error, after the first mark.
        let part = |target: &str, has_linked, list: &[&str]| {
            let list = [list, &["-t", target, "-F", format::PANE]].concat();
            let one = words(&["display-message", "-p", "-t", target, format::SESSION]);
            let body = [one, mark("PANES"), words(&list), mark("END")];
            let shared = script([mark("SHARED"), mark("END")].iter().map(Vec::as_slice));
            let part = script(body.iter().map(Vec::as_slice));
            vec![words(&["if-shell", "-F", "-t", target, has_linked, &shared, &part])]
        };
        let body = match self.ask {
            Ask::Alive => vec![mark("END")],
            Ask::Sessions => vec![sessions, mark("END")],
            Ask::All => {
                let panes = words(&["list-panes", "-a", "-F", format::PANE]);
                vec![sessions, mark("PANES"), panes, mark("END")]
            }
            Ask::Session(id) => part(&id.to_string(), HAS_LINKED, &["list-panes", "-s"]),
            Ask::Window(id) => part(&id.to_string(), LINKED, &["list-panes"]),
            Ask::Pane(id) => {
                let only = format!("#{{==:#{{pane_id}},{id}}}");
                part(&id.to_string(), LINKED, &["list-panes", "-f", &only])
            }
        };
        std::iter::once(mark("BEGIN")).chain(body).collect()
    }

    /// What was read, and which server answered; `otherwise` where a mark is missing. Where that is
    /// [`TmuxError::NotFound`] and the first mark is there, what was asked for is not.
    pub(crate) fn read(&self, text: &[u8], otherwise: TmuxError) -> Result<(ServerRef, Read), TmuxError> {
        let Some((server, rest)) = mark(text, &self.begins()) else { return Err(otherwise) };
        let is_part = matches!(self.ask, Ask::Session(_) | Ask::Window(_) | Ask::Pane(_));
        if is_part && matches!(otherwise, TmuxError::NotFound(_)) {
            return Ok((server, Read::Part(None)));
        }
        if is_part && self.is_shared(server, rest) {
            return Ok((server, Read::Shared));
        }
        let Some(listing) = self.listing(server, rest)? else { return Err(otherwise) };
        let read = match self.ask {
            Ask::Alive => Read::Alive,
            Ask::All => Read::All(listing),
            Ask::Sessions => Read::Sessions(listing.sessions),
            Ask::Session(id) => Read::Part(part(listing, id, None)),
            Ask::Window(id) => {
                let session = listing.panes.values().find(|pane| pane.window == id).map(|pane| pane.session);
                Read::Part(session.and_then(|session| part(listing, session, Some(id))))
            }
            Ask::Pane(id) => {
                let pane = listing.panes.get(&id).map(|pane| (pane.session, pane.window));
                Read::Part(pane.and_then(|(session, window)| part(listing, session, Some(window))))
            }
        };
        Ok((server, read))
    }

    /// Whether what follows the first mark says that several sessions show it.
    fn is_shared(&self, server: ServerRef, text: &[u8]) -> bool {
        let Some((first, rest)) = mark(text, &self.mark("SHARED")) else { return false };
        matches!(mark(rest, &self.ends()), Some((second, b"")) if first == server && second == server)
    }

    /// What follows the first mark; `None` where a further one is missing. With no sessions
    /// `list-panes` is an error and ends the line, but then the mark before it proves that the list of
    /// sessions was complete.
    fn listing(&self, server: ServerRef, text: &[u8]) -> Result<Option<Listing>, TmuxError> {
        let has_panes = !matches!(self.ask, Ask::Alive | Ask::Sessions);
        let second = if has_panes { self.mark("PANES") } else { self.ends() };
        let Some((sessions, after, rest)) = until(text, &second) else { return Ok(None) };
        let mut sessions = format::sessions(sessions)?;
        let (panes, end) = match until(rest, &self.ends()) {
            Some((panes, end, b"")) if has_panes => (panes, end),
            None if rest.is_empty() && (!has_panes || sessions.is_empty()) => (&b""[..], after),
            _ => return Ok(None),
        };
        if after != server || end != server {
            return Err(TmuxError::Incomplete);
        }
        let hidden = self.hidden(&sessions);
        let panes = format::panes(panes, hidden)?;
        sessions.retain(|id, _| Some(*id) != hidden);
        if let Some((id, pane)) = panes.iter().find(|(_, pane)| !sessions.contains_key(&pane.session)) {
            return Err(TmuxError::Output(format!("{id} is in {}, which is not listed", pane.session)));
        }
        Ok(Some(Listing { server, sessions, panes }))
    }

    fn hidden(&self, sessions: &BTreeMap<TmuxSessionId, TmuxSession>) -> Option<TmuxSessionId> {
        let found = sessions.iter().find(|(_, session)| self.own && session.name == HIDDEN_SESSION);
        found.map(|(id, _)| *id)
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// One session of a listing, or one window of it.
fn part(mut listing: Listing, id: TmuxSessionId, window: Option<protocol::ids::WindowId>) -> Option<Part> {
    let session = listing.sessions.remove(&id)?;
    let mut panes = listing.panes;
    panes.retain(|_, pane| pane.session == id && window.is_none_or(|window| pane.window == window));
    Some(Part { id, session, panes })
}

/// The mark that the text begins with, and what follows it.
fn mark<'a>(text: &'a [u8], start: &str) -> Option<(ServerRef, &'a [u8])> {
    let (line, rest) = format::take_line(text.strip_prefix(start.as_bytes())?)?;
    let split = line.iter().position(|&b| b == b' ')?;
    let pid = format::field(Some(&line[..split]))?;
    let started_at = format::field(Some(&line[split + 1..]))?;
    Some((ServerRef { pid, started_at }, rest))
}

/// What stands before the next mark, the mark, and what follows it.
fn until<'a>(text: &'a [u8], start: &str) -> Option<(&'a [u8], ServerRef, &'a [u8])> {
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
    use protocol::ids::WindowId;

    use super::*;

    const ONE: &str = "S\t$3\t1700000000\t1\tname with  blanks\n";
    const HIDDEN: &str = "S\t$0\t1700000000\t1\t_pool\n";
    const PANE: &str = "P\t$3\t@4\t%7\t4242\t0\t\t\t0\t80\t24\t-\n";

    fn query(ask: Ask) -> Query {
        Query::new(ask, true)
    }

    fn framed(query: Query, sessions: &str, panes: &str) -> String {
        let at = |word| format!("{}10 99\n", query.mark(word));
        format!("{}{sessions}{}{panes}{}", at("BEGIN"), at("PANES"), at("END"))
    }

    fn read(query: Query, text: &str) -> Result<Read, TmuxError> {
        query.read(text.as_bytes(), TmuxError::NoServer).map(|(_, read)| read)
    }

    fn whole(query: Query, text: &str) -> Listing {
        match read(query, text).unwrap() {
            Read::All(listing) => listing,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_listing_needs_all_its_marks() {
        let query = query(Ask::All);
        let text = framed(query, ONE, PANE);
        let listing = whole(query, &text);
        assert_eq!((listing.sessions.len(), listing.panes.len()), (1, 1));
        for end in 0..text.len() {
            assert!(read(query, &text[..end]).is_err(), "cut at {end}");
        }
        let other = Query::new(Ask::All, true);
        assert!(matches!(read(other, &text), Err(TmuxError::NoServer)), "another call's answer");
    }

    #[test]
    fn two_servers_in_one_listing_are_refused() {
        let query = query(Ask::All);
        for word in ["PANES", "END"] {
            let mark = query.mark(word);
            let text = framed(query, ONE, PANE).replace(&format!("{mark}10 99"), &format!("{mark}10 98"));
            assert!(matches!(read(query, &text), Err(TmuxError::Incomplete)), "{word}");
        }
    }

    #[test]
    fn an_empty_server_is_proved_by_the_mark_after_its_sessions() {
        let query = query(Ask::All);
        let cut = |text: String| text.split("END").next().unwrap().to_owned();
        let empty = whole(query, &cut(framed(query, "", "")));
        assert!(empty.sessions.is_empty() && empty.panes.is_empty());
        assert!(read(query, &cut(framed(query, ONE, ""))).is_err());
    }

    #[test]
    fn the_hidden_session_is_not_there() {
        let all = query(Ask::All);
        let shared = PANE.replace("$3", "$0");
        let alone = PANE.replace("$3", "$0").replace("@4", "@0").replace("%7", "%0");
        let panes = format!("{alone}{shared}{PANE}");
        let listing = whole(all, &framed(all, &format!("{HIDDEN}{ONE}"), &panes));
        assert_eq!(listing.sessions.keys().map(|id| id.0).collect::<Vec<_>>(), [3]);
        assert_eq!(listing.panes.values().map(|pane| pane.session.0).collect::<Vec<_>>(), [3]);
        let part = query(Ask::Session(TmuxSessionId(0)));
        assert_eq!(read(part, &framed(part, HIDDEN, &alone)).unwrap(), Read::Part(None));
        let window = query(Ask::Window(WindowId(0)));
        assert_eq!(read(window, &framed(window, HIDDEN, &alone)).unwrap(), Read::Part(None));
        let foreign = Query::new(Ask::All, false);
        assert_eq!(whole(foreign, &framed(foreign, HIDDEN, &alone)).sessions.len(), 1);
    }

    #[test]
    fn a_part_is_what_the_whole_says_of_it() {
        let other = PANE.replace("@4", "@5").replace("%7", "%8");
        let second = ONE.replace("$3", "$5");
        let foreign = PANE.replace("$3", "$5").replace("@4", "@6").replace("%7", "%9");
        let (sessions, panes) = (format!("{ONE}{second}"), format!("{PANE}{other}{foreign}"));
        let panes_of = |ask| {
            let query = query(ask);
            let Read::Part(part) = read(query, &framed(query, &sessions, &panes)).unwrap() else { panic!() };
            part.map(|part| (part.id.0, part.panes.keys().map(|id| id.0).collect::<Vec<_>>()))
        };
        assert_eq!(panes_of(Ask::Session(TmuxSessionId(3))), Some((3, vec![7, 8])));
        assert_eq!(panes_of(Ask::Session(TmuxSessionId(4))), None);
        assert_eq!(panes_of(Ask::Window(WindowId(5))), Some((3, vec![8])));
        assert_eq!(panes_of(Ask::Window(WindowId(7))), None);
    }

    #[test]
    fn what_several_sessions_show_is_only_said_to_be_there() {
        let pane = query(Ask::Pane(protocol::ids::PaneId(7)));
        let at = |word| format!("{}10 99\n", pane.mark(word));
        let text = at("BEGIN") + &at("SHARED") + &at("END");
        assert_eq!(read(pane, &text).unwrap(), Read::Shared);
        assert!(read(pane, &text[..text.len() - 1]).is_err(), "cut");
        let Read::Part(Some(found)) = read(pane, &framed(pane, ONE, PANE)).unwrap() else { panic!() };
        assert_eq!((found.id.0, found.panes.len()), (3, 1));
    }

    #[test]
    fn absence_needs_the_first_mark() {
        let query = query(Ask::Session(TmuxSessionId(9)));
        let gone = || TmuxError::NotFound("can't find session: $9".to_owned());
        let begun = format!("{}10 99\n", query.begins());
        assert_eq!(query.read(begun.as_bytes(), gone()).unwrap().1, Read::Part(None));
        assert!(matches!(query.read(b"", gone()), Err(TmuxError::NotFound(_))));
        assert!(matches!(query.read(begun.as_bytes(), TmuxError::Incomplete), Err(TmuxError::Incomplete)));
    }
}
