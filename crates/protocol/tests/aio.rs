//! Frames, connections and listeners on tokio.

use std::fs;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use interprocess::local_socket::tokio::prelude::*;
use protocol::aio::{FrameReader, check_peer, connect, from_fd, listen, read_payload, split, write_frame};
use protocol::frame::{CHUNK, FRAME_MAX, decode, encode};
use protocol::hello::VERSION;
use protocol::{ConnectError, FrameError, Hello, Refusal};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};

use crate::connection::{hello, welcome};

#[tokio::test]
async fn frames_go_through_and_an_end_between_them_is_clean() {
    let (mut here, mut there) = tokio::io::duplex(7);
    let sender = tokio::spawn(async move {
        write_frame(&mut here, &hello()).await.unwrap();
        write_frame(&mut here, &"x".repeat(100_000)).await.unwrap();
    });
    assert_eq!(decode::<Hello>(&read_payload(&mut there).await.unwrap().unwrap()).unwrap(), hello());
    assert_eq!(read_payload(&mut there).await.unwrap().unwrap().len(), 100_005);
    assert!(read_payload(&mut there).await.unwrap().is_none());
    sender.await.unwrap();
}

#[tokio::test]
async fn an_end_within_a_frame_is_an_error() {
    let frame = encode(&hello()).unwrap();
    for cut in 1..frame.len() {
        assert!(matches!(read_payload(&mut &frame[..cut]).await, Err(FrameError::Truncated)), "{cut}");
        let mut reader = FrameReader::new(&frame[..cut]);
        assert!(matches!(reader.next().await, Err(FrameError::Truncated)), "{cut}");
    }
}

/// Announces a long frame and ends. Records the largest buffer that it was given.
struct Boaster {
    prefix: &'static [u8],
    room: usize,
}

impl AsyncRead for Boaster {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        self.room = self.room.max(buf.remaining());
        let (now, later) = self.prefix.split_at(self.prefix.len().min(buf.remaining()));
        buf.put_slice(now);
        self.prefix = later;
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn memory_does_not_follow_what_a_peer_claims() {
    let mut most = Boaster { prefix: &[0, 0, 16, 0], room: 0 };
    assert!(matches!(read_payload(&mut most).await, Err(FrameError::Truncated)));
    assert!(most.room > 0 && most.room <= 2 * CHUNK, "{}", most.room);
    let mut reader = FrameReader::new(Boaster { prefix: &[0, 0, 16, 0], room: 0 });
    assert!(matches!(reader.next().await, Err(FrameError::Truncated)));
    for prefix in [&[0xff; 4], &[1, 0, 16, 0]] {
        let refused = read_payload(&mut Boaster { prefix, room: 0 }).await;
        assert!(matches!(refused, Err(FrameError::TooLong(length)) if length > FRAME_MAX));
    }
}

#[tokio::test]
async fn a_reader_that_is_cancelled_loses_nothing() {
    let frame = encode(&hello()).unwrap();
    let (mut here, there) = tokio::io::duplex(1000);
    let mut reader = FrameReader::new(there);
    for byte in &frame {
        {
            let mut next = pin!(reader.next());
            poll_fn(|context| {
                assert!(next.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
        }
        here.write_all(std::slice::from_ref(byte)).await.unwrap();
    }
    assert_eq!(decode::<Hello>(&reader.next().await.unwrap().unwrap()).unwrap(), hello());
    drop(here);
    assert!(reader.next().await.unwrap().is_none());
}

#[tokio::test]
async fn a_client_and_a_daemon_meet() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("poold.sock");
    let listener = listen(&path).unwrap();
    let daemon = async {
        let stream = listener.accept().await.unwrap();
        assert_eq!(check_peer(&stream).unwrap().pid, Some(std::process::id()));
        let (mut reader, mut writer) = split(stream);
        let said: Hello = decode(&read_payload(&mut reader).await.unwrap().unwrap()).unwrap();
        assert_eq!(said.check("default"), Ok(VERSION));
        write_frame(&mut writer, &welcome(VERSION)).await.unwrap();
        assert!(read_payload(&mut reader).await.unwrap().is_none(), "the client's half ended");
    };
    let client = async {
        let (_reader, writer, welcomed) = connect(&path, &hello()).await.unwrap();
        assert_eq!(Ok::<_, Refusal>(welcomed), welcome(VERSION));
        drop(writer);
    };
    tokio::join!(daemon, client);
}

#[tokio::test]
async fn a_listener_is_private_and_never_takes_a_place() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("poold.sock");
    let listener = listen(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(listen(&path).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    drop(listener);
    assert!(path.exists(), "the file may be a successor's by now");
    let error = connect(&path, &hello()).await.unwrap_err();
    assert!(matches!(error, ConnectError::NotThere(_)), "{error:?}");
}

#[tokio::test]
async fn a_listener_handed_over_is_checked() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("poold.sock");
    let listener = from_fd(OwnedFd::from(UnixListener::bind(&path).unwrap())).unwrap();
    drop(UnixStream::connect(&path).unwrap());
    assert!(listener.accept().await.is_ok());
    let (connected, _peer) = UnixStream::pair().unwrap();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let file = fs::File::open("/dev/null").unwrap();
    for fd in [OwnedFd::from(connected), tcp.into(), file.into()] {
        assert_eq!(from_fd(fd).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_queue_is_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("poold.sock");
    let (listener, waiting) = crate::connection::crowded(&path);
    let daemon = {
        let hello = hello();
        let mut client = pin!(connect(&path, &hello));
        poll_fn(|context| {
            assert!(client.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        let daemon = std::thread::spawn(move || {
            waiting.iter().for_each(|_| drop(listener.accept().unwrap()));
            crate::connection::Served::accept(&listener).greet();
        });
        client.await.unwrap();
        daemon
    };
    daemon.join().unwrap();
}
