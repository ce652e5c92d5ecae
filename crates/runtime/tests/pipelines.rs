//! Input pipelines of Rust programs: what elements they give, and how they end.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use thalweg_formats::record::RecordWriter;
use thalweg_formats::{LocalStorage, Storage};
use thalweg_graph::Scope;
use thalweg_kernel::StepContext;
use thalweg_ops::dataset::*;
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_runtime::{Session, SessionOptions, detached_step, system_environment};
use thalweg_tensor::{Code, DType, PartialShape, Result, Shape, Tensor, bail};

fn step() -> Arc<StepContext> {
    detached_step(system_environment())
}

fn drawn(dataset: &Dataset) -> Result<Vec<Vec<Tensor>>> {
    dataset.elements_in(&step())?.collect()
}

/// The numbers of all elements, which have one component.
fn numbers(dataset: &Dataset) -> Vec<Vec<i64>> {
    let elements = drawn(dataset).unwrap();
    elements.iter().map(|e| e[0].as_slice::<i64>().unwrap().to_vec()).collect()
}

fn flat(dataset: &Dataset) -> Vec<i64> {
    numbers(dataset).concat()
}

fn number(element: &[Tensor]) -> Result<i64> {
    element[0].scalar_value()
}

fn times(factor: i64) -> impl Fn(Vec<Tensor>) -> Result<Vec<Tensor>> + Send + Sync + 'static {
    move |element| Ok(vec![Tensor::scalar(number(&element)? * factor)])
}

/// `0, 1, 2, ...`, each of which is counted.
fn endless(made: &Arc<AtomicU64>) -> Dataset {
    let made = made.clone();
    Dataset::generate(move || {
        let made = made.clone();
        (0i64..).map(move |i| {
            made.fetch_add(1, Ordering::SeqCst);
            Ok(vec![Tensor::scalar(i)])
        })
    })
}

struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Folder {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("thalweg-pipelines-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn records(&self, name: &str, records: &[&str]) -> String {
        let path = self.path(name);
        let file = LocalStorage::default().replace(&path).unwrap();
        let mut writer = RecordWriter::new(file, Compression::None);
        records.iter().for_each(|r| writer.write(r.as_bytes()).unwrap());
        writer.finish().unwrap();
        path
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn texts(dataset: &Dataset) -> Vec<Result<String>> {
    let text = |e: Vec<Tensor>| String::from_utf8_lossy(&e[0].strings().unwrap()[0]).into_owned();
    dataset.elements_in(&step()).unwrap().map(|e| e.map(text)).collect()
}

#[test]
fn functions_of_elements() {
    let ten = Dataset::range(0..10);
    assert_eq!(flat(&ten.clone().map(times(2))), [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]);
    assert_eq!(flat(&ten.clone().parallel_map(4, times(3)).take(3)), [0, 3, 6]);
    assert_eq!(flat(&ten.clone().filter(|e| Ok(number(e)? % 3 == 0))), [0, 3, 6, 9]);
    assert_eq!(flat(&ten.clone().take_while(|e| Ok(number(e)? < 3))), [0, 1, 2]);
    let sums = ten.clone().scan(vec![Tensor::scalar(100i64)], |state, element| {
        let sum = number(state)? + number(&element)?;
        Ok((vec![Tensor::scalar(sum)], vec![Tensor::scalar(sum)]))
    });
    assert_eq!(flat(&sums), [100, 101, 103, 106, 110, 115, 121, 128, 136, 145]);
    let up_to = |element: Vec<Tensor>| Ok(Dataset::range(0..number(&element)?));
    assert_eq!(flat(&Dataset::range(0..4).flat_map(up_to)), [0, 0, 1, 0, 1, 2]);
    let thrice = |e: Vec<Tensor>| Ok(Dataset::tensors(e).repeat_times(3));
    let turns = Dataset::range(1..4);
    for dataset in
        [turns.clone().interleave(2, 1, thrice), turns.clone().parallel_interleave(2, 1, thrice)]
    {
        assert_eq!(flat(&dataset), [1, 2, 1, 2, 1, 2, 3, 3, 3]);
    }
}

#[test]
fn parts_and_sums_of_datasets() {
    let five = Dataset::range(0..5);
    assert_eq!(numbers(&five.clone().batch(2)), [vec![0, 1], vec![2, 3], vec![4]]);
    assert_eq!(numbers(&five.clone().full_batches(2)), [vec![0, 1], vec![2, 3]]);
    assert_eq!(flat(&five.clone().batch(2).unbatch()), [0, 1, 2, 3, 4]);
    assert_eq!(numbers(&five.clone().window(3, 2)), [vec![0, 1, 2], vec![2, 3, 4], vec![4]]);
    assert_eq!(flat(&five.clone().skip(3)), [3, 4]);
    assert_eq!(flat(&five.clone().shard(2, 1)), [1, 3]);
    assert_eq!(flat(&five.clone().repeat().take(7)), [0, 1, 2, 3, 4, 0, 1]);
    assert_eq!(flat(&five.clone().concatenate(Dataset::range(8..9))), [0, 1, 2, 3, 4, 8]);
    let pairs = drawn(&Dataset::zip([five.clone(), five.clone().map(times(10))])).unwrap();
    assert_eq!(number(&pairs[3][1..]).unwrap(), 30);
    assert_eq!(pairs.len(), 5);
    let numbered = drawn(&five.clone().skip(2).enumerate()).unwrap();
    assert_eq!((number(&numbered[1]).unwrap(), number(&numbered[1][1..]).unwrap()), (1, 3));
    let rows = Tensor::from_slice(Shape::new(&[2, 2]).unwrap(), &[1i64, 2, 3, 4]).unwrap();
    assert_eq!(numbers(&Dataset::slices([rows])), [vec![1, 2], vec![3, 4]]);
    let ragged = Dataset::range(1..4).map(|e| {
        let n = number(&e)?;
        Ok(vec![Tensor::vector(&vec![n; n as usize])?])
    });
    let padded = drawn(&ragged.clone().padded_batch(3)).unwrap();
    assert_eq!(padded[0][0].as_slice::<i64>().unwrap(), [1, 0, 0, 2, 2, 0, 3, 3, 3]);
    assert_eq!(drawn(&ragged.batch(2)).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(five.clone().batch(2).cardinality(), Some(3));
    assert_eq!(five.repeat().cardinality(), None);
}

#[test]
fn shuffles_as_tensorflow_does() {
    let twelve = Dataset::range(0..12);
    // Recorded from tf.data.Dataset.range(12).shuffle(5, seed=7).repeat(2).
    assert_eq!(
        flat(&twelve.clone().shuffle(5, 7).repeat_times(2)),
        [2, 4, 0, 3, 8, 1, 9, 10, 5, 7, 6, 11, 4, 0, 3, 7, 2, 6, 8, 9, 11, 5, 1, 10]
    );
    // The same with reshuffle_each_iteration=False.
    let same = twelve.shuffle_with(Shuffle { buffer: 5, seed: 7, reshuffles: false });
    let order = [2, 3, 0, 7, 4, 8, 6, 11, 5, 10, 9, 1];
    assert_eq!(flat(&same.repeat_times(2)), [order, order].concat());
}

#[test]
fn errors_are_reported_when_elements_are_drawn() {
    for (dataset, text) in [
        (Dataset::range(0..3).batch(0), "Batch size must be greater than zero"),
        (Dataset::range(0..3).shard(2, 2).map(times(2)), "Index must be between 0 and 1"),
        (Dataset::tensors([Tensor::scalar(1i64)]).unbatch(), "non-zero rank"),
        (Dataset::slices([Tensor::scalar(1i64)]).repeat(), "at least 1-dimensional"),
    ] {
        let e = drawn(&dataset.take(1)).unwrap_err();
        assert!(e.message().contains(text), "{e}");
    }
}

#[test]
fn a_cache_keeps_a_complete_pass() {
    let folder = Folder::new();
    for in_file in [false, true] {
        let made = Arc::new(AtomicU64::new(0));
        let source = endless(&made).take(5);
        let cached = match in_file {
            true => source.cache_in(&folder.path("numbers")),
            false => source.cache(),
        };
        // An incomplete pass leaves no cache.
        let first: Vec<_> = cached.elements_in(&step()).unwrap().take(3).collect();
        assert_eq!(first.len(), 3);
        assert_eq!(folder.names(), Vec::<String>::new());
        assert_eq!(flat(&cached), [0, 1, 2, 3, 4]);
        let so_far = made.load(Ordering::SeqCst);
        assert_eq!(flat(&cached.clone().repeat_times(2)), [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
        assert_eq!(made.load(Ordering::SeqCst), so_far);
    }
    // Another program finds the file, and notices if it is not whole.
    let other = Dataset::range(50..60).cache_in(&folder.path("numbers"));
    assert_eq!(flat(&other), [0, 1, 2, 3, 4]);
    let file = folder.path("numbers.thalweg-cache");
    let content = std::fs::read(&file).unwrap();
    for cut in 0..content.len() {
        std::fs::write(&file, &content[..cut]).unwrap();
        let e = drawn(&other).unwrap_err();
        assert!(e.code() == Code::DataLoss && e.message().contains(&file), "{cut}: {e}");
    }
}

#[test]
fn records_lines_and_pieces_of_files() {
    let folder = Folder::new();
    let (a, b) = (folder.records("a", &["one", "two"]), folder.records("b", &["three"]));
    let all: Vec<String> = texts(&Dataset::tfrecords([a.as_str(), b.as_str()]))
        .into_iter()
        .collect::<Result<_>>()
        .unwrap();
    assert_eq!(all, ["one", "two", "three"]);
    std::fs::write(folder.path("lines"), "x\r\ny\n\nz").unwrap();
    let lines = texts(&Dataset::text_lines([folder.path("lines")]));
    assert_eq!(lines.into_iter().collect::<Result<Vec<_>>>().unwrap(), ["x", "y", "", "z"]);
    std::fs::write(folder.path("pieces"), "HaabbF").unwrap();
    let length = FixedLength { header_bytes: 1, record_bytes: 2, footer_bytes: 1 };
    let pieces = texts(&Dataset::fixed_length([folder.path("pieces")], length));
    assert_eq!(pieces.into_iter().collect::<Result<Vec<_>>>().unwrap(), ["aa", "bb"]);
    let found = texts(&Dataset::matching_files(folder.path("?")));
    assert_eq!(found.into_iter().collect::<Result<Vec<_>>>().unwrap(), [a, b]);
}

#[test]
fn damage_names_the_file_and_the_element() {
    let folder = Folder::new();
    let good = folder.records("good", &["a", "b"]);
    let bad = folder.records("bad", &["c", "d", "e"]);
    let mut content = std::fs::read(&bad).unwrap();
    content[17 + 12] ^= 1; // The data of "d".
    std::fs::write(&bad, content).unwrap();
    let results = texts(&Dataset::tfrecords([&good, &bad, &good].map(String::as_str)));
    let e = results[3].as_ref().unwrap_err();
    assert_eq!(e.code(), Code::DataLoss);
    assert!(e.message().contains(&bad) && e.message().contains("byte 17"), "{e}");
    assert!(e.message().contains("element 3"), "{e}");
    // The files after it are read all the same.
    assert_eq!(results.len(), 6);

    let seen = Arc::new(AtomicU64::new(0));
    let counter = seen.clone();
    let options = |bad_records_max| {
        let counter = counter.clone();
        let on_bad_record: Arc<dyn Fn(&BadRecord) + Send + Sync> = Arc::new(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        RecordOptions { bad_records_max, on_bad_record: Some(on_bad_record), ..Default::default() }
    };
    let files = [&bad, &good, &bad].map(String::as_str);
    let within = texts(&Dataset::tfrecords_with(files, options(2)));
    let within: Vec<String> = within.into_iter().collect::<Result<_>>().unwrap();
    assert_eq!(within, ["c", "e", "a", "b", "c", "e"]);
    assert_eq!(seen.load(Ordering::SeqCst), 2);
    // The budget is that of all files together.
    let beyond = texts(&Dataset::tfrecords_with(files, options(1)));
    let refused: Vec<Code> = beyond.iter().filter_map(|r| Some(r.as_ref().err()?.code())).collect();
    assert_eq!(refused, [Code::DataLoss]);
    assert!(
        texts(&Dataset::tfrecords(["/no/such/file"]))[0].as_ref().is_err_and(|e| {
            e.code() == Code::NotFound && e.message().contains("/no/such/file")
        })
    );
}

#[test]
fn a_pipeline_that_is_stopped_ends_and_frees_what_it_held() {
    let made = Arc::new(AtomicU64::new(0));
    let pipeline = endless(&made).parallel_map(4, times(2)).batch(8).prefetch(4);
    let step = step();
    let mut elements = pipeline.elements_in(&step).unwrap();
    for i in 0..3 {
        let batch = elements.next().unwrap().unwrap();
        assert_eq!(batch[0].as_slice::<i64>().unwrap()[0], i * 16);
    }
    drop(elements);
    // Elements in production may be finished; then none is produced, and none is held.
    settled(&made);
    wait_until(|| step.budget().used_bytes() == 0);
}

/// The counter's value once it no longer changes.
fn settled(counter: &AtomicU64) -> u64 {
    loop {
        let before = counter.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(100));
        if counter.load(Ordering::SeqCst) == before {
            return before;
        }
    }
}

fn wait_until(holds: impl Fn() -> bool) {
    for _ in 0..200 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    panic!("it did not come about within 5 s");
}

#[test]
fn nothing_runs_further_ahead_of_a_slow_consumer_than_was_asked_for() {
    let made = Arc::new(AtomicU64::new(0));
    let pipeline = endless(&made).prefetch(10).parallel_map(3, times(1)).prefetch(5);
    let mut elements = pipeline.elements_in(&step()).unwrap();
    for taken in 1..=4 {
        elements.next().unwrap().unwrap();
        let ahead = settled(&made) - taken;
        assert!(ahead <= 10 + 3 + 5 + 2, "{ahead} elements ahead");
    }
}

#[test]
fn a_function_that_fails_or_panics_costs_its_element() {
    let odd = |element: Vec<Tensor>| match number(&element)? {
        3 => bail!(FailedPrecondition, "three"),
        5 => panic!("five"),
        _ => Ok(element),
    };
    let seven = Dataset::range(0..7);
    for pipeline in [
        seven.clone().map(odd),
        seven.clone().parallel_map(3, odd),
        seven.clone().map(odd).prefetch(2),
        seven.clone().parallel_map(3, odd).prefetch(2),
    ] {
        let results: Vec<_> = pipeline.elements_in(&step()).unwrap().collect();
        assert_eq!(results.len(), 7);
        let e = results[3].as_ref().unwrap_err();
        assert_eq!(e.code(), Code::FailedPrecondition);
        assert!(e.message().contains("three (at element 3"), "{e}");
        let e = results[5].as_ref().unwrap_err();
        assert!(e.message().contains("panicked: five"), "{e}");
        assert_eq!(number(results[6].as_ref().unwrap()).unwrap(), 6);
        assert_eq!(flat(&pipeline.ignore_errors()), [0, 1, 2, 4, 6]);
    }
}

/// The names of a list file: a file format that the program defines.
struct Names(String);

impl InputSource for Names {
    fn open(&self, files: &Arc<dyn Storage>) -> Result<ElementIter> {
        let content = files.read(&self.0, 1000)?;
        let names: Vec<String> =
            String::from_utf8_lossy(&content).split(';').map(str::to_owned).collect();
        let path = self.0.clone();
        Ok(Box::new(names.into_iter().map(move |name| match name.as_str() {
            "" => bail!(DataLoss, "{path}: a name is empty"),
            "!" => panic!("a name like that"),
            _ => Ok(vec![Tensor::scalar_string(name)]),
        })))
    }
}

#[test]
fn datasets_from_iterators_of_the_program() {
    let folder = Folder::new();
    std::fs::write(folder.path("names"), "ann;;bob;!;eve").unwrap();
    let results = texts(&Dataset::from_source(Names(folder.path("names"))).prefetch(2));
    let e = results[1].as_ref().unwrap_err();
    assert!(e.code() == Code::DataLoss && e.message().contains(&folder.path("names")), "{e}");
    assert!(e.message().contains("element 1 of a source"), "{e}");
    assert!(results[3].as_ref().is_err_and(|e| e.message().contains("a name like that")));
    let names: Vec<String> = results.into_iter().filter_map(Result::ok).collect();
    assert_eq!(names, ["ann", "bob", "eve"]);
    let missing = drawn(&Dataset::from_source(Names("/no/such".into()))).unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
}

#[test]
fn elements_can_be_drawn_on_another_thread() {
    let made = Arc::new(AtomicU64::new(0));
    let mut elements =
        endless(&made).parallel_map(2, times(1)).prefetch(2).elements_in(&step()).unwrap();
    assert_eq!(number(&elements.next().unwrap().unwrap()).unwrap(), 0);
    let rest = std::thread::scope(|s| {
        s.spawn(|| {
            elements.by_ref().take(50).map(|e| number(&e.unwrap()).unwrap()).collect::<Vec<_>>()
        })
        .join()
        .unwrap()
    });
    assert_eq!(rest, (1..51).collect::<Vec<i64>>());
}

#[test]
fn a_graph_draws_from_a_pipeline_of_the_program() {
    let mut scope = Scope::new(op_registry(FAMILIES).unwrap());
    let batches = (DType::Int64, PartialShape::new([None]));
    let input = in_graph(&mut scope, &[batches]).unwrap();
    let sum = {
        let axis = scope.constant(&Tensor::scalar(0i32)).unwrap();
        scope.op("Sum").inputs(&[input.components[0], axis]).build().unwrap()
    };
    let sum = scope.name_of(sum);
    let session =
        Session::new(scope.to_graph(), kernel_registry(FAMILIES), SessionOptions::default())
            .unwrap();
    let begin = |dataset: Dataset| {
        let dataset = dataset.into_tensor().unwrap();
        session.run(&[(&input.dataset, dataset)], &[], &[&input.initializer]).map(drop)
    };
    let draw = || session.run(&[], &[&sum], &[]).map(|r| r[0].scalar_value::<i64>().unwrap());
    assert_eq!(draw().unwrap_err().code(), Code::FailedPrecondition);
    begin(Dataset::range(0..5).parallel_map(2, times(2)).batch(3).prefetch(1)).unwrap();
    assert_eq!(draw().unwrap(), 6);
    assert_eq!(draw().unwrap(), 14);
    assert_eq!(draw().unwrap_err().code(), Code::OutOfRange);
    // An element of another dtype or shape than the graph expects fails the step that draws it.
    begin(Dataset::range(0..5).map(times(2))).unwrap();
    let e = draw().unwrap_err();
    assert!(e.code() == Code::InvalidArgument && e.message().contains("Incompatible shapes"));
    let typed = Dataset::range(0..5).typed(&[(DType::Float, PartialShape::scalar())]);
    assert_eq!(begin(typed).unwrap_err().code(), Code::InvalidArgument);
}

#[test]
fn a_session_that_goes_ends_a_pipeline_that_runs_ahead() {
    let made = Arc::new(AtomicU64::new(0));
    let mut scope = Scope::new(op_registry(FAMILIES).unwrap());
    let input = in_graph(&mut scope, &[(DType::Int64, PartialShape::scalar())]).unwrap();
    let next = scope.name_of(input.components[0]);
    let session =
        Session::new(scope.to_graph(), kernel_registry(FAMILIES), SessionOptions::default())
            .unwrap();
    let dataset = endless(&made).prefetch(4).into_tensor().unwrap();
    session.run(&[(&input.dataset, dataset)], &[], &[&input.initializer]).unwrap();
    session.run(&[], &[&next], &[]).unwrap();
    drop(session);
    let at_end = settled(&made);
    assert!(at_end <= 10, "{at_end}");
}
