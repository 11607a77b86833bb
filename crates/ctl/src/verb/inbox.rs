//! `inbox`: everything that waits for a person, each item with the command to run next.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use protocol::reply::InboxItem;
use protocol::{Request, Timestamp};
use serde_json::{Value, json};

use crate::calls::expected;
use crate::show::time::{rfc3339, when};
use crate::show::{escape, hint, out, time};
use crate::{Client, Context, Error, poll};

/// Interval of `--watch`.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Show everything that waits for a person, with the command to run next
#[derive(Debug, clap::Args)]
#[command(after_help = KINDS)]
pub(crate) struct Args {
    /// Continue with new items
    #[arg(short, long)]
    watch: bool,
}

const KINDS: &str = "Kinds:\n\
    \x20 permission, question, dialog, bell   an agent asks\n\
    \x20 message       a prompt may not have arrived as it was sent\n\
    \x20 outage        a message was tried often, each time while its kind failed for all\n\
    \x20 worker        messages wait, and the worker that should take them does not\n\
    \x20 unconfirmed   a prompt was typed, and was not confirmed within 30 s\n\
    \x20 held_back     a prompt waits for a person at the terminal: a draft, a dialog, copy mode\n\
    \x20 login         the agent's user is logged out\n\
    \x20 failing       several messages of a kind failed in a row\n\
    \x20 exhausted     a session ended too often, or is that of a copied pool: it is not started automatically\n\
    \x20 over          a session is stopped, and prompts wait for it\n\
    \x20 failed        a session failed to start that ran before, five times in a row, or while prompts wait\n\
    \x20 slot          a session waits for a slot, and those that run keep theirs\n\
    \x20 lost          sessions were lost with the tmux server or the machine; one item for all";

pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let mut client = context.client();
    let items = ask(&mut client)?;
    items.iter().try_for_each(|item| print(context, item))?;
    if items.is_empty() && !args.watch && !context.style.json {
        context.say("nothing waits for you")?;
    }
    if args.watch {
        watch(context, &items)?;
    }
    Ok(())
}

/// Prints new items until it is interrupted, or its time limit is over.
fn watch(context: &Context, items: &[InboxItem]) -> Result<(), Error> {
    let mut shown: BTreeSet<Key> = items.iter().map(key).collect();
    let (mut client, deadline) =
        (context.unlimited_client(), context.waiting_limit().map(|limit| Instant::now() + limit));
    loop {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(Error::timeout("timed out"));
        }
        poll::pause(left.map_or(POLL_INTERVAL, |left| left.min(POLL_INTERVAL)))?;
        client.set_limit(left);
        let items = ask(&mut client)?;
        items.iter().filter(|item| !shown.contains(&key(item))).try_for_each(|item| print(context, item))?;
        shown = items.iter().map(key).collect();
    }
}

fn ask(client: &mut Client) -> Result<Vec<InboxItem>, Error> {
    expected!(client.ask(Request::Inbox)?, Inbox)
}

/// The identity of an item between two requests.
type Key = (protocol::SessionId, String, Timestamp, String);

fn key(item: &InboxItem) -> Key {
    (item.session, item.kind.clone(), item.since, item.next.clone())
}

fn print(context: &Context, item: &InboxItem) -> Result<(), Error> {
    if context.style.json {
        return out::json(&document(item));
    }
    let (name, since) =
        (context.style.paint(1, &item.name.for_people()), when(item.since, context.style, time::now()));
    out::line(&format!("{name}  {}  {since}  {}", item.kind, escape::line(&item.text)))?;
    out::line(&format!("    {}", hint::command(&item.next)))
}

fn document(item: &InboxItem) -> Value {
    json!({
        "session": item.session,
        "name": item.name,
        "kind": item.kind,
        "since": rfc3339(item.since),
        "text": item.text,
        "next": hint::command(&item.next),
    })
}

#[cfg(test)]
mod tests {
    use protocol::SessionId;

    use super::*;
    use crate::manual::contract_tests;

    #[test]
    fn an_item_has_every_key_of_the_contract() {
        let item = InboxItem {
            session: SessionId(1),
            name: "web".parse().unwrap(),
            kind: "bell".into(),
            since: Timestamp(0),
            text: "it rang".into(),
            next: "poolctl attach web".into(),
        };
        let value = document(&item);
        contract_tests::check(&value, "JSON of the inbox");
        assert_eq!(
            (&value["session"], &value["since"]),
            (&json!("sess_1"), &json!("1970-01-01T00:00:00.000Z"))
        );
    }
}
