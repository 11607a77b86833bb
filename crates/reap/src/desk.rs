//! Asks for candidates and hands them out. One connection asks; each job has its own, because a
//! lease lives as long as its connection.

use std::collections::HashSet;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use protocol::Tag;
use protocol::reap::Candidate;
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::cycle::Devices;
use crate::error::Error;
use crate::link::Link;
use crate::memory::{End, Memory};
use crate::{Options, cycle};

/// So many jobs at a time: each waits most of its time for processes to end by themselves.
const AT_ONCE: usize = 64;
/// How long one question for a candidate waits.
const WAIT: Duration = Duration::from_secs(30);
/// The first and the longest pause where all candidates are to be left alone for now; they double.
const IDLE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// The jobs, and what is known of earlier ones.
pub(crate) struct Desk {
    options: Options,
    memory: Memory,
    jobs: JoinSet<(Tag, End)>,
    devices: Devices,
    all_gone: bool,
}

impl Desk {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options,
            memory: Memory::default(),
            jobs: JoinSet::new(),
            devices: Devices::default(),
            all_gone: true,
        }
    }

    /// Serves over one connection until that is lost. Jobs go on without it.
    pub(crate) async fn serve(&mut self) -> Result<Infallible, Error> {
        let mut link = Link::open(&self.options).await?;
        tracing::info!("serving");
        let mut pause = IDLE.0;
        loop {
            self.make_room(AT_ONCE - 1).await;
            let asked = Instant::now();
            if let Some(candidate) = self.pick(&mut link).await? {
                self.begin(&candidate);
                pause = IDLE.0;
            } else if asked.elapsed() < WAIT {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(IDLE.1);
            }
        }
    }

    /// Works what there is, each once. Whether all of it is gone.
    pub(crate) async fn once(&mut self) -> Result<bool, Error> {
        let mut link = Link::open(&self.options).await?;
        let mut tried = HashSet::new();
        loop {
            let named = link.candidates().await?.into_iter();
            let fresh: Vec<Candidate> = named.filter(|candidate| tried.insert(candidate.tag)).collect();
            if fresh.is_empty() {
                return Ok(self.all_gone);
            }
            for candidate in fresh {
                self.make_room(AT_ONCE - 1).await;
                self.begin(&candidate);
            }
            self.finish().await;
        }
    }

    /// Lets all jobs finish.
    pub(crate) async fn finish(&mut self) {
        self.make_room(0).await;
    }

    /// Takes note of jobs that are done, and waits until at most so many are not.
    async fn make_room(&mut self, left: usize) {
        loop {
            let done = match self.jobs.try_join_next() {
                None if self.jobs.len() > left => self.jobs.join_next().await,
                done => done,
            };
            match done {
                Some(Ok((tag, end))) => {
                    self.all_gone &= end != End::Left;
                    self.memory.end(tag, end, Instant::now());
                }
                Some(Err(error)) => tracing::error!(%error, "a job was lost"),
                None => return,
            }
        }
    }

    /// A candidate to begin with. `poold` names one; where that is to be left alone for now, any
    /// other that it has is as good.
    async fn pick(&mut self, link: &mut Link) -> Result<Option<Candidate>, Error> {
        let Some(named) = link.next_candidate(WAIT).await? else { return Ok(None) };
        self.make_room(AT_ONCE).await;
        if self.memory.may_begin(named.tag, Instant::now()) {
            return Ok(Some(named));
        }
        let mut all = link.candidates().await?.into_iter();
        Ok(all.find(|candidate| self.memory.may_begin(candidate.tag, Instant::now())))
    }

    fn begin(&mut self, candidate: &Candidate) {
        let (session, tag) = (candidate.session, candidate.tag);
        let (options, devices) = (self.options.clone(), self.devices.clone());
        self.memory.begin(tag);
        let job = async move { (tag, cycle::run(&options, &devices, session, tag).await) };
        self.jobs.spawn(job.instrument(tracing::info_span!("reap", %session, %tag)));
    }
}
