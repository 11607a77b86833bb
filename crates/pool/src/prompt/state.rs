//! The volatile state of prompt delivery, lost when `poold` ends: the pane then tells what was typed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use protocol::{MessageId, MessageState, Session, SessionId, Tag, Timestamp};

use crate::pool::Pool;
use crate::prompt::blocked::Blocked;

/// Sessions that prompts are being delivered to, and the reasons for which others wait.
#[derive(Debug, Default)]
pub struct Prompts {
    delivering: BTreeSet<SessionId>,
    pasting: BTreeSet<SessionId>,
    blocked: BTreeMap<SessionId, Blocked>,
    newer_receipts: BTreeSet<Tag>,
    left_to_person: BTreeMap<SessionId, MessageId>,
    delivered_at: BTreeMap<Tag, Timestamp>,
    /// Times from which on reports of agents may be about what was last typed into them.
    entered_at: BTreeMap<Tag, Timestamp>,
    recalled: BTreeSet<Tag>,
    attended: BTreeSet<Tag>,
    /// The incarnations that clients show, and since when: 0 if that began before this start of `poold`.
    viewed: Option<BTreeMap<Tag, (u32, Timestamp)>>,
    visits: BTreeMap<Tag, Visit>,
    key_lines: BTreeMap<Tag, KeyLine>,
    line_editors: BTreeSet<Tag>,
}

/// A time for which clients showed an incarnation.
#[derive(Debug, Clone, Copy)]
struct Visit {
    began_at: Timestamp,
    /// Time at which a client was last seen to have left.
    left_at: Timestamp,
}

/// Longest time between the attach of a client, which tmux knows to the second, and its observation. After a longer
/// time the client counts as a visitor through another tmux session, which holds back more prompts.
const OBSERVED_WITHIN: Duration = Duration::from_millis(1500);

/// The last letters that `keys` and `input` typed into a terminal since the last Enter, or that the pool typed without
/// one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyLine {
    /// The letters in the terminal now.
    pub begun: String,
    /// Letters that C-c or C-u discarded. The shell may have drawn them together with its prompt.
    pub discarded: String,
    /// The row with a text that the pool typed and the shell has not run.
    pub abandoned: Option<String>,
    /// The row of the shell's prompt, as it was before the pool last typed something.
    pub prompt: String,
    /// The row of a line that somebody had left when the log, which showed that, was emptied.
    pub left: String,
}

/// Maximum number of letters of a line that was begun.
const BEGUN_MAX: usize = 64;

impl Prompts {
    /// Begins to deliver to a session. Returns false if that is under way already.
    pub fn begin_delivery(&mut self, session: SessionId) -> bool {
        self.delivering.insert(session)
    }

    pub fn end_delivery(&mut self, session: SessionId) {
        self.delivering.remove(&session);
    }

    /// True while prompts are being delivered to this session.
    pub fn is_delivering(&self, session: SessionId) -> bool {
        self.delivering.contains(&session)
    }

    /// The sessions that prompts are being delivered to.
    pub(crate) fn delivering(&self) -> impl Iterator<Item = SessionId> {
        self.delivering.iter().copied()
    }

    /// Begins a paste, once `typing` is on record. It lasts until [`Self::end_paste`].
    pub fn begin_paste(&mut self, session: SessionId) {
        self.blocked.remove(&session);
        self.pasting.insert(session);
    }

    /// Ends a paste, once its outcome is on record. Returns true if one was under way.
    pub fn end_paste(&mut self, session: SessionId) -> bool {
        self.pasting.remove(&session)
    }

    /// True while a paste is under way anywhere: `poold` does not stop meanwhile.
    pub fn is_pasting(&self) -> bool {
        !self.pasting.is_empty()
    }

    /// Stores the reason for which the next prompt of a session is not typed yet.
    pub fn block(&mut self, session: SessionId, blocked: Blocked) {
        self.blocked.insert(session, blocked);
    }

    /// The reasons for which the next prompts of sessions are not typed yet.
    pub fn blocked(&self) -> &BTreeMap<SessionId, Blocked> {
        &self.blocked
    }

    /// Drops the reasons of sessions without a waiting prompt. `waiting` is sorted.
    pub fn retain_blocked(&mut self, waiting: &[SessionId]) {
        self.blocked.retain(|session, _| waiting.binary_search(session).is_ok());
    }

    /// Stores that a pane has the receipt of a token that this pool has not issued yet.
    pub fn note_newer_receipt(&mut self, tag: Tag) {
        self.newer_receipts.insert(tag);
    }

    /// True if the pane of this incarnation has the receipt of a token that this pool has not issued yet.
    pub fn has_newer_receipt(&self, tag: Tag) -> bool {
        self.newer_receipts.contains(&tag)
    }

    /// Leaves a typed prompt to a person.
    pub fn leave_to_person(&mut self, session: SessionId, message: MessageId) {
        self.left_to_person.insert(session, message);
    }

    /// The typed prompt of a session that only a person can resolve.
    pub fn left_to_person(&self, session: SessionId) -> Option<MessageId> {
        self.left_to_person.get(&session).copied()
    }

    /// Drops prompts that are no longer `typed`.
    pub fn retain_left_to_person(&mut self, pool: &Pool) {
        self.left_to_person.retain(|session, message| {
            let open = pool.pending_message(*session, *message);
            open.is_some_and(|open| open.state == MessageState::Typed)
        });
    }

    /// Stores that something was typed into an incarnation.
    pub fn delivered(&mut self, tag: Tag, at: Timestamp) {
        self.delivered_since(tag, at, at);
    }

    /// Stores at `at` that something was typed into an incarnation, whose Enter was pressed after `entered_at`: the
    /// agent may have reported meanwhile.
    pub fn delivered_since(&mut self, tag: Tag, entered_at: Timestamp, at: Timestamp) {
        self.entered_at.insert(tag, entered_at);
        self.reported(tag, at);
    }

    /// Stores that an agent has reported something that it was given to do.
    pub fn reported(&mut self, tag: Tag, at: Timestamp) {
        self.delivered_at.insert(tag, at);
    }

    /// Returns the time from which on reports of an agent may be about what the pool last typed into it.
    pub fn entered_at(&self, tag: Tag) -> Option<Timestamp> {
        self.entered_at.get(&tag).copied()
    }

    /// Times at which something was last typed into incarnations, or their agents last reported what they do.
    pub fn delivered_at(&self) -> &BTreeMap<Tag, Timestamp> {
        &self.delivered_at
    }

    /// Notes that the text which an earlier `poold` left in an incarnation is looked up. Returns true the first time
    /// only, so that the messages on record are read once, and not at each attempt of a prompt that is held back.
    pub fn begin_recall(&mut self, tag: Tag) -> bool {
        self.recalled.insert(tag)
    }

    /// Stores what `keys` or `input` typed into a terminal, as the characters that the keys give.
    pub fn typed(&mut self, tag: Tag, text: &str) {
        let KeyLine { begun, mut discarded, mut abandoned, prompt, mut left } = self.key_line(tag);
        let mut line: VecDeque<char> = begun.chars().collect();
        if text.contains(['\r', '\n', '\u{3}', '\u{4}', '\u{15}']) {
            (abandoned, left) = (None, String::new());
        }
        for letter in text.chars() {
            match letter {
                // Enter and C-d end it.
                '\r' | '\n' | '\u{4}' => {
                    line.clear();
                    discarded.clear();
                }
                // C-c and C-u discard it.
                '\u{3}' | '\u{15}' if !line.is_empty() => discarded = line.drain(..).collect(),
                '\u{7f}' | '\u{8}' => drop(line.pop_back()),
                letter if letter.is_control() || letter.is_whitespace() => {}
                letter => line.push_back(letter),
            }
        }
        line.drain(..line.len().saturating_sub(BEGUN_MAX));
        let begun = line.into_iter().collect();
        self.key_lines.insert(tag, KeyLine { begun, discarded, abandoned, prompt, left });
    }

    /// Stores a text that the pool typed and did not enter, and the row that shows it.
    pub fn leave_unentered(&mut self, tag: Tag, text: &str, row: Option<String>) {
        self.key_lines.entry(tag).or_default().begun.clear();
        self.typed(tag, text);
        row.into_iter().for_each(|row| self.abandon_row(tag, row));
    }

    /// Stores the row with a text that the pool typed and the shell has not run.
    pub fn abandon_row(&mut self, tag: Tag, row: String) {
        self.key_lines.entry(tag).or_default().abandoned = Some(row);
    }

    /// Stores the row of a shell's prompt while no text was in it.
    pub fn note_prompt_row(&mut self, tag: Tag, row: String) {
        self.key_lines.entry(tag).or_default().prompt = row;
    }

    /// Stores the row of a line that somebody has left, before the log that shows it is emptied.
    pub fn keep_left_row(&mut self, tag: Tag, row: String) {
        self.key_lines.entry(tag).or_default().left = row;
    }

    /// Returns the letters that were typed into a terminal since the last Enter.
    pub fn key_line(&self, tag: Tag) -> KeyLine {
        self.key_lines.get(&tag).cloned().unwrap_or_default()
    }

    /// Notes that a shell was seen at its line editor: whenever its terminal is in another mode, it runs something.
    pub fn note_line_editor(&mut self, tag: Tag) {
        self.line_editors.insert(tag);
    }

    /// True if a shell was seen at its line editor.
    pub fn has_line_editor(&self, tag: Tag) -> bool {
        self.line_editors.contains(&tag)
    }

    /// Notes that a person uses these incarnations: is attached, or acts by `keys`, `input` or `resize`.
    pub fn attend(&mut self, tags: impl IntoIterator<Item = Tag>) {
        self.attended.extend(tags);
    }

    /// Notes how many clients show each incarnation.
    pub fn note_viewers(&mut self, viewers: BTreeMap<Tag, u32>, now: Timestamp) {
        let (is_first, before) = (self.viewed.is_none(), self.viewed.take().unwrap_or_default());
        let since = |tag: &Tag| before.get(tag).map(|(_, since)| *since);
        for (tag, (number, began_at)) in &before {
            if viewers.get(tag).is_none_or(|now| now < number) {
                self.visits.insert(*tag, Visit { began_at: *began_at, left_at: now });
            }
        }
        let begins_at = if is_first { Timestamp(0) } else { now };
        let viewed =
            viewers.into_iter().map(|(tag, number)| (tag, (number, since(&tag).unwrap_or(begins_at))));
        self.viewed = Some(viewed.collect());
    }

    /// Returns when a client left an incarnation that it had shown through another tmux session of the same group. The
    /// activity of the incarnation's own tmux session, last at `active_at`, does not tell what was typed there.
    pub fn left_view_at(&self, tag: Tag, active_at: Option<Timestamp>) -> Option<Timestamp> {
        let visit = self.visits.get(&tag)?;
        let is_own = active_at.is_some_and(|at| at.after(OBSERVED_WITHIN) >= visit.began_at);
        (!is_own).then_some(visit.left_at)
    }

    /// Stores at a start of `poold` the incarnations that a person spoke to before, as far as that is on record.
    pub fn keep_attended(&mut self, pool: &Pool) {
        let attended = pool.sessions().filter(|session| session.attended);
        self.attend(attended.filter_map(Session::tag));
    }

    /// Incarnations that a person spoke to.
    pub fn attended(&self) -> &BTreeSet<Tag> {
        &self.attended
    }

    /// Forgets all other sessions and incarnations.
    pub fn retain(&mut self, sessions: &BTreeSet<SessionId>, runs: &BTreeSet<Tag>) {
        self.blocked.retain(|session, _| sessions.contains(session));
        self.left_to_person.retain(|session, _| sessions.contains(session));
        self.delivered_at.retain(|tag, _| runs.contains(tag));
        self.entered_at.retain(|tag, _| runs.contains(tag));
        self.recalled.retain(|tag| runs.contains(tag));
        self.attended.retain(|tag| runs.contains(tag));
        self.visits.retain(|tag, _| runs.contains(tag));
        self.key_lines.retain(|tag, _| runs.contains(tag));
        self.line_editors.retain(|tag| runs.contains(tag));
        self.newer_receipts.retain(|tag| runs.contains(tag));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SessionId = SessionId(1);
    const TWO: SessionId = SessionId(2);

    fn tag(n: u8) -> Tag {
        Tag([n; 16])
    }

    #[test]
    fn who_left_a_view_of_its_own_may_have_typed_without_an_activity_of_the_session() {
        let (mut prompts, view) = (Prompts::default(), |number: u32| BTreeMap::from([(tag(1), number)]));
        let at = |seconds: u64| Timestamp(seconds * 1000);
        prompts.note_viewers(BTreeMap::new(), at(1));
        prompts.note_viewers(view(1), at(101));
        assert_eq!(prompts.left_view_at(tag(1), Some(at(50))), None, "it is there");
        prompts.note_viewers(BTreeMap::new(), at(200));
        assert_eq!(prompts.left_view_at(tag(1), Some(at(50))), Some(at(200)));
        assert_eq!(prompts.left_view_at(tag(1), Some(at(100))), None, "it was attached to the session");
        // A viewer that was there at a start of `poold`.
        let mut prompts = Prompts::default();
        prompts.note_viewers(view(2), at(300));
        prompts.note_viewers(view(1), at(400));
        assert_eq!(prompts.left_view_at(tag(1), Some(at(50))), None);
    }

    #[test]
    fn a_session_is_delivered_to_once_at_a_time() {
        let mut prompts = Prompts::default();
        assert!(prompts.begin_delivery(ONE) && !prompts.begin_delivery(ONE) && prompts.begin_delivery(TWO));
        assert!(prompts.delivering().eq([ONE, TWO]));
        prompts.end_delivery(ONE);
        assert!(!prompts.is_delivering(ONE) && prompts.begin_delivery(ONE));
    }

    #[test]
    fn a_paste_begins_without_a_reason_to_wait() {
        let mut prompts = Prompts::default();
        prompts.block(ONE, Blocked::by_terminal("it is in copy mode"));
        prompts.block(TWO, Blocked::for_now("its agent is busy (hook)"));
        assert!(!prompts.end_paste(ONE));
        prompts.begin_paste(ONE);
        assert!(prompts.is_pasting());
        assert_eq!(prompts.blocked().keys().collect::<Vec<_>>(), [&TWO]);
        assert!(prompts.end_paste(ONE) && !prompts.is_pasting());
        prompts.retain_blocked(&[ONE]);
        assert!(prompts.blocked().is_empty(), "no prompt waits for it");
    }

    #[test]
    fn what_belongs_to_other_sessions_and_incarnations_is_forgotten() {
        let mut prompts = Prompts::default();
        for (session, tag) in [(ONE, tag(1)), (TWO, tag(2))] {
            prompts.block(session, Blocked::for_now("why"));
            prompts.delivered(tag, Timestamp(1));
            prompts.attend([tag]);
            prompts.note_newer_receipt(tag);
            assert!(prompts.begin_recall(tag) && !prompts.begin_recall(tag), "once");
        }
        prompts.retain(&[TWO].into(), &[tag(2)].into());
        assert_eq!(prompts.blocked().keys().collect::<Vec<_>>(), [&TWO]);
        assert_eq!(prompts.delivered_at().keys().collect::<Vec<_>>(), [&tag(2)]);
        assert_eq!([tag(1), tag(2)].map(|tag| prompts.entered_at(tag)), [None, Some(Timestamp(1))]);
        assert!(prompts.attended().iter().eq([&tag(2)]));
        assert!(!prompts.has_newer_receipt(tag(1)) && prompts.has_newer_receipt(tag(2)));
        assert!(prompts.begin_recall(tag(1)) && !prompts.begin_recall(tag(2)));
    }

    #[test]
    fn a_prompt_is_left_to_a_person_until_its_state_changes() {
        let mut prompts = Prompts::default();
        prompts.leave_to_person(ONE, MessageId(5));
        assert_eq!((prompts.left_to_person(ONE), prompts.left_to_person(TWO)), (Some(MessageId(5)), None));
        prompts.retain_left_to_person(&Pool::default());
        assert_eq!(prompts.left_to_person(ONE), None, "no such message is typed");
    }

    #[test]
    fn what_was_typed_is_a_begun_line_until_enter() {
        let mut prompts = Prompts::default();
        for (typed, begun) in [
            ("ls -", "ls-"),
            ("l\u{7f}a", "ls-a"),
            ("\r", ""),
            ("echo A\rrm", "rm"),
            ("\u{3}", ""),
            ("y", "y"),
        ] {
            prompts.typed(tag(1), typed);
            assert_eq!(prompts.key_line(tag(1)).begun, begun, "{typed:?}");
        }
        assert_eq!(prompts.key_line(tag(1)).discarded, "rm");
        prompts.typed(tag(1), &"x".repeat(500));
        assert_eq!(prompts.key_line(tag(1)).begun.len(), BEGUN_MAX);
        assert_eq!(prompts.key_line(tag(2)), KeyLine::default());
    }

    #[test]
    fn a_text_without_its_enter_is_a_begun_line_whatever_was_typed_before() {
        let mut prompts = Prompts::default();
        prompts.typed(tag(1), "y");
        prompts.leave_unentered(tag(1), "for i in 1\ndo x", Some("> do x".to_owned()));
        let line = prompts.key_line(tag(1));
        assert_eq!((line.begun.as_str(), line.abandoned.as_deref()), ("dox", Some("> do x")));
        prompts.typed(tag(1), "\u{3}");
        let line = prompts.key_line(tag(1));
        assert_eq!((line.begun.as_str(), line.abandoned), ("", None));
    }
}
