//! Deduplication of requests by their `request_id`.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

/// Number of ids that are remembered; clients repeat a request within seconds.
const IDS_MAX: usize = 100_000;

/// The last [`IDS_MAX`] ids.
#[derive(Default)]
pub(crate) struct RecentIds {
    seen: FxHashSet<i64>,
    order: VecDeque<i64>,
}

impl RecentIds {
    /// Remembers an id; false if it was remembered already. Zero means that the client sends no ids.
    pub(crate) fn insert(&mut self, id: i64) -> bool {
        if id == 0 {
            return true;
        }
        if !self.seen.insert(id) {
            return false;
        }
        self.order.push_back(id);
        if self.order.len() > IDS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_accepted_once_until_it_is_evicted() {
        let mut ids = RecentIds::default();
        assert!(ids.insert(0) && ids.insert(0), "zero is no id");
        assert!(ids.insert(7));
        assert!(!ids.insert(7));
        for id in 100..100 + IDS_MAX as i64 {
            assert!(ids.insert(id));
        }
        assert!(ids.insert(7), "evicted");
        assert_eq!(ids.seen.len(), IDS_MAX);
    }
}
