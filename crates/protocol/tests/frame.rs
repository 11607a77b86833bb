//! The frame codec: values survive a round trip, and no input does harm.

use std::fmt::Debug;

use proptest::prelude::*;
use proptest::sample::Index;
use protocol::frame::{FRAME_MAX, FrameBuffer, decode, decode_record, encode, encode_record, length, wrap};
use protocol::hello::HelloReply;
use protocol::hook::SpooledHook;
use protocol::reap::Candidate;
use protocol::reply::Terminal;
use protocol::tmux::TmuxState;
use protocol::{Call, Event, Frame, FrameError, Hello, Message, Request, Session, SessionView, Stamped};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::any::any_of;

fn survives<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) -> Result<(), TestCaseError> {
    let frame = encode(value).unwrap();
    let (prefix, payload) = frame.split_first_chunk().unwrap();
    prop_assert_eq!(length(*prefix).unwrap(), payload.len());
    prop_assert_eq!(&decode::<T>(payload).unwrap(), value);
    prop_assert_eq!(&decode_record::<T>(&encode_record(value).unwrap()).unwrap(), value);
    let json = serde_json::to_string(value).unwrap();
    prop_assert_eq!(&serde_json::from_str::<T>(&json).unwrap(), value, "{}", json);
    Ok(())
}

/// False for a scope that names sessions which cannot be told apart as text, as those without a name.
fn has_scope_as_text(call: &Call) -> bool {
    let scope = match &call.request {
        Request::Register(asked) => &asked.scope,
        Request::Claim(asked) => &asked.scope,
        _ => return true,
    };
    scope.to_string().parse().as_ref() == Ok(scope)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_value_survives_the_wire_and_json(
        hello in any_of::<Hello>(), answer in any_of::<HelloReply>(),
        call in any_of::<Call>().prop_filter("names that no session can have", has_scope_as_text),
        frame in any_of::<Frame>(), stamped in any_of::<Stamped>(), state in any_of::<TmuxState>(),
        session in any_of::<Session>(), message in any_of::<Message>(), candidate in any_of::<Candidate>(),
        spooled in any_of::<SpooledHook>(), terminal in any_of::<Terminal>(), view in any_of::<SessionView>(),
    ) {
        survives(&hello)?;
        survives(&answer)?;
        survives(&call)?;
        survives(&frame)?;
        survives(&stamped)?;
        survives(&state)?;
        survives(&session)?;
        survives(&message)?;
        survives(&candidate)?;
        survives(&spooled)?;
        survives(&terminal)?;
        survives(&view)?;
    }

    #[test]
    fn any_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
        read_all(&bytes);
        drop(length([bytes.len() as u8, 0, 0, 0]));
    }

    #[test]
    fn a_changed_frame_is_refused_or_read(
        call in any_of::<Call>(), frame in any_of::<Frame>(),
        at in any::<Index>(), to in any::<u8>(), cut in any::<Index>(),
    ) {
        for mut bytes in [encode_record(&call).unwrap(), encode_record(&frame).unwrap()] {
            let place = at.index(bytes.len());
            bytes[place] = to;
            read_all(&bytes);
            read_all(&bytes[..cut.index(bytes.len())]);
        }
    }

    #[test]
    fn frames_come_out_of_a_stream_however_it_is_cut(
        calls in proptest::collection::vec(any_of::<Call>(), 1..5),
        cuts in proptest::collection::vec(1_usize..40, 1..50),
    ) {
        let stream: Vec<u8> = calls.iter().flat_map(|call| encode(call).unwrap()).collect();
        let (mut incoming, mut found, mut rest) = (FrameBuffer::default(), Vec::new(), &stream[..]);
        for cut in cuts.iter().cycle() {
            let (now, later) = rest.split_at(rest.len().min(*cut));
            incoming.space().extend_from_slice(now);
            while let Some(payload) = incoming.take().unwrap() {
                found.push(decode::<Call>(&payload).unwrap());
            }
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert!(incoming.is_empty());
        prop_assert_eq!(found, calls);
    }
}

fn read_all(bytes: &[u8]) {
    drop(decode::<Call>(bytes));
    drop(decode::<Frame>(bytes));
    drop(decode::<Hello>(bytes));
    drop(decode::<HelloReply>(bytes));
    drop(decode::<TmuxState>(bytes));
    drop(decode::<Event>(bytes));
}

#[test]
fn a_length_bomb_is_refused() {
    let mut bomb = vec![253];
    bomb.extend([0xff; 8]);
    assert!(decode::<String>(&bomb).is_err());
    assert!(decode::<Vec<u64>>(&bomb).is_err());
    assert!(decode::<Vec<Session>>(&bomb).is_err());
    // The same after the name of a session: id 1, no operation, no lock, `Show`.
    let mut call = vec![1, 0, 0];
    let show = encode_record(&Request::Show(protocol::SessionRef("x".to_owned()))).unwrap();
    call.push(show[0]);
    call.extend(bomb);
    assert!(matches!(decode::<Call>(&call), Err(FrameError::Decode(_))));
}

#[test]
fn lengths_are_checked_before_anything_is_read() {
    assert!(matches!(length([0; 4]), Err(FrameError::Empty)));
    assert!(matches!(length([0xff; 4]), Err(FrameError::TooLong(0xffff_ffff))));
    let most = u32::try_from(FRAME_MAX).unwrap();
    assert_eq!(length(most.to_le_bytes()).unwrap(), FRAME_MAX);
    assert!(matches!(length((most + 1).to_le_bytes()), Err(FrameError::TooLong(_))));
    let mut incoming = FrameBuffer::default();
    incoming.space().extend([0xff; 4]);
    assert!(matches!(incoming.take(), Err(FrameError::TooLong(_))));
}

#[test]
fn a_byte_too_many_is_refused() {
    let mut payload = encode_record(&Hello::new(protocol::Role::Client, "default", "test 1")).unwrap();
    payload.push(0);
    assert!(matches!(decode::<Hello>(&payload), Err(FrameError::Trailing(1))));
}

#[test]
fn what_is_too_long_is_not_sent() {
    let text = "x".repeat(FRAME_MAX);
    assert!(matches!(encode(&text), Err(FrameError::TooLong(_))));
    assert!(encode(&text[..FRAME_MAX - 5]).is_ok());
}

/// Values of one byte each on the wire and eight in memory: whatever is sent can be decoded.
#[test]
fn whatever_fits_a_frame_is_read() {
    let numbers = vec![7_u64; FRAME_MAX - 5];
    assert_eq!(decode::<Vec<u64>>(&encode_record(&numbers).unwrap()).unwrap(), numbers);
}

#[test]
fn a_frame_is_its_length_and_its_payload() {
    assert_eq!(wrap(b"abc"), b"\x03\0\0\0abc");
}
