//! Supervised training on a cluster of this process, undisturbed and with every kind of task lost.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use thalweg_api::{Init, NewOp};
use thalweg_cluster::{ConnectOptions, TaskName};
use thalweg_formats::checkpoint::BundleReader;
use thalweg_formats::events::{EventReader, event_files};
use thalweg_formats::record::ReadOptions;
use thalweg_formats::{LocalStorage, Storage};
use thalweg_proto::event::What;
use thalweg_proto::summary::value::Value as Content;
use thalweg_tensor::{Code, DType, Result, Tensor, err};
use thalweg_train::trainer::{
    Callback, Checkpoint, Control, EarlyStopping, Epoch, Evaluation, Event, Every, Outcome,
    ReduceOnPlateau, Screen, Step,
};
use thalweg_train::{
    Cluster, Dense, Flatten, Layer, LossScale, Mode, Model, Net, Optimizer, Order, Rate,
    TrainOptions, Trainer, losses, metrics, mnist,
};

/// A folder of one test; gone when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let name = format!("thalweg-trainer-{test}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn path(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a training printed.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Loses tasks at given numbers of updates, one after the other, and starts them again.
struct Killer {
    cluster: Arc<Cluster>,
    victims: Vec<(u64, TaskName)>,
    next: AtomicUsize,
    events: Mutex<Vec<Event>>,
}

impl Killer {
    fn new(cluster: &Arc<Cluster>, victims: &[(u64, &str, u32)]) -> Arc<Killer> {
        let victims =
            victims.iter().map(|&(at, job, index)| (at, TaskName::new(job, index))).collect();
        Arc::new(Killer {
            cluster: cluster.clone(),
            victims,
            next: AtomicUsize::new(0),
            events: Mutex::default(),
        })
    }

    fn lost(&self) -> Vec<u64> {
        let events = self.events.lock().unwrap();
        let lost = events.iter().filter_map(|event| match event {
            Event::Restored { lost, .. } => Some(*lost),
            _ => None,
        });
        lost.collect()
    }
}

impl Callback for Killer {
    fn on_step(&self, step: &Step, _control: &Control) -> Result<()> {
        let next = self.next.load(Ordering::SeqCst);
        let Some((at, task)) = self.victims.get(next) else { return Ok(()) };
        let is_mine = step.updates >= *at
            && self
                .next
                .compare_exchange(next, next + 1, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok();
        if is_mine {
            let tasks = self.cluster.tasks_here().unwrap();
            tasks.crash(task)?;
            std::thread::sleep(Duration::from_millis(100));
            tasks.restart(task)?;
        }
        Ok(())
    }

    fn on_event(&self, event: &Event) {
        self.events.lock().unwrap().push(event.clone());
    }
}

/// Counts samples whose gradients were used, and others. Worker 2 is slow.
#[derive(Default)]
struct Counter {
    used: AtomicUsize,
    dropped: AtomicUsize,
}

impl Callback for Counter {
    fn on_step_begin(&self, worker: usize) -> Result<()> {
        if worker == 2 {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn on_step(&self, step: &Step, _control: &Control) -> Result<()> {
        let counter = if step.is_used { &self.used } else { &self.dropped };
        counter.fetch_add(step.samples, Ordering::SeqCst);
        Ok(())
    }
}

fn cluster(ps: u32, workers: u32) -> Arc<Cluster> {
    let options = ConnectOptions { connect_timeout: Duration::from_secs(5), ..Default::default() };
    Arc::new(Cluster::local(ps, workers).unwrap().options(options))
}

fn net(model: &Model) -> Net {
    let images = model.placeholder::<f32>("images", [None, Some(28), Some(28), Some(1)]);
    let labels = model.placeholder::<i64>("labels", [None]);
    let logits = Dense::new(10).apply(model, &Flatten.apply(model, &images));
    let loss = losses::softmax_cross_entropy(&logits, &labels);
    Net::new((&images, &labels), &loss).metric("accuracy", metrics::accuracy(&logits, &labels))
}

const SAMPLES: usize = 1500;
const BATCH: usize = 25;
const EPOCHS: u64 = 4;
const BATCHES: u64 = SAMPLES as u64 / BATCH as u64 * EPOCHS;

fn options(folder: &Folder, mode: Mode) -> TrainOptions {
    TrainOptions {
        folder: folder.path(),
        mode,
        batch: BATCH,
        epochs: EPOCHS,
        batches_per_shard: 4,
        updates_lost_max: 40,
        ..TrainOptions::default()
    }
}

/// Trains; what it printed is on the page.
fn train(
    cluster: &Cluster,
    options: TrainOptions,
    callbacks: &[Arc<dyn Callback>],
    page: &Page,
) -> Result<Outcome> {
    let digits = mnist::train().unwrap().first(SAMPLES);
    let mut trainer = Trainer::new(cluster, options);
    for callback in callbacks {
        trainer = trainer.callback(callback.clone());
    }
    let trainer = trainer.screen(Screen::new(false, Box::new(page.clone())));
    trainer.run(&digits, Optimizer::sgd(0.1), net)
}

/// A tensor of a checkpoint.
fn saved(prefix: &str, name: &str) -> Tensor {
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::default());
    BundleReader::open(&storage, prefix).unwrap().read(name).unwrap()
}

fn updates(prefix: &str) -> i64 {
    saved(prefix, "global_step").scalar_value().unwrap()
}

/// How many samples of each shard were used, over all epochs.
fn used(prefix: &str) -> Vec<i64> {
    let table = saved(prefix, "leases");
    table.as_slice::<i64>().unwrap().chunks_exact(3).map(|row| row[1]).collect()
}

/// What that is if each sample was used once per epoch.
fn exactly_once() -> Vec<i64> {
    vec![BATCH as i64 * 4 * EPOCHS as i64; SAMPLES / BATCH / 4]
}

/// The part of the test digits that a checkpoint gets right, computed here.
fn accuracy(prefix: &str) -> f32 {
    let (kernel, bias) = (saved(prefix, "dense/kernel"), saved(prefix, "dense/bias"));
    let (kernel, bias) = (kernel.as_slice::<f32>().unwrap(), bias.as_slice::<f32>().unwrap());
    let digits = mnist::test().unwrap().first(1000);
    let is_right = |i: &usize| {
        let image = digits.image(*i).unwrap();
        let score = |class: usize| {
            let product =
                |(j, &pixel): (usize, &u8)| f32::from(pixel) / 255.0 * kernel[j * 10 + class];
            bias[class] + image.iter().enumerate().map(product).sum::<f32>()
        };
        let best = (0..10).max_by(|&a, &b| score(a).total_cmp(&score(b))).unwrap();
        best == usize::from(digits.label(*i).unwrap())
    };
    (0..digits.len()).filter(is_right).count() as f32 / digits.len() as f32
}

#[test]
fn whatever_is_lost_the_result_is_the_same() {
    let (calm, rough) = (Folder::new("calm"), Folder::new("rough"));
    let page = Page::default();
    let here = cluster(1, 2);
    let undisturbed = train(&here, options(&calm, Mode::Async), &[], &page).unwrap();
    assert_eq!(undisturbed.interruptions, 0, "{}", page.text());
    let undisturbed = undisturbed.checkpoint.unwrap();
    drop(here);

    let here = cluster(1, 2);
    let victims = [(60, "worker", 1), (110, "worker", 0), (170, "ps", 0)];
    let killer = Killer::new(&here, &victims);
    let page = Page::default();
    let outcome =
        train(&here, options(&rough, Mode::Async), &[killer.clone() as Arc<dyn Callback>], &page);
    let text = page.text();
    let outcome = outcome.unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(killer.next.load(Ordering::SeqCst), 3, "{text}");
    let disturbed = outcome.checkpoint.unwrap();

    // Each batch has led to exactly one update that is in the variables.
    for prefix in [&undisturbed, &disturbed] {
        assert_eq!(updates(prefix), BATCHES as i64, "{text}");
        assert_eq!(used(prefix), exactly_once(), "{text}");
    }
    // The ps takes its updates along; a worker only if it dies in the middle of changing variables.
    let lost = killer.lost();
    assert!((1..=3).contains(&lost.len()), "{lost:?}\n{text}");
    assert!(lost.iter().all(|&lost| lost <= 40), "{lost:?}\n{text}");
    assert_eq!(outcome.updates_lost, lost.iter().sum::<u64>());
    for event in
        ["\"lost\"", "\"returned\"", "\"back\"", "\"restored\"", "\"saved\"", "\"progress\""]
    {
        assert!(text.contains(event), "{event} is not in\n{text}");
    }
    let (calm, rough) = (accuracy(&undisturbed), accuracy(&disturbed));
    assert!(calm > 0.75 && (calm - rough).abs() < 0.03, "{calm} and {rough}");
}

#[test]
fn rounds_go_on_after_losses() {
    let folder = Folder::new("rounds");
    let here = cluster(2, 2);
    let killer = Killer::new(&here, &[(30, "worker", 1), (60, "ps", 1), (90, "worker", 0)]);
    let page = Page::default();
    let callbacks = [killer.clone() as Arc<dyn Callback>];
    let outcome = train(&here, options(&folder, Mode::sync()), &callbacks, &page);
    let text = page.text();
    let prefix = outcome.unwrap_or_else(|e| panic!("{e}\n{text}")).checkpoint.unwrap();
    assert_eq!(killer.next.load(Ordering::SeqCst), 3, "{text}");
    assert!(killer.lost().iter().all(|&lost| lost <= 40), "{text}");
    assert_eq!(used(&prefix), exactly_once(), "{text}");
    let updates = updates(&prefix) as u64;
    // A round has a gradient of both, but for the last ones of an epoch.
    assert!((BATCHES / 2..BATCHES).contains(&updates), "{updates}\n{text}");
    assert!(accuracy(&prefix) > 0.7);
}

#[test]
fn every_mode_uses_each_sample_once_per_epoch() {
    // How many gradients make an update, at most.
    for (name, mode, most) in [
        ("sync", Mode::sync(), 3),
        ("ordered", Mode::Sync { order: Order::Worker }, 3),
        ("backup", Mode::Backup { spare: 1 }, 3),
        ("stale", Mode::Stale { bound: 2 }, 1),
    ] {
        let folder = Folder::new(name);
        let page = Page::default();
        let here = cluster(1, 3);
        let counter = Arc::new(Counter::default());
        let callbacks = [counter.clone() as Arc<dyn Callback>];
        let outcome = train(&here, options(&folder, mode), &callbacks, &page);
        let outcome = outcome.unwrap_or_else(|e| panic!("{name}: {e}\n{}", page.text()));
        let prefix = outcome.checkpoint.unwrap();
        assert_eq!(used(&prefix), exactly_once(), "{name}\n{}", page.text());
        assert_eq!(outcome.samples, SAMPLES as u64 * EPOCHS, "{name}");
        // What the table says is what the workers were told, but for steps that the end cut short.
        let all = SAMPLES as i64 * EPOCHS as i64;
        let cut_short = all - counter.used.load(Ordering::SeqCst) as i64;
        assert!((0..=3 * BATCH as i64).contains(&cut_short), "{name}: {cut_short}");
        let updates = updates(&prefix) as u64;
        assert!((BATCHES / most..=BATCHES).contains(&updates), "{name}: {updates} updates");
        if name == "backup" {
            assert!(counter.dropped.load(Ordering::SeqCst) > 0, "{}", page.text());
        }
        assert!(accuracy(&prefix) > 0.7, "{name}");
    }
}

/// One shard for three workers: two of them have nothing to do, and nobody waits for them.
#[test]
fn nobody_waits_for_a_worker_without_samples() {
    for (name, mode) in [
        ("sync-idle", Mode::sync()),
        ("backup-idle", Mode::Backup { spare: 1 }),
        ("stale-idle", Mode::Stale { bound: 1 }),
    ] {
        let folder = Folder::new(name);
        let page = Page::default();
        let options = TrainOptions {
            batches_per_shard: SAMPLES / BATCH,
            epochs: 1,
            step_time_max: Duration::from_secs(20),
            ..options(&folder, mode)
        };
        let outcome = train(&cluster(1, 3), options, &[], &page);
        let outcome = outcome.unwrap_or_else(|e| panic!("{name}: {e}\n{}", page.text()));
        assert_eq!(outcome.updates, (SAMPLES / BATCH) as u64, "{name}\n{}", page.text());
        assert_eq!(outcome.interruptions, 0, "{name}\n{}", page.text());
        assert!(outcome.took < Duration::from_secs(20), "{name}: {:?}", outcome.took);
    }
}

/// Fails after some steps, with an error that would pass if it came from a task.
struct Broken {
    steps: AtomicUsize,
    is_before: bool,
}

impl Broken {
    fn count(&self) -> Result<()> {
        match self.steps.fetch_add(1, Ordering::SeqCst) {
            // Only once: it must not be forgotten.
            10 => Err(err!(Unavailable, "the callback is broken")),
            _ => Ok(()),
        }
    }
}

impl Callback for Broken {
    fn on_step_begin(&self, _worker: usize) -> Result<()> {
        if self.is_before { self.count() } else { Ok(()) }
    }

    fn on_step(&self, _step: &Step, _control: &Control) -> Result<()> {
        if !self.is_before {
            self.count()?;
        }
        Ok(())
    }
}

#[test]
fn the_error_of_a_callback_ends_training() {
    for is_before in [true, false] {
        let folder = Folder::new(if is_before { "before" } else { "after" });
        let callback: Arc<dyn Callback> =
            Arc::new(Broken { steps: AtomicUsize::new(0), is_before });
        let ended =
            train(&cluster(1, 2), options(&folder, Mode::Async), &[callback], &Page::default());
        let error = ended.unwrap_err();
        assert!(error.message().contains("the callback is broken"), "{error}");
    }
}

#[test]
fn checkpoints_that_take_too_long_end_training() {
    let folder = Folder::new("slow-save");
    let page = Page::default();
    let options = TrainOptions {
        save_time_max: Duration::from_nanos(1),
        outage_max: Duration::from_secs(1),
        ..options(&folder, Mode::Async)
    };
    let error = train(&cluster(1, 2), options, &[], &page).unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded, "{error}");
    assert!(error.message().contains("writing a checkpoint, with a deadline of 1ns"), "{error}");
    assert!(page.text().contains("\"not_saved\""), "{}", page.text());
}

/// Two processes share a training; that of worker 1 starts when all is over.
#[test]
fn a_worker_that_comes_after_the_end_does_not_wait() {
    let folder = Folder::new("after-the-end");
    let (here, page) = (cluster(1, 2), Page::default());
    let of = |worker| TrainOptions {
        workers: Some(vec![worker]),
        epochs: 1,
        outage_max: Duration::from_secs(60),
        ..options(&folder, Mode::Async)
    };
    let first = train(&here, of(0), &[], &page).unwrap();
    assert_eq!(first.updates, BATCHES / EPOCHS);
    let second = train(&here, of(1), &[], &page).unwrap_or_else(|e| panic!("{e}\n{}", page.text()));
    assert!(second.took < Duration::from_secs(20), "{:?}", second.took);
    assert_eq!(second.checkpoint, None);
}

#[test]
fn a_run_ends_and_goes_on() {
    let folder = Folder::new("limits");
    let here = cluster(2, 2);
    let page = Page::default();
    let limited = TrainOptions { updates_max: Some(50), ..options(&folder, Mode::Async) };
    let outcome = train(&here, limited, &[], &page).unwrap();
    let prefix = outcome.checkpoint.unwrap();
    assert!((50..60).contains(&updates(&prefix)), "{}", updates(&prefix));

    let early: Arc<dyn Callback> =
        Arc::new(EarlyStopping::minimize("loss").of_training().min_delta(10.0));
    let outcome = train(&here, options(&folder, Mode::Async), &[early], &page).unwrap();
    let stopped = updates(&outcome.checkpoint.unwrap());
    // Epochs have 60 updates: the second one that is over is no better than the first.
    assert!((120..140).contains(&stopped), "{stopped}");

    let none = Duration::ZERO;
    let limited = TrainOptions { time_max: Some(none), ..options(&folder, Mode::Async) };
    let outcome = train(&here, limited, &[], &page);
    let outcome = outcome.unwrap_or_else(|e| panic!("{e}\n{}", page.text()));
    assert!(outcome.updates < 150, "{}", outcome.updates);

    let outcome = train(&here, options(&folder, Mode::Async), &[], &page).unwrap();
    assert_eq!(updates(&outcome.checkpoint.unwrap()), BATCHES as i64);
    assert!(page.text().contains("\"restored\""), "{}", page.text());
    let kept = std::fs::read_dir(&folder.0)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".index"));
    assert!(kept.count() <= 5);
}

/// A net with a variable of its own; each of `units` hidden units is scaled by it.
fn scaled(model: &Model, units: usize) -> Net {
    let images = model.placeholder::<f32>("images", [None, Some(28), Some(28), Some(1)]);
    let labels = model.placeholder::<i64>("labels", [None]);
    let hidden = Dense::new(units).relu().apply(model, &Flatten.apply(model, &images));
    let hidden = hidden * model.variable::<f32>("scale", Init::ones([units]));
    let logits = Dense::new(10).apply(model, &hidden);
    let loss = losses::softmax_cross_entropy(&logits, &labels);
    Net::new((&images, &labels), &loss)
}

#[test]
fn variables_of_a_program_are_on_the_parameter_server() {
    let folder = Folder::new("scaled");
    let digits = mnist::train().unwrap().first(SAMPLES);
    let run = |units: usize, updates_max: u64| {
        let options =
            TrainOptions { updates_max: Some(updates_max), ..options(&folder, Mode::Async) };
        let here = cluster(1, 2);
        let trainer = Trainer::new(&here, options).screen(Screen::none());
        trainer.run(&digits, Optimizer::sgd(0.1), |model| {
            let net = scaled(model, units);
            let scale = model.find("scale").unwrap();
            assert!(scale.device.starts_with("/job:ps"), "{}", scale.device);
            net
        })
    };
    let prefix = run(16, 30).unwrap().checkpoint.unwrap();
    let scale = saved(&prefix, "scale");
    assert!(scale.as_slice::<f32>().unwrap().iter().any(|&x| x != 1.0), "it was not trained");
    // Another net in the same folder.
    let error = run(12, 60).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    // Of the first variable that differs.
    assert!(error.message().contains("16") && error.message().contains("12"), "{error}");
}

/// A net whose steps all fail.
fn failing(model: &Model) -> Net {
    let net = net(model);
    let node = NewOp::new(model, "Assert").input(model.constant(false));
    let text = model.constant::<String>("no good");
    let assert = node.input(&text).attr("T", &[DType::String][..]).operation();
    let loss = NewOp::new(&model.after(&[&assert]), "Identity").input(&net.loss).output();
    Net { loss, ..net }
}

#[test]
fn what_a_failed_run_left_does_not_replace_a_checkpoint() {
    let (folder, other) = (Folder::new("kept"), Folder::new("failed"));
    let here = cluster(1, 2);
    let limited =
        |updates| TrainOptions { updates_max: Some(updates), ..options(&folder, Mode::Async) };
    let page = Page::default();
    let first = train(&here, limited(40), &[], &page).unwrap();
    let digits = mnist::train().unwrap().first(SAMPLES);
    let trainer = Trainer::new(&here, options(&other, Mode::Async)).screen(Screen::none());
    let error = trainer.run(&digits, Optimizer::sgd(0.1), failing).unwrap_err();
    assert!(error.message().contains("no good"), "{error}");
    let second = train(&here, limited(80), &[], &page).unwrap();
    assert!(page.text().contains("\"restored\""), "{}", page.text());
    assert!(updates(&first.checkpoint.unwrap()) < 60);
    assert!(updates(&second.checkpoint.unwrap()) >= 80);
}

#[test]
fn mistakes_are_told() {
    let folder = Folder::new("mistakes");
    let here = cluster(1, 2);
    let mistakes = [
        (TrainOptions { batch: 0, ..options(&folder, Mode::Async) }, "batch must be at least 1"),
        (
            TrainOptions { workers: Some(vec![3]), ..options(&folder, Mode::Async) },
            "there is no worker 3",
        ),
        (
            TrainOptions { lease: Duration::from_secs(1), ..options(&folder, Mode::Async) },
            "must be less than lease",
        ),
        (
            TrainOptions { updates_lost_max: 1, ..options(&folder, Mode::Async) },
            "each of 2 workers may have an update on its way",
        ),
        (
            TrainOptions { save_time_max: Duration::ZERO, ..options(&folder, Mode::Async) },
            "save_time_max must not be zero",
        ),
    ];
    for (options, words) in mistakes {
        let error = train(&here, options, &[], &Page::default()).unwrap_err();
        assert!(error.message().contains(words), "{error}");
    }
    // A net whose steps always fail ends the training with their error.
    let digits = mnist::test().unwrap().first(100);
    let trainer = Trainer::new(&here, options(&folder, Mode::Async)).screen(Screen::none());
    let error = trainer.run(&digits, Optimizer::sgd(0.1), failing).unwrap_err();
    assert!(error.message().contains("no good"), "{error}");
}

/// The net, and what of it is shown.
fn watched(model: &Model) -> Net {
    let net = net(model);
    model.histogram_summary("kernel", &model.value_of::<f32>("dense/kernel"));
    model.scalar_summary("own loss", &net.loss);
    model.image_summary("digits", &net.inputs[0], 2);
    let labels = NewOp::new(model, "AsString").input(&net.inputs[1]).output();
    model.text_summary("labels", &labels);
    // A net that is built again shows nothing twice.
    model.inference().scalar_summary("of use", &net.loss);
    model.scalar_summary("own loss", &net.loss);
    net
}

#[test]
fn what_a_net_shows_is_written() {
    let folder = Folder::new("summaries");
    let here = cluster(1, 2);
    let killer = Killer::new(&here, &[(100, "worker", 0)]);
    let options = TrainOptions { summary_steps: 30, ..options(&folder, Mode::Async) };
    let digits = mnist::train().unwrap().first(SAMPLES);
    let trainer = Trainer::new(&here, options).callback(killer).screen(Screen::none());
    let outcome = trainer.run(&digits, Optimizer::sgd(0.1), watched).unwrap();

    let storage = LocalStorage::default();
    let files = event_files(&storage, &outcome.events).unwrap();
    let mut shown: Vec<(i64, Vec<String>)> = Vec::new();
    for file in files {
        let mut reader = EventReader::open(&storage, &file, ReadOptions::default()).unwrap();
        while let Some(event) = reader.next_event().unwrap() {
            let Some(What::Summary(summary)) = event.what else { continue };
            let histogram = summary.value.iter().find_map(|value| match &value.value {
                Some(Content::Histo(histogram)) => Some(histogram.num),
                _ => None,
            });
            if let Some(count) = histogram {
                assert_eq!(count, 7840.0);
                let tags = summary.value.into_iter().map(|value| value.tag).collect();
                shown.push((event.step, tags));
            }
        }
    }
    let tags = ["kernel", "own loss", "digits/image/0", "digits/image/1", "labels"];
    assert!(shown.iter().all(|(_, found)| *found == tags), "{shown:?}");
    let steps: Vec<i64> = shown.iter().map(|(step, _)| *step).collect();
    // The first step, then every thirty; two workers may be a step or two past that.
    assert!(steps[0] <= 3, "{steps:?}");
    assert!(steps.windows(2).all(|pair| (30..40).contains(&(pair[1] - pair[0]))), "{steps:?}");
    assert!(steps.len() as u64 >= BATCHES / 40, "{steps:?}");
}

/// What the callbacks of a training were told.
#[derive(Default)]
struct Journal {
    epochs: Mutex<Vec<Epoch>>,
    evaluations: Mutex<Vec<Evaluation>>,
    checkpoints: Mutex<Vec<String>>,
    has_ended: AtomicUsize,
}

impl Callback for Journal {
    fn on_epoch(&self, epoch: &Epoch, _control: &Control) -> Result<()> {
        self.epochs.lock().unwrap().push(epoch.clone());
        Ok(())
    }

    fn on_evaluation(&self, evaluation: &Evaluation, _control: &Control) -> Result<()> {
        self.evaluations.lock().unwrap().push(evaluation.clone());
        Ok(())
    }

    fn on_checkpoint(&self, checkpoint: &Checkpoint, _control: &Control) -> Result<()> {
        self.checkpoints.lock().unwrap().push(checkpoint.prefix.clone());
        Ok(())
    }

    fn on_end(&self, outcome: &Outcome) -> Result<()> {
        assert!(outcome.evaluations == *self.evaluations.lock().unwrap());
        self.has_ended.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn epochs_and_evaluations_are_reported() {
    let folder = Folder::new("evaluated");
    let (here, page) = (cluster(1, 2), Page::default());
    let (digits, unseen) = (mnist::train().unwrap().first(SAMPLES), mnist::test().unwrap());
    let (unseen, journal) = (unseen.first(1000), Journal::default());
    let options =
        TrainOptions { evaluation_batch: 300, checkpoints_max: 2, ..options(&folder, Mode::Async) };
    let outcome = Trainer::new(&here, options)
        .screen(Screen::new(false, Box::new(page.clone())))
        .evaluate(&unseen, Every::Epochs(1))
        .callback(&journal)
        .run(&digits, Optimizer::sgd(0.1), net)
        .unwrap();
    let epochs = journal.epochs.lock().unwrap();
    assert_eq!(epochs.iter().map(|epoch| epoch.epoch).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(epochs[3].loss < epochs[0].loss, "{epochs:?}");
    assert_eq!(epochs[0].metrics[0].0, "accuracy");
    assert_eq!(journal.has_ended.load(Ordering::SeqCst), 1);
    // The last checkpoint is evaluated, and as it is used: on all samples, by its own variables.
    let last = outcome.evaluations.last().unwrap();
    let checkpoint = outcome.checkpoint.unwrap();
    assert_eq!((&last.checkpoint, last.updates), (&checkpoint, BATCHES));
    assert!((last.value("accuracy").unwrap() - accuracy(&checkpoint)).abs() < 1e-6, "{last:?}");
    assert!((2..=5).contains(&outcome.evaluations.len()), "{:?}", outcome.evaluations);
    assert!(journal.checkpoints.lock().unwrap().contains(&checkpoint));
    assert!(page.text().contains("\"evaluated\""), "{}", page.text());
}

/// Ends training once the evaluation is worse than before, by unlearning.
struct Unlearn(Mutex<u64>);

impl Callback for Unlearn {
    fn on_evaluation(&self, evaluation: &Evaluation, control: &Control) -> Result<()> {
        *self.0.lock().unwrap() += 1;
        // Uphill from here on.
        if evaluation.updates > 0 && *self.0.lock().unwrap() == 2 {
            control.scale_learning_rate(-20.0);
        }
        Ok(())
    }
}

#[test]
fn early_stopping_restores_the_best_checkpoint() {
    let folder = Folder::new("early-stopping");
    let here = cluster(1, 1);
    let (digits, unseen) = (mnist::train().unwrap().first(SAMPLES), mnist::test().unwrap());
    let unseen = unseen.first(1000);
    let options = TrainOptions { epochs: 50, checkpoints_max: 1, ..options(&folder, Mode::Async) };
    let rate = Rate::from(0.1).adjustable();
    let outcome = Trainer::new(&here, options)
        .screen(Screen::none())
        .evaluate(&unseen, Every::Updates(30))
        .callback(EarlyStopping::maximize("accuracy").patience(3).restore_best())
        .callback(Unlearn(Mutex::new(0)))
        .run(&digits, Optimizer::sgd(rate), net)
        .unwrap();
    let of = |evaluation: &Evaluation| evaluation.value("accuracy").unwrap();
    let best = outcome.evaluations.iter().max_by(|a, b| of(a).total_cmp(&of(b))).unwrap();
    assert!(outcome.updates < BATCHES * 50 / 4, "{}", outcome.updates);
    assert_eq!(outcome.checkpoint.as_deref(), Some(&*best.checkpoint));
    assert!(of(best) > 0.7 && of(outcome.evaluations.last().unwrap()) < of(best));
    // It was kept although only one is, and it is the one that was evaluated.
    assert!((accuracy(&best.checkpoint) - of(best)).abs() < 1e-6);
    let scale = saved(&outcome.evaluations.last().unwrap().checkpoint, "learning_rate_scale");
    assert_eq!(scale.scalar_value::<f32>().unwrap(), -20.0);
}

#[test]
fn a_rate_that_is_not_adjustable_is_not_scaled() {
    let folder = Folder::new("not-adjustable");
    let here = cluster(0, 1);
    let digits = mnist::train().unwrap().first(SAMPLES);
    let error = Trainer::new(&here, options(&folder, Mode::Async))
        .screen(Screen::none())
        .evaluate(&digits, Every::Updates(10))
        .callback(ReduceOnPlateau::maximize("accuracy").patience(1).min_delta(2.0))
        .run(&digits, Optimizer::sgd(0.1), net)
        .unwrap_err();
    assert!(error.message().contains("the rate is not Rate::adjustable"), "{error}");
}

/// The same updates, each from four micro-batches, on one worker: the order of samples is the same.
#[test]
fn micro_batches_train_as_whole_batches_do() {
    let here = cluster(1, 1);
    let trained = |name: &str, mode: Mode, micro_batches: usize| {
        let folder = Folder::new(name);
        let options = TrainOptions { micro_batches, epochs: 1, ..options(&folder, mode) };
        let outcome = train(&here, options, &[], &Page::default()).unwrap();
        let prefix = outcome.checkpoint.unwrap();
        assert_eq!(updates(&prefix), SAMPLES as i64 / BATCH as i64);
        (outcome.loss, saved(&prefix, "dense/kernel").as_slice::<f32>().unwrap().to_vec())
    };
    for mode in [Mode::Async, Mode::sync()] {
        let (loss, whole) = trained("whole-batches", mode, 1);
        let (loss_of_parts, parts) = trained("micro-batches", mode, 4);
        let far = whole.iter().zip(&parts).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(far < 1e-4 && (loss - loss_of_parts).abs() < 1e-3, "{far} {loss} {loss_of_parts}");
    }
}

/// A loss that is not finite for some batches, in every mode.
#[test]
fn skipped_updates_end_no_training() {
    for (name, mode) in [("async", Mode::Async), ("sync", Mode::sync())] {
        let folder = Folder::new(&format!("skipped-{name}"));
        let here = cluster(1, 2);
        let digits = mnist::train().unwrap().first(SAMPLES);
        let options = TrainOptions { epochs: 1, ..options(&folder, mode) };
        let scale = LossScale::Dynamic { initial: 1e30, growth_steps: 1000 };
        let outcome = Trainer::new(&here, options)
            .screen(Screen::none())
            .run(&digits, Optimizer::sgd(0.1).loss_scale(scale), |model| {
                let net = net(model);
                // Backwards the factors come in the other order: 1e42 overflows.
                let loss = &net.loss * 1e-12 * 1e12;
                Net::new(net.inputs, &loss)
            })
            .unwrap();
        assert_eq!(outcome.samples, SAMPLES as u64);
        let prefix = outcome.checkpoint.unwrap();
        let scale = saved(&prefix, "loss_scale").scalar_value::<f32>().unwrap();
        let halved = (1e30f32 / scale).log2().round() as u64;
        assert!(scale < 1e29 && halved > 3, "{scale}");
        // Each update was made, or skipped and halved the factor.
        let rounds = if mode == Mode::Async { SAMPLES / BATCH } else { 0 } as u64;
        assert!(rounds == 0 || outcome.updates + halved == rounds, "{} {halved}", outcome.updates);
        let kernel = saved(&prefix, "dense/kernel");
        assert!(kernel.as_slice::<f32>().unwrap().iter().all(|x| x.is_finite()));
    }
}
