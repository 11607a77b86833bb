//! Rows and journal: an open finds what was committed, and each event writes its rows only.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;

use proptest::prelude::*;
use protocol::message::STEPS_MAX;
use protocol::policy::Budget;
use protocol::reap::{Action, Rule};
use protocol::session::{Conversation, DeleteMode, SessionLock};
use protocol::usage::Account;
use protocol::{
    AgentEvent, Epoch, Event, MessageId, MessageState, OpId, ProcId, Reason, Seq, Timestamp, Token,
};
use redb::{Database, ReadableDatabase, ReadableTableMetadata, TableDefinition, TableHandle};
use store::{Store, StoreError, TRIM_MAX, Table};

use crate::backend::Disk;
use crate::history::{Expected, History, fresh};

/// Drops the store; what is opened again is the history.
fn assert_kept(store: Store, disk: Disk, history: &History) {
    drop(store);
    let (store, loaded) = Store::with_backend(disk).unwrap();
    assert_eq!(Expected::found(&store, loaded), history.now);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_open_finds_the_state_of_the_last_commit(
        seed: u64,
        batches in prop::collection::vec(prop::collection::vec(any::<u64>(), 0..12), 1..12),
        reopen in 1usize..4,
    ) {
        let (disk, mut store, mut history) = fresh(seed);
        for (n, choices) in batches.iter().enumerate() {
            for choice in choices {
                history.step(*choice);
            }
            history.commit(&mut store).unwrap();
            if n % reopen == 0 {
                store.close().unwrap();
                let (again, loaded) = Store::with_backend(disk.clone()).unwrap();
                prop_assert_eq!(&Expected::found(&again, loaded), &history.now);
                store = again;
            }
        }
    }
}

#[test]
fn a_page_of_events_ends_with_the_one_that_fills_it_and_the_next_goes_on() {
    let (_, mut store, mut history) = fresh(3);
    for _ in 0..40 {
        history.steps(8);
        history.commit(&mut store).unwrap();
    }
    let all = store.reader().events_since(Seq(0), usize::MAX).unwrap();
    let (mut found, mut pages) = (Vec::new(), 0);
    loop {
        let since = found.last().map_or(Seq(0), |last: &protocol::Stamped| last.seq);
        let (page, has_more) = store.reader().events_page(since, (7, 250)).unwrap();
        assert!(page.len() <= 7);
        pages += usize::from(page.len() < 7);
        found.extend(page);
        if !has_more {
            break;
        }
    }
    assert_eq!(found, all);
    assert!(pages > 2, "some were full of bytes");
}

#[test]
fn without_events_nothing_is_written() {
    let (disk, mut store, mut history) = fresh(1);
    let before = disk.writes();
    history.commit(&mut store).unwrap();
    assert_eq!(disk.writes(), before);
}

#[test]
fn a_change_of_state_does_not_rewrite_the_body() {
    let (disk, mut store, mut history) = fresh(1);
    history.create();
    let id = history.send();
    let needle = history.rng.next().to_le_bytes().repeat(8);
    history.set_body(id, needle.repeat(300));
    history.commit(&mut store).unwrap();
    let from = disk.writes();
    history.change_state(id, MessageState::Typing);
    history.commit(&mut store).unwrap();
    assert!(disk.writes() > from);
    assert!(!disk.written_since(from, &needle), "the body was written again");
    assert!(disk.written_since(0, &needle), "the body was written once");
}

/// Returns the number of rows of each table, by its name.
fn rows(disk: &Disk) -> BTreeMap<String, u64> {
    let db = Database::builder().create_with_backend(Disk::holding(disk.bytes())).unwrap();
    let read = db.begin_read().unwrap();
    let names: Vec<String> = read.list_tables().unwrap().map(|table| table.name().to_owned()).collect();
    let len = |name: &str| {
        let definition: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new(name);
        read.open_table(definition).unwrap().len().unwrap()
    };
    names.into_iter().map(|name| (name.clone(), len(&name))).collect()
}

/// Returns all rows, by table and key.
fn all_rows(disk: &Disk) -> BTreeMap<(String, Vec<u8>), Vec<u8>> {
    let db = Database::builder().create_with_backend(Disk::holding(disk.bytes())).unwrap();
    let read = db.begin_read().unwrap();
    let mut all = BTreeMap::new();
    for table in read.list_tables().unwrap() {
        let definition: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new(table.name());
        for row in read.open_table(definition).unwrap().range::<&[u8]>(..).unwrap() {
            let (key, record) = row.unwrap();
            all.insert((table.name().to_owned(), key.value().to_vec()), record.value().to_vec());
        }
    }
    all
}

#[test]
fn usage_and_budget_of_a_session_are_written_to_its_row_only() {
    let (disk, mut store, mut history) = fresh(1);
    let session = history.create();
    history.create();
    history.commit(&mut store).unwrap();
    let row = (Table::Sessions.name().to_owned(), session.0.to_be_bytes().to_vec());
    for n in 1..4 {
        let before = all_rows(&disk);
        let budget = Budget { failures: n, ..Budget::default() };
        history.emit(Event::BudgetChanged { session, budget });
        let account = Account { user_us: n.into(), ..Account::default() };
        history.emit(Event::SessionAccounted(session, account));
        let conversation = Some(Conversation { id: n.to_string(), begun: true });
        history.emit(Event::ConversationChanged { session, conversation });
        history.commit(&mut store).unwrap();
        let mut expected = all_rows(&disk);
        assert_ne!(expected.insert(row.clone(), before[&row].clone()), None);
        assert_eq!(expected, before, "nothing else was written");
        assert_ne!(all_rows(&disk)[&row], before[&row]);
    }
    assert_kept(store, disk, &history);
}

#[test]
fn the_environment_of_a_session_is_in_its_row_only() {
    const SECRET: &[u8] = b"in-the-environment";
    let (disk, mut store, mut history) = fresh(1);
    history.create();
    let created = history.batch.events.iter_mut().find_map(|stamped| match &mut stamped.event {
        Event::SessionCreated(session) => Some(session),
        _ => None,
    });
    let session = created.unwrap();
    session.spec.env.push(("KEY".into(), protocol::OsBytes(SECRET.to_vec())));
    history.now.pool = pool::Pool::default();
    history.batch.events.iter().for_each(|stamped| history.now.pool.apply(stamped));
    history.commit(&mut store).unwrap();
    store.close().unwrap();
    let has_it = |row: &[u8]| row.windows(SECRET.len()).any(|part| part == SECRET);
    let tables: Vec<String> =
        all_rows(&disk).into_iter().filter(|(_, row)| has_it(row)).map(|((table, _), _)| table).collect();
    assert_eq!(tables, [Table::Sessions.name()]);
}

#[test]
fn a_lock_is_in_its_sessions_row() {
    let (disk, mut store, mut history) = fresh(1);
    let session = history.create();
    history.create();
    history.commit(&mut store).unwrap();
    let row = (Table::Sessions.name().to_owned(), session.0.to_be_bytes().to_vec());
    let (lock, again) = (lock(1), lock(2));
    let (token, reason) = (lock.token, String::new());
    let (rule, action, evidence) = (Rule::Hung, Action::Report, "silent for 600 s".to_owned());
    let events = [
        (Event::LockGranted { session, lock: lock.clone() }, Some(&lock)),
        (Event::StaleFound { session, rule, action, evidence }, Some(&lock)),
        (Event::LockReleased { session, token, reason: reason.clone() }, None),
        (Event::LockGranted { session, lock: again.clone() }, Some(&again)),
        (Event::LockRevoked { session, token: again.token, reason }, None),
    ];
    for (event, held) in events {
        let before = all_rows(&disk);
        let is_found = matches!(event, Event::StaleFound { .. });
        history.emit(event);
        history.commit(&mut store).unwrap();
        let mut after = all_rows(&disk);
        let seq = history.now.pool.seq().0.to_be_bytes().to_vec();
        assert!(after.remove(&(Table::Journal.name().to_owned(), seq)).is_some(), "it is in the journal");
        assert_eq!(after[&row] == before[&row], is_found);
        after.insert(row.clone(), before[&row].clone());
        assert_eq!(after, before, "nothing else was written");
        store.close().unwrap();
        let (opened, loaded) = Store::with_backend(disk.clone()).unwrap();
        assert_eq!(loaded.pool.session(session).unwrap().lock.as_ref(), held);
        assert_eq!(Expected::found(&opened, loaded), history.now);
        store = opened;
    }
}

fn lock(n: u64) -> SessionLock {
    let (token, since) = (Token { epoch: Epoch(1), n }, Timestamp(n));
    let holder = Some(ProcId { pid: 7, start: n });
    SessionLock {
        token,
        purpose: "make".to_owned(),
        holder,
        lease_ms: 60_000,
        since,
        op: OpId::Random([3; 16]),
        prompts: Default::default(),
        outer: None,
    }
}

fn agent(event: AgentEvent) -> Event {
    Event::Agent(event)
}

#[test]
fn the_state_of_an_agent_is_in_rows_of_its_own() {
    let (disk, mut store, mut history) = fresh(1);
    let (session, other) = (history.create(), history.create());
    for session in [session, other] {
        let (activity, notes, thought) = (history.activity(6), history.notes(6), history.thought(6));
        history.emit(agent(AgentEvent::ActivityChanged { session, activity, turned: true }));
        history.emit(agent(AgentEvent::AgentNoted { session, notes }));
        history.emit(agent(AgentEvent::ThoughtPublished { session, thought }));
        let conversation = "lost before".to_owned();
        history.emit(agent(AgentEvent::ConversationLost { session, conversation }));
    }
    history.commit(&mut store).unwrap();
    let (activity, notes, thought) = (history.activity(7), history.notes(7), history.thought(7));
    let (mode, by) = (DeleteMode::KillTmux, "approve".to_owned());
    let (deleted, reason) = (Reason::ApiDelete, Reason::Exited);
    let agents = [Table::Activities, Table::Notes, Table::Thoughts, Table::LostConversations];
    let conversation = "lost".to_owned();
    // Events, the tables they write, and whether they are journaled.
    let steps: [(Event, &[Table], bool); 8] = [
        (
            agent(AgentEvent::ActivityChanged { session, activity: activity.clone(), turned: false }),
            &agents[..1],
            false,
        ),
        (
            agent(AgentEvent::ActivityChanged { session, activity: history.activity(8), turned: true }),
            &agents[..1],
            true,
        ),
        (agent(AgentEvent::AgentNoted { session, notes }), &agents[1..2], false),
        (agent(AgentEvent::ThoughtPublished { session, thought }), &agents[2..3], true),
        (agent(AgentEvent::ConversationLost { session, conversation }), &agents[3..], true),
        (agent(AgentEvent::AskAnswered { session, ask: 7, allowed: true, by }), &[], true),
        (Event::SessionStopped { session, reason, exit: None }, &[Table::Sessions], true),
        (
            Event::SessionDeleted { session, reason: deleted, mode, tmux_alive: false },
            &[Table::Sessions, Table::Activities, Table::Notes, Table::Thoughts, Table::LostConversations],
            true,
        ),
    ];
    for (event, written, is_journaled) in steps {
        let before = all_rows(&disk);
        let is_over = matches!(event, Event::SessionDeleted { .. });
        history.emit(event);
        history.commit(&mut store).unwrap();
        let mut after = all_rows(&disk);
        for table in written {
            let row = (table.name().to_owned(), session.0.to_be_bytes().to_vec());
            let now = after.insert(row.clone(), before[&row].clone());
            assert_eq!(now.is_none(), is_over, "{row:?}");
            assert_ne!(now.as_ref(), before.get(&row), "{row:?}");
        }
        let seq = history.now.pool.seq().0.to_be_bytes().to_vec();
        let journal = (Table::Journal.name().to_owned(), seq);
        assert_eq!(!before.contains_key(&journal) && after.remove(&journal).is_some(), is_journaled);
        assert_eq!(after, before, "nothing else was written");
        store.close().unwrap();
        let (opened, loaded) = Store::with_backend(disk.clone()).unwrap();
        assert_eq!(loaded.pool.activity(session), history.now.pool.activity(session));
        assert!(loaded.pool.activity(other).is_some() && loaded.pool.activity(session).is_some() != is_over);
        assert_eq!(Expected::found(&opened, loaded), history.now);
        store = opened;
    }
}

#[test]
fn an_enqueue_is_one_row_of_one_table() {
    let (disk, mut store, mut history) = fresh(1);
    history.create();
    history.commit(&mut store).unwrap();
    let before = rows(&disk);
    for _ in 0..3 {
        history.send();
    }
    history.commit(&mut store).unwrap();
    let mut expected = before;
    *expected.get_mut(Table::Messages.name()).unwrap() += 3;
    assert_eq!(rows(&disk), expected);
}

#[test]
fn a_message_has_its_first_step_and_the_newest() {
    let (_, mut store, mut history) = fresh(1);
    history.create();
    let id = history.send();
    for n in 0..STEPS_MAX + 7 {
        history.clock += 1;
        let states = [MessageState::Claimed, MessageState::Queued];
        history.change_state(id, states[n % 2]);
        if n % 3 == 0 {
            history.commit(&mut store).unwrap();
        }
    }
    history.commit(&mut store).unwrap();
    let (message, body) = store.message(id).unwrap().unwrap();
    assert_eq!((&message, &body), (&history.now.messages[&id].0, &history.now.messages[&id].1));
    assert_eq!(message.steps.len(), STEPS_MAX);
    assert_eq!(message.steps[0].at, message.created_at);
    assert_eq!(message.steps.last(), Some(&message.status.step()));
    let [listed] = store.messages(&[id, MessageId(99)]).unwrap().try_into().unwrap();
    assert_eq!(listed, protocol::Message { steps: vec![], ..message });
    assert_eq!(store.message(MessageId(99)).unwrap(), None);
}

#[test]
fn a_listed_message_has_the_step_of_its_acceptance() {
    let (_, mut store, mut history) = fresh(1);
    history.create();
    let id = history.send();
    for state in [MessageState::Typing, MessageState::Accepted, MessageState::Done] {
        history.clock += 1;
        history.change_state(id, state);
    }
    history.commit(&mut store).unwrap();
    let [listed] = store.messages(&[id]).unwrap().try_into().unwrap();
    let [step] = listed.steps.as_slice() else { panic!("{listed:?}") };
    assert_eq!(step.state, MessageState::Accepted);
}

#[test]
fn the_suspension_of_a_message_survives_any_number_of_attempts() {
    let (_, mut store, mut history) = fresh(1);
    history.create();
    let id = history.send();
    for n in 0..2 * STEPS_MAX {
        let states = [MessageState::Typing, MessageState::Queued];
        history.change_state(id, if n == 3 { MessageState::Suspended } else { states[n % 2] });
        history.commit(&mut store).unwrap();
    }
    let message = store.message(id).unwrap().unwrap().0;
    assert!(message.suspended_at().is_some() && message.steps.len() == STEPS_MAX);
    let status = Box::new(protocol::MessageStatus::default());
    let session = message.session;
    history.emit(Event::MessageChanged { id, session, status });
    history.commit(&mut store).unwrap();
    assert!(store.message(id).unwrap().unwrap().0.suspended_at().is_none(), "it is sent from the start");
}

#[test]
fn a_message_that_is_queued_and_forgotten_in_one_commit_leaves_its_event() {
    let (disk, mut store, mut history) = fresh(1);
    history.create();
    let (first, second) = (history.send(), history.send());
    history.change_state(second, MessageState::Done);
    history.forget(second);
    history.commit(&mut store).unwrap();
    history.forget(first);
    history.commit(&mut store).unwrap();
    assert_eq!(store.events_since(Seq(0), 99).unwrap(), history.now.journal);
    assert_kept(store, disk, &history);
    assert_eq!(history.now.pool.sessions().next().unwrap().total_requests, 2);
}

#[test]
fn no_sequence_number_is_reused() {
    let (disk, mut store, mut history) = fresh(1);
    history.create();
    history.commit(&mut store).unwrap();
    let id = history.send();
    history.commit(&mut store).unwrap();
    // The newest event is the message's own row; afterwards, only the stored number is left.
    store.trim_journal(0, Timestamp(0)).unwrap();
    history.forget(id);
    history.commit(&mut store).unwrap();
    store.trim_journal(0, Timestamp(0)).unwrap();
    drop(store);
    let (store, loaded) = Store::with_backend(disk).unwrap();
    assert_eq!(loaded.pool.seq().0, id.0);
    assert_eq!(store.oldest_seq().unwrap(), Some(Seq(id.0)));
}

#[test]
fn a_message_without_its_body_is_refused_and_latches() {
    let (_, mut store, mut history) = fresh(1);
    history.create();
    history.send();
    let reader = store.reader();
    history.batch.bodies.clear();
    let refused = history.commit(&mut store);
    assert!(matches!(refused, Err(StoreError::NoBody(_))), "{refused:?}");
    assert!(matches!(store.commit(&history.now.pool, &[], &[]), Err(StoreError::Latched)));
    assert!(matches!(store.message(MessageId(1)), Err(StoreError::Latched)));
    assert!(matches!(store.events_since(Seq(0), 1), Err(StoreError::Latched)));
    assert!(matches!(store.oldest_seq(), Err(StoreError::Latched)));
    assert!(matches!(store.trim_journal(0, Timestamp(0)), Err(StoreError::Latched)));
    assert!(matches!(store.close(), Err(StoreError::Latched)));
    assert!(matches!(reader.messages(&[]), Err(StoreError::Latched)), "for other threads too");
}

#[test]
fn a_reader_works_beside_the_writer_and_is_closed_with_it() {
    fn is_shared<T: Send + Sync + Clone>(_: &T) {}
    let (_, mut store, mut history) = fresh(9);
    let reader = store.reader();
    is_shared(&reader);
    let (ends, ended) = mpsc::channel::<()>();
    let reads = thread::spawn(move || {
        let mut seen = 0;
        while ended.try_recv() == Err(mpsc::TryRecvError::Empty) {
            let events = reader.events_since(Seq(0), usize::MAX).unwrap();
            assert!(events.len() >= seen, "what was there stays");
            assert!(events.iter().map(|e| e.seq.0).eq(1..=events.len() as u64));
            seen = events.len();
        }
        reader
    });
    for _ in 0..60 {
        history.steps(9);
        history.commit(&mut store).unwrap();
    }
    drop(ends);
    let reader = reads.join().unwrap();
    assert_eq!(reader.events_since(Seq(0), usize::MAX).unwrap(), history.now.journal);
    store.close().unwrap();
    assert!(matches!(reader.oldest_seq(), Err(StoreError::Closed)));
}

fn lost(history: &mut History) {
    history.emit(Event::WatcherLost { reason: "gone".to_owned() });
}

#[test]
fn the_journal_is_read_in_parts_and_trimmed_from_its_old_end() {
    let (_, mut store, mut history) = fresh(2);
    assert_eq!(store.oldest_seq().unwrap(), None);
    (0..10_000).for_each(|_| lost(&mut history));
    history.commit(&mut store).unwrap();
    let part = store.events_since(Seq(7), 3).unwrap();
    assert_eq!(part.iter().map(|e| e.seq.0).collect::<Vec<_>>(), [8, 9, 10]);
    assert_eq!(store.events_since(Seq(10_000), 3).unwrap(), []);
    assert_eq!(store.trim_journal(10_000, Timestamp(0)).unwrap(), 0);
    assert_eq!(store.floor().unwrap(), Seq(0));
    assert_eq!(store.trim_journal(100, Timestamp(0)).unwrap(), TRIM_MAX);
    let floor = store.floor().unwrap();
    assert_eq!(store.oldest_seq().unwrap(), Some(Seq(floor.0 + 1)));
    assert_eq!(store.events_since(Seq(1), 1).unwrap()[0].seq, Seq(floor.0 + 1));
    assert_eq!(store.oldest_seq().unwrap(), Some(Seq(4097)));
    while store.trim_journal(100, Timestamp(0)).unwrap() > 0 {}
    assert_eq!(store.oldest_seq().unwrap(), Some(Seq(9901)));
    assert_eq!(store.events_since(Seq(0), usize::MAX).unwrap().len(), 100);
    assert_eq!(store.message(MessageId(1)).unwrap(), None);
    while store.trim_journal(0, Timestamp(0)).unwrap() > 0 {}
    assert_eq!(store.oldest_seq().unwrap(), Some(Seq(10_000)), "the newest stays");
}

#[test]
fn the_journal_is_trimmed_by_age_and_hides_messages() {
    let (disk, mut store, mut history) = fresh(2);
    history.create();
    let mut at = vec![0; 2];
    for n in 0..300 {
        history.clock += 10;
        match n % 3 {
            0 => lost(&mut history),
            _ => drop(history.send()),
        }
        at.push(history.clock);
    }
    history.commit(&mut store).unwrap();
    for (place, keep) in [(50, 1000), (50, 252), (180, 252), (180, 122), (290, 0)] {
        store.trim_journal(keep, Timestamp(at[place])).unwrap();
        let first = if keep == 0 { 301 } else { place as u64 };
        assert_eq!(store.oldest_seq().unwrap(), Some(Seq(first)), "{place}");
        let left = store.events_since(Seq(0), usize::MAX).unwrap();
        assert_eq!(left, history.now.journal[usize::try_from(first).unwrap() - 1..]);
    }
    // A hidden message is not moved to the journal when it is forgotten.
    let hidden = *history.now.messages.keys().next().unwrap();
    let before = rows(&disk)[Table::Journal.name()];
    history.forget(hidden);
    history.commit(&mut store).unwrap();
    assert_eq!(rows(&disk)[Table::Journal.name()], before);
    assert_eq!(store.oldest_seq().unwrap(), Some(Seq(301)));
    history.now.journal.drain(..300);
    assert_kept(store, disk, &history);
}
