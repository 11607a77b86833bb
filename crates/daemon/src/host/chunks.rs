//! Long answers in pieces that fit a frame.

use protocol::{OsBytes, Reply, Response, frame};
use serde::Serialize;

/// Bytes of one piece: half a frame, so that one more item always fits.
const PIECE: usize = frame::FRAME_MAX / 2;

/// All pieces but the last, and the last.
pub(crate) fn split(response: Response) -> (Vec<Response>, Reply) {
    let mut pieces = match response {
        Response::Sessions(items) => groups(items).into_iter().map(Response::Sessions).collect(),
        Response::Messages(items) => groups(items).into_iter().map(Response::Messages).collect(),
        Response::Events(items) => groups(items).into_iter().map(Response::Events).collect(),
        Response::Candidates(items) => groups(items).into_iter().map(Response::Candidates).collect(),
        Response::Screen(OsBytes(bytes)) if bytes.len() > PIECE => {
            bytes.chunks(PIECE).map(|piece| Response::Screen(OsBytes(piece.to_vec()))).collect()
        }
        other => vec![other],
    };
    let last = pieces.pop().unwrap_or(Response::Done);
    (pieces, Ok(last))
}

/// At least one group, each under [`PIECE`] or of one item.
fn groups<T: Serialize>(items: Vec<T>) -> Vec<Vec<T>> {
    let mut groups = vec![Vec::new()];
    let mut size = 0;
    for item in items {
        let bytes = frame::encode_payload(&item).map_or(PIECE, |bytes| bytes.len());
        let last = groups.len() - 1;
        if size + bytes > PIECE && !groups[last].is_empty() {
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
    use super::*;

    #[test]
    fn nothing_is_lost_and_every_piece_fits() {
        let screen = vec![b'x'; 3 * PIECE + 5];
        let (parts, last) = split(Response::Screen(OsBytes(screen.clone())));
        let mut joined = Vec::new();
        for part in parts.into_iter().chain([last.unwrap()]) {
            assert!(frame::encode(&part).is_ok());
            let Response::Screen(OsBytes(bytes)) = part else { unreachable!() };
            joined.extend(bytes);
        }
        assert_eq!(joined, screen);
        assert_eq!(split(Response::Sessions(vec![])), (vec![], Ok(Response::Sessions(vec![]))));
        assert_eq!(groups(vec!["y".repeat(PIECE - 50); 4]).len(), 4);
    }
}
