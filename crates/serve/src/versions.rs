//! The life cycle of a model's versions.
//!
//! A synchronous state machine: callers say which versions are wanted and how its actions ended,
//! and it returns the next actions. It reads no file, starts no thread and has no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use thalweg_tensor::Error;

use crate::policy::StateProto;

/// The state of a version, as in TensorFlow Serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Found, not loading yet.
    Start,
    /// Being loaded and warmed up, or waiting for a retry.
    Loading,
    /// Available for requests.
    Available,
    /// Not available for new requests; requests in flight end.
    Unloading,
    /// Unloaded, or failed for good.
    End,
}

impl Stage {
    /// The state in messages.
    pub(crate) fn to_proto(self) -> StateProto {
        match self {
            Stage::Start => StateProto::Start,
            Stage::Loading => StateProto::Loading,
            Stage::Available => StateProto::Available,
            Stage::Unloading => StateProto::Unloading,
            Stage::End => StateProto::End,
        }
    }
}

/// The order of loading and unloading when versions change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transition {
    /// Availability-preserving: a version is unloaded only after a wanted one is available. There
    /// is always a version, and for a while there are two.
    #[default]
    KeepAvailable,
    /// Resource-preserving: a version is loaded only after unwanted ones are unloaded. There are
    /// never two, and for a while there is none.
    KeepResources,
}

/// Retries of loading.
#[derive(Clone, Copy, Debug)]
pub struct Attempts {
    /// The number of retries after the first attempt.
    pub retries: u32,
    /// The interval of retries.
    pub interval: Duration,
}

impl Default for Attempts {
    fn default() -> Self {
        Attempts { retries: 5, interval: Duration::from_secs(60) }
    }
}

/// An action for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Load this version, then call [`Versions::loaded`].
    Load(i64),
    /// Refuse new requests, wait for those in flight, free the memory, then call
    /// [`Versions::unloaded`].
    Unload(i64),
}

/// The state of one version.
#[derive(Clone, Debug)]
pub struct Version {
    /// Its stage.
    pub stage: Stage,
    /// The error of the last attempt to load it.
    pub error: Option<Error>,
    is_wanted: bool,
    failures: u32,
    /// When loading is retried.
    next_try: Option<Duration>,
}

/// The versions of one model.
#[derive(Clone, Debug, Default)]
pub struct Versions {
    versions: BTreeMap<i64, Version>,
    transition: Transition,
    attempts: Attempts,
}

/// The number of ended versions that are remembered, so that their status can be queried.
const ENDED_MAX: usize = 32;

impl Versions {
    /// A model without versions.
    pub fn new(transition: Transition, attempts: Attempts) -> Versions {
        Versions { versions: BTreeMap::new(), transition, attempts }
    }

    /// All known versions.
    pub fn all(&self) -> &BTreeMap<i64, Version> {
        &self.versions
    }

    /// Whether every wanted version is available or has failed for good.
    pub fn is_settled(&self) -> bool {
        self.versions.values().filter(|v| v.is_wanted).all(|v| match v.stage {
            Stage::Available => true,
            Stage::End => v.error.is_some(),
            _ => false,
        })
    }

    /// Sets the wanted versions.
    pub fn want(&mut self, wanted: &BTreeSet<i64>) {
        for (number, version) in &mut self.versions {
            version.is_wanted = wanted.contains(number);
            // A version that failed for good is retried only after it was removed and found again. An unloaded
            // version that is wanted again is loaded again, as is one that was dropped before loading began.
            if !version.is_wanted && version.stage == Stage::End {
                version.failures = 0;
            }
            if version.is_wanted && version.stage == Stage::End && version.failures == 0 {
                version.stage = Stage::Start;
                version.error = None;
            }
            if !version.is_wanted && version.stage == Stage::Start {
                version.stage = Stage::End;
            }
        }
        for &number in wanted {
            self.versions.entry(number).or_insert(Version {
                stage: Stage::Start,
                error: None,
                is_wanted: true,
                failures: 0,
                next_try: None,
            });
        }
        self.evict_ended();
    }

    /// Records the end of loading.
    pub fn loaded(&mut self, number: i64, result: Result<(), Error>, now: Duration) {
        let Some(version) = self.versions.get_mut(&number) else { return };
        if version.stage != Stage::Loading {
            return;
        }
        let Err(error) = result else {
            version.stage = Stage::Available;
            version.error = None;
            version.failures = 0;
            return;
        };
        version.error = Some(error);
        version.failures += 1;
        if !version.is_wanted {
            // It is loaded again if it is found again.
            version.failures = 0;
            version.stage = Stage::End;
        } else if version.failures > self.attempts.retries {
            version.stage = Stage::End;
        } else {
            version.next_try = Some(now.saturating_add(self.attempts.interval));
        }
    }

    /// Retries a version at once because its files have changed.
    pub fn changed(&mut self, number: i64) {
        let Some(version) = self.versions.get_mut(&number) else { return };
        let has_failed = version.error.is_some() && version.is_wanted;
        let waits = version.stage == Stage::Loading && version.next_try.is_some();
        if has_failed && (waits || version.stage == Stage::End) {
            version.stage = Stage::Start;
            version.failures = 0;
            version.next_try = None;
        }
    }

    /// Records the end of unloading.
    pub fn unloaded(&mut self, number: i64) {
        if let Some(version) = self.versions.get_mut(&number)
            && version.stage == Stage::Unloading
        {
            version.stage = Stage::End;
            if version.is_wanted {
                // Wanted again while it was being unloaded.
                version.stage = Stage::Start;
            }
        }
        self.evict_ended();
    }

    /// The next actions; the caller runs them.
    pub fn actions(&mut self, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        let has_wanted = self.versions.values().any(|v| v.is_wanted);
        let serves_wanted =
            self.versions.values().any(|v| v.is_wanted && v.stage == Stage::Available);
        let may_unload = match self.transition {
            Transition::KeepAvailable => serves_wanted || !has_wanted,
            Transition::KeepResources => true,
        };
        for (&number, version) in &mut self.versions {
            if may_unload && !version.is_wanted && version.stage == Stage::Available {
                version.stage = Stage::Unloading;
                actions.push(Action::Unload(number));
            }
            // It waited for a retry and is not wanted any more.
            if !version.is_wanted && version.stage == Stage::Loading && version.next_try.is_some() {
                version.next_try = None;
                version.stage = Stage::End;
            }
        }
        let takes_room = |v: &Version| {
            !v.is_wanted && matches!(v.stage, Stage::Loading | Stage::Available | Stage::Unloading)
        };
        let must_wait =
            self.transition == Transition::KeepResources && self.versions.values().any(takes_room);
        if must_wait {
            return actions;
        }
        for (&number, version) in &mut self.versions {
            let is_due = match version.stage {
                Stage::Start => true,
                Stage::Loading => version.next_try.is_some_and(|at| at <= now),
                _ => false,
            };
            if version.is_wanted && is_due {
                version.stage = Stage::Loading;
                version.next_try = None;
                actions.push(Action::Load(number));
            }
        }
        actions
    }

    fn evict_ended(&mut self) {
        let ended = |v: &Version| v.stage == Stage::End && !v.is_wanted;
        let mut excess = self.versions.values().filter(|v| ended(v)).count();
        self.versions.retain(|_, v| {
            let goes = ended(v) && excess > ENDED_MAX;
            excess -= usize::from(goes);
            !goes
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_tensor::err;

    const NOW: Duration = Duration::ZERO;

    fn wants(versions: &mut Versions, wanted: &[i64]) {
        versions.want(&wanted.iter().copied().collect());
    }

    fn stages(versions: &Versions) -> Vec<(i64, Stage)> {
        versions.all().iter().map(|(&n, v)| (n, v.stage)).collect()
    }

    #[test]
    fn availability_is_kept() {
        let mut v = Versions::default();
        wants(&mut v, &[1]);
        assert!(!v.is_settled());
        assert_eq!(v.actions(NOW), [Action::Load(1)]);
        assert_eq!(v.actions(NOW), []);
        v.loaded(1, Ok(()), NOW);
        assert!(v.is_settled());
        wants(&mut v, &[2]);
        assert_eq!(v.actions(NOW), [Action::Load(2)]);
        // The old version stays until the new one is available, also while the new one fails.
        v.loaded(2, Err(err!(DataLoss, "no")), NOW);
        assert_eq!(v.actions(NOW), []);
        assert_eq!(stages(&v), [(1, Stage::Available), (2, Stage::Loading)]);
        assert_eq!(v.actions(Duration::from_secs(61)), [Action::Load(2)]);
        v.loaded(2, Ok(()), NOW);
        assert_eq!(v.actions(NOW), [Action::Unload(1)]);
        v.unloaded(1);
        assert_eq!(stages(&v), [(1, Stage::End), (2, Stage::Available)]);
        // Without a wanted version the last one is unloaded too.
        wants(&mut v, &[]);
        assert_eq!(v.actions(NOW), [Action::Unload(2)]);
    }

    #[test]
    fn resources_are_kept() {
        let mut v = Versions::new(Transition::KeepResources, Attempts::default());
        wants(&mut v, &[1, 2]);
        assert_eq!(v.actions(NOW), [Action::Load(1), Action::Load(2)]);
        v.loaded(1, Ok(()), NOW);
        v.loaded(2, Ok(()), NOW);
        wants(&mut v, &[2, 3]);
        assert_eq!(v.actions(NOW), [Action::Unload(1)]);
        assert_eq!(v.actions(NOW), []);
        v.unloaded(1);
        assert_eq!(v.actions(NOW), [Action::Load(3)]);
    }

    #[test]
    fn attempts_end() {
        let attempts = Attempts { retries: 1, interval: Duration::from_secs(1) };
        let mut v = Versions::new(Transition::default(), attempts);
        wants(&mut v, &[7]);
        assert_eq!(v.actions(NOW), [Action::Load(7)]);
        v.loaded(7, Err(err!(NotFound, "first")), NOW);
        assert_eq!(v.actions(Duration::from_millis(999)), []);
        assert_eq!(v.actions(Duration::from_secs(1)), [Action::Load(7)]);
        v.loaded(7, Err(err!(NotFound, "second")), NOW);
        assert_eq!(v.actions(Duration::from_secs(99)), []);
        assert!(v.is_settled());
        assert_eq!(v.all()[&7].error.as_ref().unwrap().message(), "second");
        // Found by another poll it is not retried; removed and found again it is.
        wants(&mut v, &[7]);
        assert_eq!(v.actions(Duration::from_secs(99)), []);
        wants(&mut v, &[]);
        wants(&mut v, &[7]);
        assert_eq!(v.actions(NOW), [Action::Load(7)]);
    }

    #[test]
    fn files_that_change_are_tried_again() {
        let attempts = Attempts { retries: 1, interval: Duration::from_secs(60) };
        let mut v = Versions::new(Transition::default(), attempts);
        wants(&mut v, &[1]);
        v.changed(1);
        assert_eq!(v.actions(NOW), [Action::Load(1)]);
        v.changed(1);
        assert_eq!(v.actions(NOW), []);
        // While it waits for its next attempt, and after the last one.
        for _ in 0..2 {
            v.loaded(1, Err(err!(NotFound, "half of it")), NOW);
            assert_eq!(v.actions(NOW), []);
            v.changed(1);
            assert_eq!(v.actions(NOW), [Action::Load(1)]);
        }
        v.loaded(1, Ok(()), NOW);
        v.changed(1);
        v.changed(7);
        assert_eq!(v.actions(NOW), []);
        assert_eq!(stages(&v), [(1, Stage::Available)]);
    }

    #[test]
    fn versions_wanted_again_or_no_more() {
        let mut v = Versions::default();
        wants(&mut v, &[1]);
        assert_eq!(v.actions(NOW), [Action::Load(1)]);
        // Not wanted any more while it loads: unloaded once it is loaded.
        wants(&mut v, &[]);
        assert_eq!(v.actions(NOW), []);
        v.loaded(1, Ok(()), NOW);
        assert_eq!(v.actions(NOW), [Action::Unload(1)]);
        // Wanted again while it is unloaded: loaded again after that.
        wants(&mut v, &[1]);
        assert_eq!(v.actions(NOW), []);
        v.unloaded(1);
        assert_eq!(v.actions(NOW), [Action::Load(1)]);
        // Unexpected events change nothing.
        v.unloaded(1);
        v.loaded(5, Ok(()), NOW);
        assert_eq!(stages(&v), [(1, Stage::Loading)]);
        // A failed version that is not wanted any more is not retried.
        v.loaded(1, Err(err!(NotFound, "no")), NOW);
        wants(&mut v, &[]);
        assert_eq!(v.actions(Duration::from_secs(999)), []);
        assert_eq!(stages(&v), [(1, Stage::End)]);
    }

    #[test]
    fn ended_versions_are_evicted() {
        let mut v = Versions::default();
        for number in 0..1000 {
            wants(&mut v, &[number]);
            for action in v.actions(NOW) {
                match action {
                    Action::Load(n) => v.loaded(n, Ok(()), NOW),
                    Action::Unload(n) => v.unloaded(n),
                }
            }
            for action in v.actions(NOW) {
                assert_eq!(action, Action::Unload(number - 1));
                v.unloaded(number - 1);
            }
        }
        assert!(v.all().len() <= ENDED_MAX + 2, "{}", v.all().len());
        assert_eq!(v.all()[&999].stage, Stage::Available);
    }

    /// For random orders of events: availability-preserving, a version is always available after the first;
    /// resource-preserving, a wanted version is never loaded beside an unwanted one.
    #[test]
    fn random_histories_keep_the_invariants() {
        for seed in 0..500u64 {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut next = |n: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 20) % n
            };
            let transition =
                [Transition::KeepAvailable, Transition::KeepResources][next(2) as usize];
            let mut v = Versions::new(transition, Attempts { retries: 0, interval: NOW });
            let mut pending: Vec<Action> = Vec::new();
            let (mut newest, mut served) = (1, false);
            wants(&mut v, &[1]);
            for step in 0..200 {
                match next(4) {
                    0 => {
                        newest += 1;
                        wants(&mut v, &[newest]);
                    }
                    _ if !pending.is_empty() => {
                        match pending.swap_remove(next(pending.len() as u64) as usize) {
                            Action::Load(n) if next(5) == 0 => {
                                v.loaded(n, Err(err!(DataLoss, "no")), NOW);
                            }
                            Action::Load(n) => v.loaded(n, Ok(()), NOW),
                            Action::Unload(n) => v.unloaded(n),
                        }
                    }
                    _ => {}
                }
                pending.extend(v.actions(NOW));
                let available = v.all().values().filter(|v| v.stage == Stage::Available).count();
                if transition == Transition::KeepAvailable {
                    assert!(!served || available > 0, "seed {seed}, step {step}");
                }
                served |= available > 0;
                if transition == Transition::KeepResources {
                    let takes = |v: &Version| matches!(v.stage, Stage::Loading | Stage::Available);
                    assert!(
                        v.all().values().filter(|v| takes(v)).count() <= 1,
                        "seed {seed}, step {step}: {:?}",
                        stages(&v)
                    );
                }
            }
        }
    }
}
