//! Frames of tmux's socket protocol, version 8. The header has two forms, and both ends must use the same
//! one; the protocol does not tell which one a server speaks.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use crate::error::TmuxError;

/// `PROTOCOL_VERSION` of every tmux from 3.2 to 3.8 (tmux-protocol.h, tmux.h).
const VERSION: u32 = 8;

/// `MAX_IMSGSIZE` (imsg.h): header and data of one frame, in bytes.
pub(crate) const MAX: usize = 16_384;

/// Size of a header of either form, in bytes.
pub(crate) const HEADER: usize = 16;

/// Flag of a [`Form::Wide`] header: a descriptor accompanies the frame (`IMSG_FD_MARK`).
const WIDE_FD: u32 = 1 << 31;

/// The same flag in a [`Form::Narrow`] header (`IMSGF_HASFD`).
const NARROW_FD: u16 = 1;

/// Kinds of frames (tmux-protocol.h).
pub(crate) mod kind {
    pub(crate) const VERSION: u32 = 12;
    pub(crate) const TERM: u32 = 101;
    pub(crate) const TTY_NAME: u32 = 102;
    pub(crate) const STDIN: u32 = 104;
    pub(crate) const ENVIRON: u32 = 105;
    pub(crate) const DONE: u32 = 106;
    pub(crate) const CLIENT_PID: u32 = 107;
    pub(crate) const CWD: u32 = 108;
    pub(crate) const STDOUT: u32 = 110;
    pub(crate) const LONG_FLAGS: u32 = 111;
    pub(crate) const COMMAND: u32 = 200;
    pub(crate) const EXIT: u32 = 203;
    /// The frames that end a client: detach, exit and shutdown in their variants.
    pub(crate) const ENDS: [u32; 5] = [201, 202, EXIT, 204, 210];
    pub(crate) const READ_OPEN: u32 = 300;
    pub(crate) const READ: u32 = 301;
    pub(crate) const READ_DONE: u32 = 302;
    pub(crate) const WRITE_OPEN: u32 = 303;
    pub(crate) const WRITE: u32 = 304;
    pub(crate) const WRITE_READY: u32 = 305;
}

/// `CLIENT_UTF8` (tmux.h): output is not reduced to ASCII.
pub(crate) const UTF8: u64 = 0x1_0000;

/// Encoding of the length and of the descriptor flag in a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Up to tmux 3.5a: a 16-bit length and a 16-bit field of flags.
    Narrow,
    /// From tmux 3.6 on: a 32-bit length whose highest bit is the flag.
    Wide,
}

/// One frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// Kind: a number of tmux-protocol.h.
    pub(crate) kind: u32,
    /// True if a descriptor accompanies the frame.
    pub(crate) carries: bool,
    pub(crate) data: &'a [u8],
}

/// Appends an encoded frame to `into`.
///
/// # Errors
/// [`TmuxError::TooLong`] for more data than fits into a frame.
pub(crate) fn encode(form: Form, frame: Frame<'_>, into: &mut Vec<u8>) -> Result<(), TmuxError> {
    let length = HEADER + frame.data.len();
    let narrow = u16::try_from(length).ok().filter(|_| length <= MAX).ok_or(TmuxError::TooLong(MAX))?;
    into.extend(frame.kind.to_ne_bytes());
    match form {
        Form::Narrow => {
            into.extend(narrow.to_ne_bytes());
            into.extend((if frame.carries { NARROW_FD } else { 0 }).to_ne_bytes());
        }
        Form::Wide => {
            let mark = if frame.carries { WIDE_FD } else { 0 };
            into.extend((u32::from(narrow) | mark).to_ne_bytes());
        }
    }
    into.extend(VERSION.to_ne_bytes());
    into.extend(std::process::id().to_ne_bytes());
    into.extend_from_slice(frame.data);
    Ok(())
}

/// Encodes the data of [`kind::COMMAND`]: the number of words, then each word with a terminating zero.
pub(crate) fn words(command: &[OsString]) -> Vec<u8> {
    let count = i32::try_from(command.len()).unwrap_or(i32::MAX);
    let mut data = count.to_ne_bytes().to_vec();
    for word in command {
        data.extend_from_slice(word.as_bytes());
        data.push(0);
    }
    data
}

/// Decodes the first frame, and returns it with its length in bytes; `None` if it is incomplete.
///
/// # Errors
/// [`TmuxError::Output`] for an impossible length.
pub(crate) fn decode(form: Form, bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, TmuxError> {
    let Some((header, _)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
    let [k0, k1, k2, k3, a, b, c, d, ..] = *header;
    let (length, carries) = match form {
        Form::Narrow => {
            let flags = u16::from_ne_bytes([c, d]);
            (u32::from(u16::from_ne_bytes([a, b])), flags & NARROW_FD != 0)
        }
        Form::Wide => {
            let length = u32::from_ne_bytes([a, b, c, d]);
            (length & !WIDE_FD, length & WIDE_FD != 0)
        }
    };
    let length = usize::try_from(length).ok().filter(|length| (HEADER..=MAX).contains(length));
    let length = length.ok_or_else(|| TmuxError::Output("a frame of an impossible length".to_owned()))?;
    let data = bytes.get(HEADER..length);
    Ok(data.map(|data| (Frame { kind: u32::from_ne_bytes([k0, k1, k2, k3]), carries, data }, length)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn form() -> impl Strategy<Value = Form> {
        prop_oneof![Just(Form::Narrow), Just(Form::Wide)]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            form in form(), kind: u32, carries: bool,
            data in prop::collection::vec(any::<u8>(), 0..=MAX - HEADER), more: Vec<u8>, cut: usize,
        ) {
            let frame = Frame { kind, carries, data: &data };
            let mut bytes = Vec::new();
            encode(form, frame, &mut bytes).unwrap();
            let length = bytes.len();
            prop_assert_eq!(decode(form, &bytes[..cut % length]).unwrap(), None);
            bytes.extend(more);
            prop_assert_eq!(decode(form, &bytes).unwrap(), Some((frame, length)));
        }

        #[test]
        fn bytes_never_panic_and_frames_are_bounded(form in form(), bytes: Vec<u8>) {
            if let Ok(Some((_, length))) = decode(form, &bytes) {
                prop_assert!((HEADER..=MAX).contains(&length) && length <= bytes.len());
            }
        }
    }

    #[test]
    fn the_headers_are_those_of_tmux() {
        let header = |form, carries| {
            let mut bytes = Vec::new();
            encode(form, Frame { kind: 104, carries, data: b"xy" }, &mut bytes).unwrap();
            bytes[..12].to_vec()
        };
        let expect = |length: [u8; 4]| [&104u32.to_ne_bytes()[..], &length, &8u32.to_ne_bytes()].concat();
        let narrow = |flags: u16| [18u16.to_ne_bytes(), flags.to_ne_bytes()].concat().try_into().unwrap();
        assert_eq!(header(Form::Narrow, false), expect(narrow(0)));
        assert_eq!(header(Form::Narrow, true), expect(narrow(1)));
        assert_eq!(header(Form::Wide, true), expect((18u32 | 0x8000_0000).to_ne_bytes()));
    }

    #[test]
    fn too_much_is_refused() {
        let data = vec![0; MAX - HEADER + 1];
        let frame = Frame { kind: 1, carries: false, data: &data };
        assert!(encode(Form::Wide, frame, &mut Vec::new()).is_err());
        let mut bytes = [0; HEADER];
        bytes[4..8].copy_from_slice(&0x0001_0010_u32.to_ne_bytes());
        assert!(decode(Form::Wide, &bytes).is_err(), "the other form with a descriptor");
    }
}
