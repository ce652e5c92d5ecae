//! Resources in a session: tables, accumulators, random generators, mutexes. A watchdog turns a hang
//! into a failure.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![expect(clippy::disallowed_methods, reason = "tests have threads and clocks of their own")]

mod support;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use support::*;
use thalweg_graph::{Output, Scope};
use thalweg_kernel::{Cancellation, ResourceManager};
use thalweg_runtime::{RunOptions, Session, SessionOptions};
use thalweg_tensor::{Code, DType, PartialShape, Result, Shape, Tensor, err};

fn input(s: &mut Scope, name: &str, dtype: DType) -> Output {
    s.op("Placeholder").name(name).attr("dtype", dtype).build().unwrap()
}

fn ints(values: &[i64]) -> Tensor {
    Tensor::vector(values).unwrap()
}

fn words(values: &[&str]) -> Tensor {
    let items = values.iter().map(|w| w.as_bytes().to_vec().into()).collect();
    Tensor::from_strings(Shape::new(&[values.len()]).unwrap(), items).unwrap()
}

fn integers(tensor: &Tensor) -> Vec<i64> {
    tensor.as_slice::<i64>().unwrap().to_vec()
}

/// Ops around a table: `find`, `insert`, `remove`, `import`, `size`, `export`, `initialize`, fed by
/// `keys`, `values` and `default`.
fn table_ops(s: &mut Scope, table: Output, key: DType, value: DType) {
    let keys = input(s, "keys", key);
    let values = input(s, "values", value);
    let default = input(s, "default", value);
    let mut op = |name: &str, op: &str, inputs: &[Output]| {
        s.op(op).name(name).inputs(inputs).build_all().unwrap();
    };
    op("find", "LookupTableFindV2", &[table, keys, default]);
    op("insert", "LookupTableInsertV2", &[table, keys, values]);
    op("remove", "LookupTableRemoveV2", &[table, keys]);
    op("import", "LookupTableImportV2", &[table, keys, values]);
    op("initialize", "InitializeTableV2", &[table, keys, values]);
    op("size", "LookupTableSizeV2", &[table]);
    s.op("LookupTableExportV2")
        .name("export")
        .input(table)
        .attr("Tkeys", key)
        .attr("Tvalues", value)
        .build_all()
        .unwrap();
}

fn hash_table(op: &str, name: &str) -> Scope {
    let mut s = scope();
    let table = s
        .op(op)
        .name("table")
        .attr("shared_name", name)
        .attr("key_dtype", DType::Int64)
        .attr("value_dtype", DType::Int64)
        .build()
        .unwrap();
    table_ops(&mut s, table, DType::Int64, DType::Int64);
    s
}

fn dense_table() -> Scope {
    let mut s = scope();
    let empty = s.constant(&Tensor::scalar(-1i64)).unwrap();
    let deleted = s.constant(&Tensor::scalar(-2i64)).unwrap();
    let table = s
        .op("MutableDenseHashTableV2")
        .name("table")
        .inputs(&[empty, deleted])
        .attr("value_dtype", DType::Int64)
        .attr("initial_num_buckets", 8)
        .build()
        .unwrap();
    table_ops(&mut s, table, DType::Int64, DType::Int64);
    s
}

struct TableSession(Session);

impl TableSession {
    fn change(&self, target: &str, keys: &[i64], values: &[i64]) -> Result<()> {
        let feeds = [("keys", ints(keys)), ("values", ints(values))];
        self.0.run(&feeds[..if target == "remove" { 1 } else { 2 }], &[], &[target]).map(drop)
    }

    fn find(&self, keys: &[i64], default: i64) -> Result<Vec<i64>> {
        let feeds = [("keys", ints(keys)), ("default", Tensor::scalar(default))];
        Ok(integers(&self.0.run(&feeds, &["find"], &[])?[0]))
    }

    fn size(&self) -> i64 {
        integers(&self.0.run(&[], &["size"], &[]).unwrap()[0])[0]
    }

    fn export(&self) -> Vec<(i64, i64)> {
        let out = self.0.run(&[], &["export:0", "export:1"], &[]).unwrap();
        integers(&out[0]).into_iter().zip(integers(&out[1])).collect()
    }
}

#[test]
fn mutable_hash_tables_equal_a_map() {
    for (scope, is_dense) in [(hash_table("MutableHashTableV2", "m"), false), (dense_table(), true)]
    {
        let table = TableSession(session(scope.to_graph(), 2));
        let mut model: HashMap<i64, i64> = HashMap::new();
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        for _ in 0..400 {
            let keys: Vec<i64> = (0..1 + random(6)).map(|_| random(60) as i64).collect();
            match random(3) {
                0 => {
                    let values: Vec<i64> = keys.iter().map(|_| random(1000) as i64).collect();
                    table.change("insert", &keys, &values).unwrap();
                    model.extend(keys.iter().copied().zip(values));
                }
                1 => {
                    table.change("remove", &keys, &[]).unwrap();
                    keys.iter().for_each(|key| _ = model.remove(key));
                }
                _ => {
                    let found: Vec<i64> =
                        keys.iter().map(|key| model.get(key).copied().unwrap_or(-7)).collect();
                    assert_eq!(table.find(&keys, -7).unwrap(), found);
                }
            }
            assert_eq!(table.size(), model.len() as i64);
        }
        let exported = table.export();
        let entries: HashMap<i64, i64> =
            exported.iter().copied().filter(|(key, _)| *key >= 0).collect();
        assert_eq!(entries, model);
        if !is_dense {
            assert_eq!(exported.len(), model.len());
            table.change("import", &[5, 6], &[50, 60]).unwrap();
            assert_eq!(table.export(), [(5, 50), (6, 60)]);
        }
    }
}

#[test]
fn dense_buckets_are_tensorflows() {
    let table = TableSession(session(dense_table().to_graph(), 1));
    let keys =
        |table: &TableSession| -> Vec<i64> { table.export().iter().map(|(key, _)| *key).collect() };
    table.change("insert", &[3, 11, 19, 2, 3], &[1, 2, 3, 4, 5]).unwrap();
    assert_eq!(keys(&table), [-1, -1, 2, 3, 11, -1, 19, -1]);
    table.change("remove", &[11, 77], &[]).unwrap();
    assert_eq!(keys(&table), [-1, -1, 2, 3, -2, -1, 19, -1]);
    table.change("insert", &[27], &[9]).unwrap();
    let more: Vec<i64> = (100..107).collect();
    table.change("insert", &more, &more).unwrap();
    assert_eq!(keys(&table), [-1, -1, 2, 3, 19, 100, 101, 102, 103, 104, 105, 27, -1, 106, -1, -1]);
    for key in [-1, -2] {
        assert_eq!(table.find(&[key], 0).unwrap_err().code(), Code::InvalidArgument);
        assert_eq!(table.change("insert", &[key], &[0]).unwrap_err().code(), Code::InvalidArgument);
    }
}

#[test]
fn static_tables_are_initialized_once() {
    let table = TableSession(session(hash_table("HashTableV2", "h").to_graph(), 1));
    let code = |result: Result<()>| result.unwrap_err().code();
    assert_eq!(table.size(), 0);
    assert_eq!(table.find(&[1], 0).unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(code(table.change("insert", &[1], &[1])), Code::Unimplemented);
    assert_eq!(code(table.change("remove", &[1], &[])), Code::Unimplemented);
    assert_eq!(code(table.change("initialize", &[], &[])), Code::InvalidArgument);
    assert_eq!(code(table.change("initialize", &[1, 2], &[1])), Code::InvalidArgument);
    assert_eq!(code(table.change("initialize", &[1, 1], &[1, 2])), Code::FailedPrecondition);
    table.change("initialize", &[1, 2, 1], &[10, 20, 10]).unwrap();
    assert_eq!(table.find(&[2, 3], 7).unwrap(), [20, 7]);
    table.change("initialize", &[8, 9], &[1, 2]).unwrap();
    assert_eq!(code(table.change("initialize", &[1], &[1])), Code::FailedPrecondition);
    assert_eq!(table.export(), [(1, 10), (2, 20)]);
}

#[test]
fn named_tables_outlive_sessions_and_others_do_not() {
    let resources = ResourceManager::new("localhost");
    let open = |scope: &Scope| {
        let options = SessionOptions { resources: Some(resources.clone()), ..options(1) };
        TableSession(Session::new(scope.to_graph(), registries().1, options).unwrap())
    };
    let (named, unnamed) =
        (hash_table("MutableHashTableV2", "n"), hash_table("MutableHashTableV2", ""));
    for (scope, kept) in [(&named, 1), (&unnamed, 0)] {
        let first = open(scope);
        first.change("insert", &[1], &[2]).unwrap();
        drop(first);
        assert_eq!(open(scope).size(), kept);
    }
    let (a, b) = (open(&named), open(&named));
    a.change("insert", &[5], &[6]).unwrap();
    assert_eq!(b.find(&[5], 0).unwrap(), [6]);
    resources.reset("localhost");
    assert_eq!(b.size(), 0);
    // The same name for other types.
    let mut s = scope();
    let table = s
        .op("MutableHashTableV2")
        .name("table")
        .attr("shared_name", "n")
        .attr("key_dtype", DType::String)
        .attr("value_dtype", DType::Int64)
        .build()
        .unwrap();
    table_ops(&mut s, table, DType::String, DType::Int64);
    let other = open(&s);
    let feeds = [("keys", words(&["a"])), ("default", Tensor::scalar(0i64))];
    assert_eq!(other.0.run(&feeds, &["find"], &[]).unwrap_err().code(), Code::InvalidArgument);
}

#[test]
fn inserts_beyond_the_memory_limit_leave_the_table_usable() {
    let limited = SessionOptions { memory_limit_bytes: 1 << 20, ..options(1) };
    let open = |scope: Scope| {
        TableSession(Session::new(scope.to_graph(), registries().1, limited.clone()).unwrap())
    };
    let keys = |batch: i64| -> Vec<i64> { (batch * 100..(batch + 1) * 100).collect() };
    for scope in [hash_table("MutableHashTableV2", "m"), dense_table()] {
        let table = open(scope);
        let full = (0..10_000).find(|&batch| {
            let keys = keys(batch);
            let inserted = table.change("insert", &keys, &keys);
            inserted.inspect_err(|e| assert_eq!(e.code(), Code::ResourceExhausted, "{e}")).is_err()
        });
        assert!(full.is_some_and(|batch| batch > 10), "{full:?}");
        assert!(table.size() >= 1000);
        // A lookup needs memory for its result, so elements are removed first.
        table.change("remove", &keys(0), &[]).unwrap();
        assert_eq!(table.find(&[5, 105, 999], -1).unwrap(), [-1, 105, 999]);
    }
    let mut s = scope();
    let empty = s.constant(&Tensor::scalar(-1i64)).unwrap();
    let deleted = s.constant(&Tensor::scalar(-2i64)).unwrap();
    for (buckets, width) in [(1i64 << 60, 1usize), (4, 1 << 60), (1 << 62, 1 << 40), (8, 1 << 61)] {
        let shape = PartialShape::new([Some(width)]);
        s.op("MutableDenseHashTableV2")
            .name(&format!("huge_{buckets}_{width}"))
            .inputs(&[empty, deleted])
            .attr("value_dtype", DType::Int64)
            .attr("value_shape", &shape)
            .attr("initial_num_buckets", buckets)
            .build()
            .unwrap();
    }
    let s = Session::new(s.to_graph(), registries().1, limited).unwrap();
    for name in s.with_graph(|g| -> Vec<String> {
        let huge = g.nodes().iter().filter(|n| n.name.starts_with("huge"));
        huge.map(|n| n.name.to_string()).collect()
    }) {
        let code = s.run(&[], &[], &[&name]).unwrap_err().code();
        assert!(
            matches!(code, Code::ResourceExhausted | Code::InvalidArgument),
            "{name}: {code:?}"
        );
    }
}

/// An accumulator with `apply`, `take`, `set` and `count`, fed by `step`, `gradient`, `required`.
fn accumulator(reduction: &str) -> Arc<Session> {
    let mut s = scope();
    let shape = PartialShape::new([Some(2)]);
    let handle = s
        .op("ResourceConditionalAccumulator")
        .attr("dtype", DType::Float)
        .attr("shape", &shape)
        .attr("reduction_type", reduction)
        .build()
        .unwrap();
    let step = input(&mut s, "step", DType::Int64);
    let gradient = input(&mut s, "gradient", DType::Float);
    let required = input(&mut s, "required", DType::Int32);
    let mut op = |name: &str, op: &str, inputs: &[Output]| {
        s.op(op).name(name).inputs(inputs).build_all().unwrap();
    };
    op("apply", "ResourceAccumulatorApplyGradient", &[handle, step, gradient]);
    op("set", "ResourceAccumulatorSetGlobalStep", &[handle, step]);
    op("count", "ResourceAccumulatorNumAccumulated", &[handle]);
    s.op("ResourceAccumulatorTakeGradient")
        .name("take")
        .inputs(&[handle, required])
        .attr("dtype", DType::Float)
        .build()
        .unwrap();
    Arc::new(session(s.to_graph(), 2))
}

fn apply(s: &Session, step: i64, gradient: [f32; 2]) -> Result<()> {
    let feeds = [("step", Tensor::scalar(step)), ("gradient", Tensor::vector(&gradient)?)];
    s.run(&feeds, &[], &["apply"]).map(drop)
}

fn take(s: &Session, options: &RunOptions, required: i32) -> Result<Vec<f32>> {
    let (out, _) =
        s.run_with(options, &[("required", Tensor::scalar(required))], &["take"], &[])?;
    Ok(out[0].as_slice::<f32>()?.to_vec())
}

fn count(s: &Session) -> i32 {
    s.run(&[], &["count"], &[]).unwrap()[0].scalar_value().unwrap()
}

#[test]
fn takes_wait_for_enough_gradients() {
    watched("an accumulator", || {
        let s = accumulator("MEAN");
        for round in 0..20i64 {
            let taker = {
                let s = s.clone();
                std::thread::spawn(move || take(&s, &RunOptions::default(), 4).unwrap())
            };
            let workers: Vec<_> = (0..4)
                .map(|i| {
                    let s = s.clone();
                    std::thread::spawn(move || apply(&s, round, [i as f32, 1.0]).unwrap())
                })
                .collect();
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            assert_eq!(taker.join().unwrap(), [1.5, 1.0]);
            assert_eq!(count(&s), 0);
            // Too late for this round, and so for the next.
            apply(&s, round, [100.0, 100.0]).unwrap();
            assert_eq!(count(&s), 0);
        }
    });
}

#[test]
fn sums_steps_and_mistakes() {
    let s = accumulator("SUM");
    let options = RunOptions::default();
    let code = |result: Result<Vec<f32>>| result.unwrap_err().code();
    assert_eq!(code(take(&s, &options, 0)), Code::InvalidArgument);
    let wrong = [("step", Tensor::scalar(0i64)), ("gradient", Tensor::vector(&[1.0f32]).unwrap())];
    assert_eq!(s.run(&wrong, &[], &["apply"]).unwrap_err().code(), Code::InvalidArgument);
    apply(&s, 0, [1.0, 2.0]).unwrap();
    apply(&s, 7, [1.0, 2.0]).unwrap();
    assert_eq!(count(&s), 2);
    assert_eq!(take(&s, &options, 1).unwrap(), [2.0, 4.0]);
    s.run(&[("step", Tensor::scalar(5i64))], &[], &["set"]).unwrap();
    apply(&s, 4, [9.0, 9.0]).unwrap();
    assert_eq!(count(&s), 0);
    apply(&s, 5, [3.0, 4.0]).unwrap();
    assert_eq!(take(&s, &options, 1).unwrap(), [3.0, 4.0]);
    // What was taken is the caller's: it does not change with what comes later.
    apply(&s, 6, [1.0, 1.0]).unwrap();
    assert_eq!(take(&s, &options, 1).unwrap(), [1.0, 1.0]);
}

#[test]
fn waits_end_with_their_steps() {
    watched("a cancelled take", || {
        let s = accumulator("MEAN");
        let late = RunOptions { timeout: Some(Duration::from_millis(30)), ..Default::default() };
        for _ in 0..3 {
            assert_eq!(take(&s, &late, 2).unwrap_err().code(), Code::DeadlineExceeded);
        }
        let handle = Cancellation::default();
        let options = RunOptions { cancellation: Some(handle.clone()), ..Default::default() };
        let first = {
            let s = s.clone();
            std::thread::spawn(move || take(&s, &options, 100).unwrap_err())
        };
        std::thread::sleep(Duration::from_millis(30));
        let second = {
            let s = s.clone();
            std::thread::spawn(move || take(&s, &RunOptions::default(), 1).unwrap())
        };
        apply(&s, 0, [1.0, 2.0]).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        handle.cancel(err!(Aborted, "enough"));
        assert_eq!(first.join().unwrap().code(), Code::Aborted);
        // The step that waited for the mutex gets it now.
        assert_eq!(second.join().unwrap(), [1.0, 2.0]);
        assert_eq!(count(&s), 0);
    });
}

/// A generator in a variable, with the ops that use it.
fn generator() -> Session {
    let mut s = scope();
    let shape = PartialShape::new([Some(3)]);
    let handle = s
        .op("VarHandleOp")
        .name("state")
        .attr("dtype", DType::Int64)
        .attr("shape", &shape)
        .build()
        .unwrap();
    let start = s.constant(&ints(&[1, 2, 3])).unwrap();
    s.op("AssignVariableOp").name("init").inputs(&[handle, start]).build_all().unwrap();
    s.op("ReadVariableOp").name("read").input(handle).attr("dtype", DType::Int64).build().unwrap();
    let philox = input(&mut s, "algorithm", DType::Int64);
    let shape = input(&mut s, "shape", DType::Int64);
    let low = s.constant(&Tensor::scalar(3i64)).unwrap();
    let high = s.constant(&Tensor::scalar(30i64)).unwrap();
    let counts = s.constant(&Tensor::scalar(10.0f32)).unwrap();
    let probs = s.constant(&Tensor::scalar(0.5f32)).unwrap();
    let delta = s.constant(&Tensor::scalar(5i64)).unwrap();
    let mut op = |name: &str, op: &str, inputs: &[Output]| {
        s.op(op).name(name).inputs(inputs).build_all().unwrap();
    };
    op("uniform", "StatefulUniform", &[handle, philox, shape]);
    op("normal", "StatefulStandardNormalV2", &[handle, philox, shape]);
    op("full", "StatefulUniformFullInt", &[handle, philox, shape]);
    op("int", "StatefulUniformInt", &[handle, philox, shape, low, high]);
    op("binomial", "StatefulRandomBinomial", &[handle, philox, shape, counts, probs]);
    op("skip", "RngSkip", &[handle, philox, delta]);
    session(s.to_graph(), 2)
}

#[test]
fn generators_are_tensorflows() {
    let s = generator();
    let run = |name: &str, n: i64| {
        s.run(&[], &[], &["init"]).unwrap();
        let feeds = [("algorithm", Tensor::scalar(1i64)), ("shape", ints(&[n]))];
        let out = s.run(&feeds, &[name], &[]).unwrap().remove(0);
        (out, integers(&s.run(&[], &["read"], &[]).unwrap()[0]))
    };
    let (out, state) = run("uniform", 3);
    assert_eq!(out.as_slice::<f32>().unwrap(), [0.459_011_67, 0.533_424_85, 0.962_773_2]);
    assert_eq!(state, [769, 2, 3]);
    let (out, _) = run("normal", 3);
    assert_eq!(out.as_slice::<f32>().unwrap(), [-0.260_163_75, -1.220_522, -0.267_708_54]);
    let (out, _) = run("full", 2);
    assert_eq!(
        out.as_slice::<u64>().unwrap(),
        [17_457_156_414_005_493_989, 13_176_169_492_553_350_183]
    );
    assert_eq!(integers(&run("int", 4).0), [23, 22, 28, 19]);
    let (out, state) = run("binomial", 7);
    assert_eq!((integers(&out), state), (vec![6, 4, 5, 3, 7, 4, 6], vec![128_001, 2, 3]));
    assert_eq!(run("binomial", 0).1, [38_401, 2, 3]);
    assert_eq!(run("uniform", 0).1, [1, 2, 3]);
    let feeds = [("algorithm", Tensor::scalar(1i64))];
    s.run(&feeds, &[], &["skip"]).unwrap();
    assert_eq!(integers(&s.run(&[], &["read"], &[]).unwrap()[0]), [1281, 2, 3]);
    for (algorithm, code) in [(2i64, Code::Unimplemented), (9, Code::InvalidArgument)] {
        let feeds = [("algorithm", Tensor::scalar(algorithm)), ("shape", ints(&[1]))];
        assert_eq!(s.run(&feeds, &["uniform"], &[]).unwrap_err().code(), code);
    }
}

#[test]
fn slices_of_variables_are_written_in_place() {
    let mut s = scope();
    let shape = PartialShape::new([Some(6)]);
    let handle = s
        .op("VarHandleOp")
        .name("v")
        .attr("dtype", DType::Int64)
        .attr("shape", &shape)
        .build()
        .unwrap();
    let start = s.constant(&ints(&[0, 1, 2, 3, 4, 5])).unwrap();
    s.op("AssignVariableOp").name("init").inputs(&[handle, start]).build_all().unwrap();
    s.op("ReadVariableOp").name("read").input(handle).attr("dtype", DType::Int64).build().unwrap();
    let value = input(&mut s, "value", DType::Int64);
    let slice: Vec<Output> = ["begin", "end", "strides"]
        .map(|name| input(&mut s, name, DType::Int64))
        .into_iter()
        .collect();
    s.op("ResourceStridedSliceAssign")
        .name("put")
        .input(handle)
        .inputs(&slice)
        .input(value)
        .build_all()
        .unwrap();
    let s = session(s.to_graph(), 1);
    s.run(&[], &[], &["init"]).unwrap();
    let put = |slice: [i64; 3], value: Tensor| {
        let [begin, end, strides] = slice.map(|x| ints(&[x]));
        let feeds = [("begin", begin), ("end", end), ("strides", strides), ("value", value)];
        s.run(&feeds, &[], &["put"]).map(drop)
    };
    put([1, 3, 1], Tensor::scalar(9i64)).unwrap();
    put([-1, -3, -1], ints(&[50, 60])).unwrap();
    put([3, 1, 1], Tensor::scalar(7i64)).unwrap();
    put([2, 3, 1], ints(&[8]).reshaped(Shape::new(&[1, 1, 1]).unwrap()).unwrap()).unwrap();
    assert_eq!(integers(&s.run(&[], &["read"], &[]).unwrap()[0]), [0, 9, 8, 3, 60, 50]);
    assert_eq!(put([1, 3, 1], ints(&[1, 2, 3])).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(put([1, 3, 0], ints(&[1])).unwrap_err().code(), Code::InvalidArgument);
}

#[test]
fn a_mutex_is_held_by_one_step_at_a_time() {
    watched("a mutex", || {
        let mut s = scope();
        let mutex = s.op("MutexV2").name("mutex").build().unwrap();
        let lock = s.op("MutexLock").name("lock").input(mutex).build().unwrap();
        let x = s.constant(&number(1.0)).unwrap();
        let mut locked = s.after(&[lock.node]);
        let slow = toy_async(&mut locked, "slow", "slow", x);
        let mut then = s.after(&[slow.node]);
        then.op("ConsumeMutexLock").name("leave").input(lock).build_all().unwrap();
        let s = Arc::new(session(s.to_graph(), 2));
        let late = RunOptions { timeout: Some(Duration::from_millis(50)), ..Default::default() };
        let begin = std::time::Instant::now();
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let s = s.clone();
                std::thread::spawn(move || s.run(&[], &[], &["leave"]).unwrap())
            })
            .collect();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(
            s.run_with(&late, &[], &[], &["leave"]).unwrap_err().code(),
            Code::DeadlineExceeded
        );
        threads.into_iter().for_each(|thread| drop(thread.join().unwrap()));
        assert!(begin.elapsed() >= Duration::from_millis(850), "three times 300 ms, one by one");
        s.run(&[], &[], &["leave"]).unwrap();
    });
}
