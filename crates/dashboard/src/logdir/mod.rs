//! Event files below a folder: followed while they grow, their summaries kept in bounded memory.
//!
//! Each folder with event files is a run, named relative to the root, `.` for the root itself.

mod follow;
mod json;
mod store;
mod thinned;
mod value;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_formats::Storage;
use thalweg_kernel::Clock;
use thalweg_proto as pb;
use thalweg_tensor::{Bytes, Result, ensure};

use self::follow::Follower;
use self::store::Store;
use crate::attention::Attention;
use crate::steps::Steps;

/// Time between two looks at the files, and at the folders.
const INTERVAL: Duration = Duration::from_millis(1000);
const FIND_INTERVAL: Duration = Duration::from_secs(5);
/// How long a first request waits for files to be read.
const FIRST_LIMIT: Duration = Duration::from_secs(5);

/// A folder of event files.
pub(crate) struct Logdir {
    attention: Attention,
    reader: Arc<Reader>,
}

/// What blocks: it runs on threads for that.
struct Reader {
    clock: Arc<dyn Clock>,
    /// The files, and when new ones were looked for.
    follower: Mutex<(Follower, Option<Duration>)>,
    store: Mutex<Store>,
    steps: Arc<Steps>,
}

impl Logdir {
    /// Follows the event files below `root`, which must be a folder; run metadata go to `steps`.
    pub(crate) fn open(
        storage: Arc<dyn Storage>,
        root: &str,
        (steps, clock): (Arc<Steps>, Arc<dyn Clock>),
    ) -> Result<Arc<Logdir>> {
        ensure!(storage.metadata(root)?.is_folder, InvalidArgument, "{root} is not a folder");
        let follower = Mutex::new((Follower::new(storage, root), None));
        let attention = Attention::new(clock.clone());
        let reader = Arc::new(Reader { clock, follower, store: Mutex::default(), steps });
        Ok(Arc::new(Logdir { attention, reader }))
    }

    /// A client asks: the files are read, if they were not read lately.
    pub(crate) async fn ask(&self) {
        self.attention.ask(2 * INTERVAL, FIRST_LIMIT).await;
    }

    /// Follows the files for ever while clients ask; the caller ends it by dropping it.
    pub(crate) async fn run(self: Arc<Self>) {
        let round = || async {
            let reader = self.reader.clone();
            // An error is a panic there; the next round tries again.
            let _ = tokio::task::spawn_blocking(move || reader.round()).await;
        };
        self.attention.work(INTERVAL, round).await;
    }

    /// The last graph, a serialized GraphDef: of a run, or of the first run that has one.
    pub(crate) fn graph(&self, run: Option<&str>) -> Option<Bytes> {
        let store = self.reader.store.lock();
        let mut runs = store.runs.iter().filter(|(name, _)| run.is_none_or(|run| run == *name));
        runs.find_map(|(_, run)| run.graph.clone())
    }
}

impl Reader {
    fn round(&self) {
        let mut follower = self.follower.lock();
        let (follower, found) = &mut *follower;
        let now = self.clock.monotonic();
        if found.is_none_or(|found| now.saturating_sub(found) >= FIND_INTERVAL) {
            // A root that cannot be read now may be later.
            let _ = follower.find();
            *found = Some(now);
        }
        follower.read(|run, events| {
            let mut store = self.store.lock();
            for event in events {
                match &event.what {
                    Some(pb::event::What::TaggedRunMetadata(metadata)) => {
                        self.steps.add_run_metadata(run, metadata, event.step, event.wall_time);
                    }
                    _ => store.add(run, event),
                }
            }
        });
    }
}

#[cfg(test)]
impl Logdir {
    /// Reads the files at once.
    fn read(&self) {
        self.reader.follower.lock().1 = None;
        self.reader.round();
    }
}
