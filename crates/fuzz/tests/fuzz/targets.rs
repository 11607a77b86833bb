//! The targets: what the programs read that others wrote.

use std::path::Path;

use agents::Adapter;
use agents::screen::{self, Patterns, Screen};
use agents::terminal_marks::{Scanner, title_wants_attention};
use agents::{install, payload, prompt, theme, transcript};
use daemon::config::Config;
use logs::emulator::Emulator;
use protocol::frame::{self, FrameBuffer};
use protocol::hello::HelloReply;
use protocol::hook::SpooledHook;
use protocol::reap::Candidate;
use protocol::tmux::TmuxState;
use protocol::{Call, Event, Frame, Hello, Message, Session, Stamped, Timestamp};

use crate::corpus;
use crate::engine::{Target, run};

const ADAPTERS: [Adapter; 6] =
    [Adapter::Claude, Adapter::Codex, Adapter::Gemini, Adapter::Opencode, Adapter::Aider, Adapter::None];

/// Keeps the compiler from leaving a result out.
fn used<T>(result: T) {
    drop(std::hint::black_box(result));
}

fn text(input: &[u8]) -> String {
    String::from_utf8_lossy(input).into_owned()
}

/// Frames of programs that connect. A length that a peer announces within a frame is believed up to eight
/// times the longest frame.
#[test]
fn frames() {
    fn read(input: &[u8]) {
        used(frame::decode::<Hello>(input));
        used(frame::decode::<HelloReply>(input));
        used(frame::decode::<Call>(input));
        used(frame::decode::<Frame>(input));
        // The same frames arrive in pieces.
        let mut buffer = FrameBuffer::default();
        for piece in input.chunks(7) {
            buffer.space().extend_from_slice(piece);
            while let Ok(Some(payload)) = buffer.take() {
                used(frame::decode::<Call>(&payload));
            }
        }
    }
    let memory = ((8 << 20) + (1 << 20), 64);
    run(Target {
        name: "frames",
        corpus: corpus::golden(),
        inputs: 10_000,
        longest: 256 << 10,
        memory,
        read,
    });
}

/// Records of the database.
#[test]
fn records() {
    fn read(input: &[u8]) {
        used(frame::decode_record::<Stamped>(input));
        used(frame::decode_record::<Event>(input));
        used(frame::decode_record::<TmuxState>(input));
        used(frame::decode_record::<Session>(input));
        used(frame::decode_record::<Message>(input));
        used(frame::decode_record::<Candidate>(input));
    }
    let memory = ((128 << 20) + (1 << 20), 64);
    run(Target {
        name: "records",
        corpus: corpus::golden(),
        inputs: 10_000,
        longest: 256 << 10,
        memory,
        read,
    });
}

/// Answers and notifications of tmux over a connection, and about a pane.
#[test]
fn answers_of_tmux() {
    fn read(input: &[u8]) {
        tmux::parsers::control(input);
        tmux::parsers::answers(input);
        tmux::parsers::frames(input);
    }
    let corpus = corpus::of("fuzz/corpus/control");
    run(Target { name: "control", corpus, inputs: 10_000, longest: 256 << 10, memory: (1 << 20, 64), read });
}

/// Output of programs on their terminals.
#[test]
fn output_of_programs() {
    fn read(input: &[u8]) {
        let (mut whole, mut pieces) = (Scanner::new(), Scanner::new());
        let at_once = whole.feed(input);
        let in_pieces: Vec<_> = input.chunks(5).flat_map(|piece| pieces.feed(piece)).collect();
        // A call returns only the newest mark of each kind, so the last ones are compared.
        assert_eq!(at_once.last(), in_pieces.last());
        let title = text(input);
        ADAPTERS.into_iter().for_each(|adapter| used(title_wants_attention(adapter, &title)));
    }
    let corpus = [corpus::of("fuzz/corpus/terminal"), corpus::of("agents/tests/screens")].concat();
    run(Target { name: "terminal", corpus, inputs: 5000, longest: 1 << 20, memory: (1 << 20, 64), read });
}

/// The same output, as lines for people.
#[test]
fn lines_of_logs() {
    fn read(input: &[u8]) {
        let mut emulator = Emulator::new(24, 80);
        used([emulator.write(input), emulator.end()].concat());
    }
    let repeats = ["\x1b[H", "x\x1b[65535b", "\x1b[\x0065535b", "\x1b[\x1b[65535b", "\x1b\x00[65535b"];
    let repeats = repeats.map(|text| text.as_bytes().to_vec()).to_vec();
    let corpus = [repeats, corpus::of("fuzz/corpus/terminal"), corpus::of("agents/tests/screens")].concat();
    run(Target { name: "logs", corpus, inputs: 1000, longest: 64 << 10, memory: (1 << 20, 256), read });
}

/// Captures of agents' screens.
#[test]
fn screens() {
    fn read(input: &[u8]) {
        let screen = Screen::new(input);
        let cursor = input.last_chunk::<2>().map_or((0, 0), |[x, y]| (u16::from(*x), u16::from(*y)));
        for adapter in ADAPTERS {
            used(screen::composer(adapter, &screen, cursor));
            used(screen::dialog(adapter, &screen));
            used(screen::is_working(adapter, &screen));
            used(screen::background(adapter, &screen));
            used(Patterns::of(adapter).read(&screen, cursor.1, Timestamp(0)));
        }
        let text = text(input);
        used(screen::strip_markers(&text));
        used(screen::choices(&text));
    }
    let corpus = [corpus::of("agents/tests/screens"), corpus::of("fuzz/corpus/screens")].concat();
    run(Target { name: "screens", corpus, inputs: 2000, longest: 256 << 10, memory: (4 << 20, 256), read });
}

/// The agents' own records of conversations, of which the end is read.
#[test]
fn transcripts() {
    fn read(input: &[u8]) {
        for adapter in ADAPTERS {
            used(transcript::prompts(adapter, input));
            used(transcript::turn_end(adapter, input));
            used(transcript::tokens(adapter, input));
            used(transcript::says_conversation_missing(adapter, input));
        }
    }
    let corpus = corpus::of("agents/tests/transcripts");
    run(Target { name: "transcripts", corpus, inputs: 300, longest: 1 << 20, memory: (4 << 20, 256), read });
}

/// Payloads that agents pass to their hooks, and the reports that hooks leave in files.
#[test]
fn hooks() {
    fn read(input: &[u8]) {
        for adapter in ADAPTERS {
            used(payload::parse(adapter, input));
        }
        used(serde_json::from_slice::<SpooledHook>(input));
        let text = text(input);
        used(payload::Operation::read(&text).resembles(&text));
        used(payload::last_skill(&text));
        for adapter in ADAPTERS {
            used(payload::is_outage(adapter, &text));
            let typed = prompt::escape(adapter, &text);
            used(prompt::compare(adapter, &typed, &text, false));
        }
    }
    let corpus = [corpus::of("agents/tests/payloads"), corpus::spooled()].concat();
    run(Target { name: "hooks", corpus, inputs: 5000, longest: 1 << 20, memory: (4 << 20, 256), read });
}

/// The configuration, and the files of agents and editors that are read or changed on request.
#[test]
fn configuration() {
    fn read(input: &[u8]) {
        let text = text(input);
        used(Config::parse(&text));
        for adapter in ADAPTERS {
            if let Ok(installed) = install::install(adapter, Some(&text), Path::new("/bin/poolctl")) {
                used(install::uninstall(adapter, Some(&installed)));
            }
        }
        used(theme::parse(input));
    }
    let corpus = corpus::of("fuzz/corpus/configuration");
    run(Target {
        name: "configuration",
        corpus,
        inputs: 1000,
        longest: 64 << 10,
        memory: (4 << 20, 1024),
        read,
    });
}

/// Exports that are imported.
#[test]
fn exports() {
    fn read(input: &[u8]) {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        used(store::maintenance::import(&dir.path().join("pool.redb"), &mut &*input));
    }
    let corpus = corpus::of("fuzz/corpus/export");
    run(Target { name: "exports", corpus, inputs: 200, longest: 256 << 10, memory: (64 << 20, 256), read });
}
