//! The tmux server as a daemon reaches it.

use std::path::Path;

use protocol::{Name, OsBytes, PaneId, TmuxSessionId, Token};
use tmux::act::{Client, Lines, PaneUse};
use tmux::{
    Adopt, Answer, Call, Create, Created, Driver, Key, Listing, LogOptions, PaneRef, PaneSnapshot, Receipt,
    ServerRef, Size, TmuxError,
};

use super::SimTmux;
use crate::world::machine::Kind;

impl Driver for SimTmux {
    fn check_version(&self) -> Call<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn observe(&self) -> Call<'_, Listing> {
        self.call("observe", |server| async move { server.0.fake.observe().await })
    }

    fn create<'a>(&'a self, create: &'a Create) -> Call<'a, Created> {
        let (create, timeline) = (create.clone(), self.0.judge.timeline());
        self.call("create", move |server| async move {
            if !create.start_server && server.state().server.is_none() {
                return Err(TmuxError::NoServer);
            }
            let mut created = server.0.fake.create(&create).await?;
            let mut state = server.state();
            if state.server.is_none_or(|(known, _)| known != created.pane.server) {
                let process = server.0.machine.start_as(created.pane.server.pid, Kind::TmuxServer);
                state.server = Some((created.pane.server, process));
            }
            let init = server.0.machine.start(Kind::Init, Some(create.tag), false);
            created.pid = init.pid;
            server.0.fake.change(created.pane.pane, |pane| pane.pid = init.pid);
            state.inits.insert(created.pane.pane, (create.tag, init));
            state.sessions.insert(created.pane.pane, created.session);
            state.screens.clear(created.pane.pane);
            state.begun.push((create, created.pane, init));
            drop(state);
            server.0.judge.begun(created.pane.tag, timeline);
            server.note_active(created.session);
            server.0.typed.notify_waiters();
            Ok(created)
        })
    }

    fn capture(&self, pane: PaneRef, lines: Lines, ansi: bool) -> Call<'_, (Answer, Vec<u8>)> {
        self.call("capture", move |server| async move {
            let (answer, typed) = server.0.fake.capture(pane, lines, ansi).await?;
            Ok((answer, server.screen(pane.pane, typed)))
        })
    }

    fn snapshot(&self, pane: PaneRef) -> Call<'_, PaneSnapshot> {
        self.call("snapshot", move |server| async move {
            let shown = server.0.fake.snapshot(pane).await?;
            let (active_at, screen) = (server.active_at(pane.pane), server.screen(pane.pane, shown.screen));
            let typed_at = server.state().screens.typed_at(pane.pane).into_iter().collect();
            let never_attached = server.never_attached(pane.pane);
            Ok(PaneSnapshot { active_at, never_attached, typed_at, screen, ..shown })
        })
    }

    fn paste<'a>(&'a self, pane: PaneRef, token: Token, text: &'a [u8]) -> Call<'a, Answer> {
        let text = text.to_vec();
        let has_clock = self.state().climate.clock_steps == 0;
        self.0.judge.to_paste(pane.tag, &text, has_clock);
        self.call("paste", move |server| async move {
            let answer = server.0.fake.paste(pane, token, &text).await?;
            if answer == Answer::Done {
                server.note_typed(pane, &text, true);
            }
            Ok(answer)
        })
    }

    fn revoke(&self, pane: PaneRef, token: Token) -> Call<'_, (Answer, Receipt)> {
        self.call("revoke", move |server| async move { server.0.fake.revoke(pane, token).await })
    }

    fn input<'a>(&'a self, pane: PaneRef, bytes: &'a [u8]) -> Call<'a, Answer> {
        let bytes = bytes.to_vec();
        self.0.judge.to_input(pane.tag, &bytes);
        self.call("input", move |server| async move {
            let answer = server.0.fake.input(pane, &bytes).await?;
            if answer == Answer::Done {
                server.note_typed(pane, &bytes, false);
            }
            Ok(answer)
        })
    }

    fn enter(&self, pane: PaneRef) -> Call<'_, Answer> {
        self.call("enter", move |server| async move {
            let answer = server.0.fake.enter(pane).await?;
            if answer == Answer::Done {
                server.note_typed(pane, b"\r", false);
            }
            Ok(answer)
        })
    }

    fn enter_after(&self, pane: PaneRef, token: Token) -> Call<'_, Answer> {
        self.call("enter_after", move |server| async move {
            let answer = server.0.fake.enter_after(pane, token).await?;
            if answer == Answer::Done {
                server.note_typed(pane, b"\r", false);
            }
            Ok(answer)
        })
    }

    fn keys<'a>(&'a self, pane: PaneRef, keys: &'a [Key]) -> Call<'a, Answer> {
        let keys = keys.to_vec();
        self.call("keys", move |server| async move {
            let answer = server.0.fake.keys(pane, &keys).await;
            server.0.typed.notify_waiters();
            answer
        })
    }

    fn peek(&self, pane: PaneRef) -> Call<'_, Answer> {
        self.call("peek", move |server| async move { server.0.fake.peek(pane).await })
    }

    fn kill_pane(&self, pane: PaneRef) -> Call<'_, Answer> {
        self.call("kill_pane", move |server| async move {
            let is_attended = server.is_attended(pane).await;
            let answer = server.0.fake.kill_pane(pane).await?;
            if answer == Answer::Done {
                is_attended.then(|| server.0.judge.closed_attended(pane.tag));
                server.hang_up(pane);
            }
            Ok(answer)
        })
    }

    fn kill_unattended(&self, pane: PaneRef) -> Call<'_, Answer> {
        self.state().unsettled.insert(pane.tag);
        let call = self.call("kill_unattended", move |server| async move {
            let is_attended = server.is_attended(pane).await;
            let answer = server.0.fake.kill_unattended(pane).await?;
            if answer == Answer::Done {
                is_attended.then(|| server.0.judge.closed_attended(pane.tag));
                server.check_rest(pane.tag);
                server.hang_up(pane);
            }
            Ok(answer)
        });
        // Without an answer its caller goes on by what it knew before, and perhaps a reaper closes the pane much later.
        Box::pin(async move {
            let answer = call.await?;
            self.state().unsettled.remove(&pane.tag);
            Ok(answer)
        })
    }

    fn rename<'a>(&'a self, pane: PaneRef, session: TmuxSessionId, name: &'a Name) -> Call<'a, Answer> {
        let name = name.clone();
        self.call("rename", move |server| async move { server.0.fake.rename(pane, session, &name).await })
    }

    fn rename_left<'a>(
        &'a self,
        at: ServerRef,
        session: TmuxSessionId,
        (from, to): (&'a Name, &'a Name),
    ) -> Call<'a, ()> {
        let names = (from.clone(), to.clone());
        self.call("rename_left", move |server| async move {
            server.0.fake.rename_left(at, session, (&names.0, &names.1)).await
        })
    }

    fn release(&self, pane: PaneRef, is_adopted: bool) -> Call<'_, Answer> {
        self.call("release", move |server| async move { server.0.fake.release(pane, is_adopted).await })
    }

    fn adopt<'a>(
        &'a self,
        at: ServerRef,
        session: TmuxSessionId,
        pane: PaneId,
        adopt: &'a Adopt,
    ) -> Call<'a, Answer> {
        let (adopt, timeline) = (adopt.clone(), self.0.judge.timeline());
        self.call("adopt", move |server| async move {
            let answer = server.0.fake.adopt(at, session, pane, &adopt).await?;
            if answer == Answer::Done {
                server.adopted(pane, adopt.tag);
                server.0.judge.begun(adopt.tag, timeline);
                // The output of the adopted pane is piped into a log from now on, so the log is empty.
                drop(std::fs::create_dir_all(&adopt.log.dir));
                drop(std::fs::File::create(adopt.log.dir.join(protocol::logs::CURRENT)));
            }
            Ok(answer)
        })
    }

    fn reopen_log<'a>(&'a self, pane: PaneRef, _: &'a LogOptions, _: &'a Path) -> Call<'a, Answer> {
        self.call("reopen_log", move |server| async move { server.0.fake.peek(pane).await })
    }

    fn resize(&self, pane: PaneRef, size: Size) -> Call<'_, Answer> {
        self.call("resize", move |server| async move { server.0.fake.resize(pane, size).await })
    }

    fn clear_history(&self, pane: PaneRef) -> Call<'_, Answer> {
        self.call("clear_history", move |server| async move { server.0.fake.clear_history(pane).await })
    }

    fn disown(&self, pane: PaneRef) -> Call<'_, Answer> {
        self.call("disown", move |server| async move { server.0.fake.disown(pane).await })
    }

    fn clients(&self, pane: PaneRef, session: TmuxSessionId) -> Call<'_, Vec<Client>> {
        self.call("clients", move |server| async move { server.0.fake.clients(pane, session).await })
    }

    fn viewers<'a>(&'a self, at: ServerRef, terminal: &'a OsBytes) -> Call<'a, Option<Vec<Client>>> {
        let terminal = terminal.clone();
        self.call("viewers", move |server| async move { server.0.fake.viewers(at, &terminal).await })
    }

    fn pane_use(&self, at: ServerRef, pane: PaneId) -> Call<'_, PaneUse> {
        self.call("pane_use", move |server| async move { server.0.fake.pane_use(at, pane).await })
    }

    fn switch_client<'a>(&'a self, at: ServerRef, client: &'a str, to: TmuxSessionId) -> Call<'a, ()> {
        let client = client.to_owned();
        self.call(
            "switch_client",
            move |server| async move { server.0.fake.switch_client(at, &client, to).await },
        )
    }

    fn end_if_empty(&self) -> Call<'_, ()> {
        self.call("end_if_empty", |server| async move {
            server.0.fake.end_if_empty().await?;
            if matches!(server.0.fake.observe().await, Err(TmuxError::NoServer)) {
                let ended = server.state().server.take();
                if let Some((ended, process)) = ended {
                    server.0.judge.server_ended(ended);
                    server.0.machine.end(process);
                }
            }
            Ok(())
        })
    }
}
