//! Splits long replies into chunks that fit a frame.

use protocol::{OsBytes, Reply, Response, frame};
use serde::Serialize;

/// Maximum size of a chunk in bytes: half a frame, so that one more item always fits.
const CHUNK_MAX: usize = frame::FRAME_MAX / 2;

/// Splits a response. Returns all chunks but the last, and the last one as the reply.
pub(crate) fn split(response: Response) -> (Vec<Response>, Reply) {
    let mut chunks = match response {
        Response::Sessions(items) => groups(items).into_iter().map(Response::Sessions).collect(),
        Response::Messages(items) => groups(items).into_iter().map(Response::Messages).collect(),
        Response::Events(items) => groups(items).into_iter().map(Response::Events).collect(),
        Response::Candidates(items) => groups(items).into_iter().map(Response::Candidates).collect(),
        Response::Generators(items) => groups(items).into_iter().map(Response::Generators).collect(),
        Response::Usage(items) => groups(items).into_iter().map(Response::Usage).collect(),
        Response::Inbox(items) => groups(items).into_iter().map(Response::Inbox).collect(),
        Response::Screen(OsBytes(bytes)) if bytes.len() > CHUNK_MAX => {
            bytes.chunks(CHUNK_MAX).map(|chunk| Response::Screen(OsBytes(chunk.to_vec()))).collect()
        }
        other => vec![other],
    };
    let last = chunks.pop().unwrap_or(Response::Done);
    (chunks, Ok(last))
}

/// Groups items, each group under [`CHUNK_MAX`] or of one item. Returns at least one group.
fn groups<T: Serialize>(items: Vec<T>) -> Vec<Vec<T>> {
    let mut groups = vec![Vec::new()];
    let mut size = 0;
    for item in items {
        let bytes = frame::encode_payload(&item).map_or(CHUNK_MAX, |bytes| bytes.len());
        let last = groups.len() - 1;
        if size + bytes > CHUNK_MAX && !groups[last].is_empty() {
            groups.push(vec![item]);
            size = bytes;
        } else {
            groups[last].push(item);
            size += bytes;
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use protocol::reply::{GeneratorView, InboxItem, UsageView};
    use protocol::usage::Usage;
    use protocol::{SessionId, Timestamp};

    use super::*;

    /// Returns an item often enough for several frames.
    fn many<T: Clone>(item: T) -> Vec<T> {
        vec![item; 20_000]
    }

    #[test]
    fn lists_longer_than_a_frame_come_back_from_their_parts() {
        let (session, name) = (SessionId(1), "n".repeat(64).parse::<protocol::Name>().unwrap());
        let generator = GeneratorView {
            session: Some(session),
            name: Some(name.clone()),
            sessions: "all".to_owned(),
            role: "agent".to_owned(),
            ..GeneratorView::default()
        };
        let item = InboxItem {
            session,
            name: name.clone(),
            kind: "bell".to_owned(),
            since: Timestamp(1),
            text: "text".to_owned(),
            next: "next".to_owned(),
        };
        let usage = UsageView { session, name, usage: Usage::default(), stuck: Vec::new() };
        let is_whole = |whole: &Response| {
            let (parts, last) = split(whole.clone());
            let parts: Vec<Response> = parts.into_iter().chain([last.unwrap()]).collect();
            let fits = parts.len() > 1 && parts.iter().all(|part| frame::encode(part).is_ok());
            let mut parts = parts.into_iter();
            let mut joined = parts.next().unwrap();
            fits && parts.all(|part| joined.append(part)) && joined == *whole
        };
        let long = [
            ("generators", Response::Generators(many(generator))),
            ("inbox", Response::Inbox(many(item))),
            ("usage", Response::Usage(many(usage))),
        ];
        let broken = long.iter().filter(|(_, whole)| !is_whole(whole)).map(|(name, _)| *name);
        assert_eq!(broken.collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn nothing_is_lost_and_every_chunk_fits() {
        let screen = vec![b'x'; 3 * CHUNK_MAX + 5];
        let (parts, last) = split(Response::Screen(OsBytes(screen.clone())));
        let mut joined = Vec::new();
        for part in parts.into_iter().chain([last.unwrap()]) {
            assert!(frame::encode(&part).is_ok());
            let Response::Screen(OsBytes(bytes)) = part else { unreachable!() };
            joined.extend(bytes);
        }
        assert_eq!(joined, screen);
        assert_eq!(split(Response::Sessions(vec![])), (vec![], Ok(Response::Sessions(vec![]))));
        assert_eq!(groups(vec!["y".repeat(CHUNK_MAX - 50); 4]).len(), 4);
    }
}
