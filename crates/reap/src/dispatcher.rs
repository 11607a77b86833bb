//! Requests candidates and starts their jobs. One connection requests; each job has its own, because a
//! lease lives as long as its connection.

use std::collections::HashSet;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use protocol::reap::{Candidate, ENDED_AT_ONCE};
use protocol::{Backoff, Tag};
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::error::Error;
use crate::link::Link;
use crate::reap_job::Devices;
use crate::retry_backoff::{JobResult, RetryBackoff};
use crate::{Options, reap_job};

/// Time that one request for a candidate waits.
const CANDIDATE_WAIT: Duration = Duration::from_secs(30);
/// First and longest pause while all candidates are held back; they double.
const IDLE_PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// Running jobs, and the back-off of earlier ones.
pub(crate) struct Dispatcher {
    options: Options,
    backoff: RetryBackoff,
    jobs: JoinSet<(Tag, JobResult)>,
    devices: Devices,
    all_gone: bool,
}

impl Dispatcher {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options,
            backoff: RetryBackoff::default(),
            jobs: JoinSet::new(),
            devices: Devices::default(),
            all_gone: true,
        }
    }

    /// Serves over one connection until it is lost. Jobs continue without it.
    pub(crate) async fn serve(&mut self) -> Result<Infallible, Error> {
        let mut link = Link::open(&self.options).await?;
        tracing::info!("serving");
        let mut idle = Backoff::new(IDLE_PAUSE.0, IDLE_PAUSE.1);
        loop {
            self.wait_for_jobs(ENDED_AT_ONCE - 1).await;
            let asked = Instant::now();
            if let Some(candidate) = self.pick(&mut link).await? {
                self.start_job(&candidate);
                idle.reset();
            } else if asked.elapsed() < CANDIDATE_WAIT {
                tokio::time::sleep(idle.pause()).await;
            }
        }
    }

    /// Reaps each candidate once. Returns true if all are gone.
    pub(crate) async fn once(&mut self) -> Result<bool, Error> {
        let mut link = Link::open(&self.options).await?;
        let mut tried = HashSet::new();
        loop {
            let named = link.candidates().await?;
            // A candidate that was tried and is named again is not gone.
            let is_empty = named.is_empty();
            let fresh: Vec<Candidate> =
                named.into_iter().filter(|candidate| tried.insert(candidate.tag)).collect();
            if fresh.is_empty() {
                return Ok(self.all_gone && is_empty);
            }
            for candidate in fresh {
                self.wait_for_jobs(ENDED_AT_ONCE - 1).await;
                self.start_job(&candidate);
            }
            self.finish().await;
        }
    }

    /// Waits for all jobs.
    pub(crate) async fn finish(&mut self) {
        self.wait_for_jobs(0).await;
    }

    /// Records finished jobs, and waits until at most `left` are running.
    async fn wait_for_jobs(&mut self, left: usize) {
        loop {
            let done = match self.jobs.try_join_next() {
                None if self.jobs.len() > left => self.jobs.join_next().await,
                done => done,
            };
            match done {
                Some(Ok((tag, result))) => {
                    self.all_gone &= !matches!(result, JobResult::Left | JobResult::Refused);
                    self.backoff.finished(tag, result, Instant::now());
                }
                Some(Err(error)) => {
                    self.all_gone = false;
                    tracing::error!(%error, "a job panicked or was cancelled");
                }
                None => return,
            }
        }
    }

    /// Selects the next candidate: the one that `poold` names, or any other if that is held back.
    async fn pick(&mut self, link: &mut Link) -> Result<Option<Candidate>, Error> {
        let Some(named) = link.next_candidate(CANDIDATE_WAIT).await? else { return Ok(None) };
        self.wait_for_jobs(ENDED_AT_ONCE).await;
        if self.backoff.may_begin(&named, Instant::now()) {
            return Ok(Some(named));
        }
        let mut all = link.candidates().await?.into_iter();
        Ok(all.find(|candidate| self.backoff.may_begin(candidate, Instant::now())))
    }

    fn start_job(&mut self, candidate: &Candidate) {
        let (session, tag) = (candidate.session, candidate.tag);
        let (options, devices) = (self.options.clone(), self.devices.clone());
        self.backoff.started(candidate);
        let job = async move { (tag, reap_job::run(&options, &devices, session, tag).await) };
        self.jobs.spawn(job.instrument(tracing::info_span!("reap", %session, %tag)));
    }
}
