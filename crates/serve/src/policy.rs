//! Version policies.

use std::collections::BTreeSet;

use thalweg_proto::tensorflow::serving as pb;
use thalweg_proto::tensorflow::serving::file_system_storage_path_source_config::servable_version_policy::PolicyChoice;
use thalweg_proto::tensorflow::serving::file_system_storage_path_source_config::ServableVersionPolicy;
use thalweg_tensor::{Result, ensure};

/// Which versions of a model are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionPolicy {
    /// The latest ones, this many.
    Latest(usize),
    /// All versions.
    All,
    /// These versions, where they exist.
    Specific(BTreeSet<i64>),
}

impl Default for VersionPolicy {
    fn default() -> Self {
        VersionPolicy::Latest(1)
    }
}

impl VersionPolicy {
    /// The policy of a configuration; the latest version by default.
    pub fn from_proto(proto: Option<&ServableVersionPolicy>) -> Result<VersionPolicy> {
        Ok(match proto.and_then(|p| p.policy_choice.as_ref()) {
            None => VersionPolicy::default(),
            // `latest {}` without a number has zero, which means one.
            Some(PolicyChoice::Latest(latest)) => {
                VersionPolicy::Latest(latest.num_versions.max(1) as usize)
            }
            Some(PolicyChoice::All(_)) => VersionPolicy::All,
            Some(PolicyChoice::Specific(specific)) => {
                ensure!(
                    !specific.versions.is_empty(),
                    InvalidArgument,
                    "the version policy 'specific' names no version"
                );
                VersionPolicy::Specific(specific.versions.iter().copied().collect())
            }
        })
    }

    /// The versions to serve among those that exist.
    pub fn choose(&self, there: &BTreeSet<i64>) -> BTreeSet<i64> {
        match self {
            VersionPolicy::Latest(count) => there.iter().rev().take(*count).copied().collect(),
            VersionPolicy::All => there.clone(),
            VersionPolicy::Specific(named) => named.intersection(there).copied().collect(),
        }
    }

    /// The versions that are requested by number and do not exist.
    pub fn missing(&self, there: &BTreeSet<i64>) -> BTreeSet<i64> {
        match self {
            VersionPolicy::Latest(_) | VersionPolicy::All => BTreeSet::new(),
            VersionPolicy::Specific(named) => named.difference(there).copied().collect(),
        }
    }
}

/// The state of a version in TensorFlow Serving's messages.
pub(crate) type StateProto = pb::model_version_status::State;

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;
    use thalweg_proto::tensorflow::serving::file_system_storage_path_source_config::servable_version_policy::{All, Latest, Specific};

    #[test]
    fn policies_choose() {
        let there = BTreeSet::from([1, 2, 5, 9]);
        for (policy, wanted) in [
            (VersionPolicy::default(), vec![9]),
            (VersionPolicy::Latest(3), vec![2, 5, 9]),
            (VersionPolicy::Latest(30), vec![1, 2, 5, 9]),
            (VersionPolicy::All, vec![1, 2, 5, 9]),
            (VersionPolicy::Specific(BTreeSet::from([2, 7])), vec![2]),
        ] {
            let chosen: Vec<i64> = policy.choose(&there).into_iter().collect();
            assert_eq!(chosen, wanted, "{policy:?}");
        }
        assert!(VersionPolicy::All.choose(&BTreeSet::new()).is_empty());
        assert!(VersionPolicy::Latest(9).missing(&there).is_empty());
        let named = VersionPolicy::Specific(BTreeSet::from([2, 7]));
        assert_eq!(named.missing(&there), BTreeSet::from([7]));
    }

    #[test]
    fn policies_are_read() {
        let read = |choice| {
            VersionPolicy::from_proto(Some(&ServableVersionPolicy { policy_choice: Some(choice) }))
        };
        assert_eq!(VersionPolicy::from_proto(None).unwrap(), VersionPolicy::Latest(1));
        let latest = |n| read(PolicyChoice::Latest(Latest { num_versions: n })).unwrap();
        assert_eq!((latest(0), latest(4)), (VersionPolicy::Latest(1), VersionPolicy::Latest(4)));
        assert_eq!(read(PolicyChoice::All(All {})).unwrap(), VersionPolicy::All);
        let specific = |versions| read(PolicyChoice::Specific(Specific { versions }));
        assert_eq!(
            specific(vec![3, 1, 3]).unwrap(),
            VersionPolicy::Specific(BTreeSet::from([1, 3]))
        );
        assert_eq!(specific(Vec::new()).err().map(|e| e.code()), Some(Code::InvalidArgument));
    }
}
