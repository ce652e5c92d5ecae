//! The smallest distributed TensorFlow that works, in Rust's standard library alone: graph, gradient,
//! placement, send and receive, tasks as processes, a parameter server. "TensorFlow from scratch", a
//! chapter of the book, explains it.
//!
//! It starts a parameter server and two workers, trains a net to compute XOR, and prints the loss,
//! which falls below 0.01, and what the net says then: about 0, 1, 1, 0.
#![allow(clippy::disallowed_methods, reason = "this program has threads of its own")]

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, mpsc};
use std::thread;

type Result<T> = std::result::Result<T, String>;

// ANCHOR: tensor
/// A matrix of floats; a number is a matrix of one element.
#[derive(Clone, Debug, Default, PartialEq)]
struct Tensor {
    rows: usize,
    cols: usize,
    data: Vec<f32>,
}

impl Tensor {
    fn new(rows: usize, cols: usize, data: &[f32]) -> Tensor {
        Tensor { rows, cols, data: data.to_vec() }
    }

    fn map(&self, f: impl Fn(f32) -> f32) -> Tensor {
        Tensor { data: self.data.iter().map(|&x| f(x)).collect(), ..*self }
    }

    /// `f` of the elements at the same places.
    fn zip(&self, other: &Tensor, f: impl Fn(f32, f32) -> f32) -> Result<Tensor> {
        if (self.rows, self.cols) != (other.rows, other.cols) {
            return Err(format!("shapes differ: {} and {}", self.shape(), other.shape()));
        }
        let data = self.data.iter().zip(&other.data).map(|(&x, &y)| f(x, y)).collect();
        Ok(Tensor { data, ..*self })
    }

    fn matmul(&self, transpose: bool, other: &Tensor, transpose_other: bool) -> Result<Tensor> {
        let (a, b) = (self.view(transpose), other.view(transpose_other));
        if a.1 != b.0 {
            return Err(format!("cannot multiply {} by {}", self.shape(), other.shape()));
        }
        let product = |row: usize, col: usize, i: usize| {
            self.data[row * a.2 + i * a.3] * other.data[i * b.2 + col * b.3]
        };
        let sum = |row: usize, col: usize| (0..a.1).map(|i| product(row, col, i)).sum();
        let data = (0..a.0 * b.1).map(|at| sum(at / b.1, at % b.1)).collect();
        Ok(Tensor { rows: a.0, cols: b.1, data })
    }

    /// Rows, columns, and how far apart in memory their elements are.
    fn view(&self, transposed: bool) -> (usize, usize, usize, usize) {
        match transposed {
            false => (self.rows, self.cols, self.cols, 1),
            true => (self.cols, self.rows, 1, self.cols),
        }
    }

    fn shape(&self) -> String {
        format!("[{},{}]", self.rows, self.cols)
    }

    /// `2 1 0.5 -3`: rows, columns, elements.
    fn text(&self) -> String {
        let data: String = self.data.iter().map(|x| format!(" {x}")).collect();
        format!("{} {}{data}", self.rows, self.cols)
    }

    fn parse(text: &str) -> Result<Tensor> {
        let wrong = |_| format!("'{text}' is no tensor");
        let numbers: std::result::Result<Vec<f32>, _> = text.split(' ').map(str::parse).collect();
        match &numbers.map_err(wrong)?[..] {
            &[rows, cols, ref data @ ..] if rows * cols == data.len() as f32 => {
                Ok(Tensor::new(rows as usize, cols as usize, data))
            }
            _ => Err(format!("'{text}' has not as many elements as its shape")),
        }
    }
}
// ANCHOR_END: tensor

// ANCHOR: graph
/// An op by its name, with attrs and the nodes that it reads.
#[derive(Clone, Debug, Default, PartialEq)]
struct Node {
    op: String,
    attrs: Vec<String>,
    inputs: Vec<usize>,
    /// The task that the program wants, if it wants one.
    task: Option<usize>,
}

/// Nodes read only nodes before them: the order in which they were made is one to run them in.
#[derive(Clone, Debug, Default, PartialEq)]
struct Graph(Vec<Node>);

impl Graph {
    fn add(&mut self, op: &str, attrs: &[&str], inputs: &[usize]) -> usize {
        let attrs = attrs.iter().map(|&attr| attr.into()).collect();
        self.0.push(Node { op: op.into(), attrs, inputs: inputs.to_vec(), task: None });
        self.0.len() - 1
    }

    /// A variable on `task`, and the node that initializes it.
    fn variable(&mut self, name: &str, task: usize, init: &Tensor) -> (usize, usize) {
        let variable = self.add("Variable", &[name], &[]);
        self.0[variable].task = Some(task);
        let value = self.add("Const", &[&init.text()], &[]);
        (variable, self.add("Assign", &[name], &[value]))
    }
}
// ANCHOR_END: graph

// ANCHOR: gradients
impl Graph {
    /// Adds the nodes that compute the derivatives of `y`, a number, by each of `xs`.
    fn gradients(&mut self, y: usize, xs: &[usize]) -> Result<Vec<usize>> {
        let mut adjoints = HashMap::from([(y, self.add("Const", &["1 1 1"], &[]))]);
        for id in (0..=y).rev() {
            let Some(&dy) = adjoints.get(&id) else { continue };
            let node = self.0[id].clone();
            for (&input, adjoint) in node.inputs.iter().zip(self.adjoints(&node, id, dy)?) {
                let sum = match adjoints.get(&input) {
                    Some(&other) => self.add("Add", &[], &[other, adjoint]),
                    None => adjoint,
                };
                adjoints.insert(input, sum);
            }
        }
        let of = |x: &usize| adjoints.get(x).copied().ok_or(format!("{y} does not depend on {x}"));
        xs.iter().map(of).collect()
    }

    /// The adjoints of a node's inputs, from the adjoint of its output `y`.
    fn adjoints(&mut self, node: &Node, y: usize, dy: usize) -> Result<Vec<usize>> {
        Ok(match (node.op.as_str(), &node.inputs[..]) {
            (_, []) => vec![],
            ("MatMul", &[a, b]) => {
                let da = self.add("MatMul", &["", "transpose"], &[dy, b]);
                vec![da, self.add("MatMul", &["transpose", ""], &[a, dy])]
            }
            ("Add", _) => vec![dy, dy],
            ("Sub", _) => vec![dy, self.add("Neg", &[], &[dy])],
            ("Mul", &[a, b]) => {
                vec![self.add("Mul", &[], &[dy, b]), self.add("Mul", &[], &[dy, a])]
            }
            ("Tanh", _) => vec![self.add("TanhGrad", &[], &[y, dy])],
            ("Mean", &[x]) => vec![self.add("MeanGrad", &[], &[x, dy])],
            (op, _) => return Err(format!("node {y}: {op} has no gradient")),
        })
    }
}
// ANCHOR_END: gradients

// ANCHOR: place
/// The nodes that the fetches need.
fn prune(graph: &Graph, fetches: &[usize]) -> Vec<bool> {
    let mut needed = vec![false; graph.0.len()];
    fetches.iter().for_each(|&fetch| needed[fetch] = true);
    for (id, node) in graph.0.iter().enumerate().rev() {
        let reads = needed[id];
        node.inputs.iter().for_each(|&input| needed[input] |= reads);
    }
    needed
}

/// A task for each node: that of its variable, or the one it wants, or else the master's.
fn place(graph: &Graph, master: usize) -> Vec<usize> {
    let of = |name: &[String]| graph.0.iter().find(|v| v.op == "Variable" && v.attrs == name)?.task;
    let task = |node: &Node| match node.op.as_str() {
        "Assign" | "Descend" => of(&node.attrs),
        _ => node.task,
    };
    graph.0.iter().map(|node| task(node).unwrap_or(master)).collect()
}
// ANCHOR_END: place

// ANCHOR: partition
/// A graph for each task. An edge between tasks becomes a `Send` and a `Recv`, once for each task
/// that reads the tensor; a fetched tensor gets a `Fetch`.
fn partition(graph: &Graph, tasks: &[String], places: &[usize], fetches: &[usize]) -> Vec<Graph> {
    let needed = prune(graph, fetches);
    let mut parts = vec![Graph::default(); tasks.len()];
    // Where the output of a node is within the partition of a task.
    let mut outputs: HashMap<(usize, usize), usize> = HashMap::new();
    for (id, node) in graph.0.iter().enumerate().filter(|(id, _)| needed[*id]) {
        let to = places[id];
        for &input in &node.inputs {
            let from = places[input];
            if !outputs.contains_key(&(input, to)) {
                let key = format!("edge_{input}_to_{to}");
                parts[from].add("Send", &[&key], &[outputs[&(input, from)]]);
                let received = parts[to].add("Recv", &[&key, &tasks[from]], &[]);
                outputs.insert((input, to), received);
            }
        }
        let inputs = node.inputs.iter().map(|&input| outputs[&(input, to)]).collect();
        parts[to].0.push(Node { inputs, ..node.clone() });
        outputs.insert((id, to), parts[to].0.len() - 1);
    }
    for &fetch in fetches {
        parts[places[fetch]].add("Fetch", &[], &[outputs[&(fetch, places[fetch])]]);
    }
    parts
}
// ANCHOR_END: partition

// ANCHOR: wire
impl Graph {
    /// A line for each node: op, attrs, inputs, with tabs between. This is our GraphDef.
    fn text(&self) -> String {
        let inputs = |node: &Node| node.inputs.iter().map(|i| format!("{i} ")).collect::<String>();
        let line = |n: &Node| format!("{}\t{}\t{}\n", n.op, n.attrs.join("\t"), inputs(n));
        self.0.iter().map(line).collect()
    }

    fn parse(text: &str) -> Result<Graph> {
        let mut graph = Graph::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split('\t').collect();
            let [op, attrs @ .., inputs] = &words[..] else {
                return Err(format!("no node: {line}"));
            };
            let inputs: Vec<usize> = inputs.split(' ').filter_map(|i| i.parse().ok()).collect();
            let inputs_of = |op: &str| match op {
                "Const" | "Placeholder" | "Variable" | "Recv" => 0,
                "MatMul" | "Add" | "Sub" | "Mul" | "TanhGrad" | "MeanGrad" => 2,
                _ => 1,
            };
            // What comes from outside is checked where it comes in.
            if inputs.len() != inputs_of(op) || inputs.iter().any(|&i| i >= graph.0.len()) {
                return Err(format!("node with wrong inputs: {line}"));
            }
            graph.add(op, attrs, &inputs);
        }
        Ok(graph)
    }
}

/// Sends a request to a task and waits for its answer.
fn call(address: &str, request: &str) -> Result<String> {
    let talk = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(request.as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = talk().map_err(|e| format!("task {address} is lost: {e}"))?;
    match answer.split_once('\n') {
        Some(("ok", rest)) => Ok(rest.to_owned()),
        Some(("error", rest)) => Err(rest.to_owned()),
        _ => Err(format!("task {address} is lost: it did not answer")),
    }
}
// ANCHOR_END: wire

// ANCHOR: rendezvous
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics while it holds a lock")
}

/// Where a `Send` and its `Recv` meet, in either order.
#[derive(Default)]
struct Rendezvous {
    tensors: Mutex<HashMap<(u64, String), Tensor>>,
    aborted: Mutex<HashSet<u64>>,
    changed: Condvar,
}

impl Rendezvous {
    fn send(&self, step: u64, key: &str, tensor: Tensor) {
        lock(&self.tensors).insert((step, key.to_owned()), tensor);
        self.changed.notify_all();
    }

    /// Waits until the tensor is there, or the step has failed elsewhere.
    fn recv(&self, step: u64, key: &str) -> Result<Tensor> {
        let mut tensors = lock(&self.tensors);
        loop {
            if let Some(tensor) = tensors.remove(&(step, key.to_owned())) {
                return Ok(tensor);
            } else if lock(&self.aborted).contains(&step) {
                return Err(format!("step {step} was aborted"));
            }
            tensors = self.changed.wait(tensors).expect("see `lock`");
        }
    }

    fn abort(&self, step: u64) {
        let mut tensors = lock(&self.tensors);
        lock(&self.aborted).insert(step);
        tensors.retain(|key, _| key.0 != step);
        self.changed.notify_all();
    }
}
// ANCHOR_END: rendezvous

// ANCHOR: executor
#[derive(Default)]
struct Task {
    state: Mutex<HashMap<String, Tensor>>,
    graphs: Mutex<Vec<Arc<Graph>>>,
    rendezvous: Rendezvous,
}

impl Task {
    /// Runs a partition node by node; the fetched tensors, a line each.
    fn run(&self, graph: &Graph, step: u64, feeds: &str) -> Result<String> {
        let mut values: Vec<Tensor> = Vec::new();
        let mut fetched = String::new();
        for node in &graph.0 {
            let input = |i: usize| &values[node.inputs[i]];
            let attr = |i: usize| node.attrs.get(i).map(String::as_str).unwrap_or_default();
            let value = match node.op.as_str() {
                "Const" => Tensor::parse(attr(0))?,
                "Placeholder" => {
                    let line = |line| str::strip_prefix(line, attr(0))?.strip_prefix(' ');
                    let fed = feeds.lines().find_map(line);
                    Tensor::parse(fed.ok_or_else(|| format!("'{}' has to be fed", attr(0)))?)?
                }
                "Variable" | "Assign" | "Descend" => {
                    let mut state = lock(&self.state);
                    let old = state.get(attr(0)).ok_or(format!("'{}' has no value", attr(0)));
                    let new = match node.op.as_str() {
                        "Variable" => old?.clone(),
                        "Assign" => input(0).clone(),
                        _ => old?.zip(input(0), |w, dw| w - 0.1 * dw)?,
                    };
                    state.insert(attr(0).into(), new.clone());
                    new
                }
                "MatMul" => {
                    input(0).matmul(attr(0) == "transpose", input(1), attr(1) == "transpose")?
                }
                "Add" => input(0).zip(input(1), |x, y| x + y)?,
                "Sub" => input(0).zip(input(1), |x, y| x - y)?,
                "Mul" => input(0).zip(input(1), |x, y| x * y)?,
                "Neg" => input(0).map(|x| -x),
                "Tanh" => input(0).map(f32::tanh),
                "TanhGrad" => input(0).zip(input(1), |y, dy| dy * (1.0 - y * y))?,
                "Mean" => {
                    let sum: f32 = input(0).data.iter().sum();
                    Tensor::new(1, 1, &[sum / input(0).data.len() as f32])
                }
                "MeanGrad" => {
                    let dy = input(1).data.first().ok_or("the adjoint of a mean is a number")?;
                    input(0).map(|_| dy / input(0).data.len() as f32)
                }
                "Send" => {
                    self.rendezvous.send(step, attr(0), input(0).clone());
                    Tensor::default()
                }
                "Recv" => {
                    Tensor::parse(&call(attr(1), &format!("RecvTensor {step} {}\n", attr(0)))?)?
                }
                "Fetch" => {
                    fetched += &format!("{}\n", input(0).text());
                    Tensor::default()
                }
                op => return Err(format!("there is no kernel for {op}")),
            };
            values.push(value);
        }
        Ok(fetched)
    }
}
// ANCHOR_END: executor

// ANCHOR: service
impl Task {
    fn answer(&self, request: &str) -> Result<String> {
        let (head, body) = request.split_once('\n').ok_or("no request")?;
        let words: Vec<&str> = head.split(' ').collect();
        let number = |word: &str| word.parse::<u64>().map_err(|e| format!("'{word}': {e}"));
        match words[..] {
            ["RegisterGraph"] => {
                let mut graphs = lock(&self.graphs);
                graphs.push(Arc::new(Graph::parse(body)?));
                Ok((graphs.len() - 1).to_string())
            }
            ["RunGraph", handle, step] => {
                let graph = lock(&self.graphs).get(number(handle)? as usize).cloned();
                self.run(&*graph.ok_or("no such graph")?, number(step)?, body)
            }
            ["RecvTensor", step, key] => Ok(self.rendezvous.recv(number(step)?, key)?.text()),
            ["AbortStep", step] => {
                self.rendezvous.abort(number(step)?);
                Ok(String::new())
            }
            _ => Err(format!("'{head}' is no request")),
        }
    }

    /// Answers requests for ever, each on a thread of its own.
    fn serve(self: &Arc<Self>, listener: &TcpListener) {
        for mut stream in listener.incoming().flatten() {
            let task = self.clone();
            thread::spawn(move || {
                let mut request = String::new();
                let _ = stream.read_to_string(&mut request);
                let answer = task.answer(&request);
                let answer = answer.map_or_else(|e| format!("error\n{e}"), |a| format!("ok\n{a}"));
                let _ = stream.write_all(answer.as_bytes());
            });
        }
    }
}
// ANCHOR_END: service

// ANCHOR: session
/// Of each task of a step: its index, the handle of its partition, which fetches it has.
type Plan = Vec<(usize, String, Vec<usize>)>;

/// A client's session with its master.
struct Session {
    graph: Graph,
    tasks: Vec<String>,
    master: usize,
    plans: HashMap<Vec<usize>, Plan>,
    step: u64,
}

impl Session {
    /// `id` tells the steps of this session from those of others.
    fn new(graph: &Graph, tasks: &[String], master: usize, id: u64) -> Session {
        let (graph, tasks) = (graph.clone(), tasks.to_vec());
        Session { graph, tasks, master, plans: HashMap::new(), step: id << 32 }
    }

    fn plan(&self, fetches: &[usize]) -> Result<Plan> {
        let places = place(&self.graph, self.master);
        let parts = partition(&self.graph, &self.tasks, &places, fetches);
        let parts = parts.iter().enumerate().filter(|(_, part)| !part.0.is_empty());
        let register = |(task, part): (usize, &Graph)| {
            let handle = call(&self.tasks[task], &format!("RegisterGraph\n{}", part.text()))?;
            let own = (0..fetches.len()).filter(|&i| places[fetches[i]] == task);
            Ok((task, handle, own.collect()))
        };
        parts.map(register).collect()
    }

    fn run(&mut self, feeds: &[(&str, &Tensor)], fetches: &[usize]) -> Result<Vec<Tensor>> {
        if !self.plans.contains_key(fetches) {
            self.plans.insert(fetches.to_vec(), self.plan(fetches)?);
        }
        self.step += 1;
        let (plan, step) = (&self.plans[fetches], self.step);
        let feeds: String = feeds.iter().map(|(n, x)| format!("{n} {}\n", x.text())).collect();
        let (done, answers) = mpsc::channel();
        for (i, (task, handle, _)) in plan.iter().enumerate() {
            let request = format!("RunGraph {handle} {step}\n{feeds}");
            let (address, done) = (self.tasks[*task].clone(), done.clone());
            thread::spawn(move || done.send((i, call(&address, &request))));
        }
        let mut results = vec![Tensor::default(); fetches.len()];
        let mut failed = None;
        for (i, answer) in answers.iter().take(plan.len()) {
            let tensors = answer.and_then(|t| t.lines().map(Tensor::parse).collect::<Result<_>>());
            match tensors {
                Ok::<Vec<_>, _>(tensors) => {
                    plan[i].2.iter().zip(tensors).for_each(|(&at, tensor)| results[at] = tensor);
                }
                // The first error is the step's; tasks that wait for a tensor of it stop waiting.
                Err(error) if failed.is_none() => {
                    failed = Some(error);
                    for task in &self.tasks {
                        let _ = call(task, &format!("AbortStep {step}\n"));
                    }
                }
                Err(_) => {}
            }
        }
        failed.map_or(Ok(results), Err)
    }
}
// ANCHOR_END: session

// ANCHOR: train
/// A net of one hidden layer that learns XOR, its variables on task 0: the graph, the nodes that
/// initialize, the output, and the fetches of a training step, of which the loss is the first.
fn net() -> Result<(Graph, Vec<usize>, usize, Vec<usize>)> {
    let mut g = Graph::default();
    let weights = (0..24).map(|i| ((i * 7919 + 13) % 17) as f32 / 8.5 - 1.0).collect::<Vec<_>>();
    let (x, wanted) = (g.add("Placeholder", &["x"], &[]), g.add("Placeholder", &["wanted"], &[]));
    let (w1, init1) = g.variable("w1", 0, &Tensor::new(3, 8, &weights));
    let (w2, init2) = g.variable("w2", 0, &Tensor::new(8, 1, &weights[..8]));
    let product = g.add("MatMul", &[], &[x, w1]);
    let hidden = g.add("Tanh", &[], &[product]);
    let output = g.add("MatMul", &[], &[hidden, w2]);
    let error = g.add("Sub", &[], &[output, wanted]);
    let square = g.add("Mul", &[], &[error, error]);
    let loss = g.add("Mean", &[], &[square]);
    let slopes = g.gradients(loss, &[w1, w2])?;
    let updates =
        [g.add("Descend", &["w1"], &slopes[..1]), g.add("Descend", &["w2"], &slopes[1..])];
    Ok((g, vec![init1, init2], output, vec![loss, updates[0], updates[1]]))
}

/// Trains with two workers at once, on tasks 1 and 2; the last loss, and what the net says.
fn train(tasks: &[String], steps: usize) -> Result<(f32, Vec<f32>)> {
    // The third column is ones, in place of a bias.
    let x = Tensor::new(4, 3, &[0., 0., 1., 0., 1., 1., 1., 0., 1., 1., 1., 1.]);
    let wanted = Tensor::new(4, 1, &[0., 1., 1., 0.]);
    let feeds = [("x", &x), ("wanted", &wanted)];
    let (graph, init, output, step) = net()?;
    Session::new(&graph, tasks, 1, 0).run(&[], &init)?;
    let worker = |index: usize| -> Result<()> {
        let mut session = Session::new(&graph, tasks, index, index as u64);
        (0..steps).try_for_each(|_| session.run(&feeds, &step).map(|_| ()))
    };
    thread::scope(|scope| {
        let workers = [1, 2].map(|index| scope.spawn(move || worker(index)));
        workers.into_iter().try_for_each(|w| w.join().map_err(|_| "a worker panicked")?)
    })?;
    let found = Session::new(&graph, tasks, 1, 3).run(&feeds, &[step[0], output])?;
    Ok((found[0].data[0], found[1].data.clone()))
}
// ANCHOR_END: train

// ANCHOR: main
/// This program again, as a task of its own, and the address that it prints.
fn start_task() -> std::io::Result<(Child, String)> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = command.arg("task").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut address = String::new();
    child.stdout.take().map(|out| BufReader::new(out).read_line(&mut address)).transpose()?;
    Ok((child, address.trim().to_owned()))
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    if std::env::args().nth(1).as_deref() == Some("task") {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        println!("{}", listener.local_addr()?);
        thread::spawn(move || Arc::new(Task::default()).serve(&listener));
        // Until our parent ends, or lets go of our standard input.
        std::io::stdin().read_to_end(&mut Vec::new())?;
        return Ok(());
    }
    let tasks = (0..3).map(|_| start_task()).collect::<std::io::Result<Vec<_>>>()?;
    let addresses: Vec<String> = tasks.iter().map(|(_, address)| address.clone()).collect();
    let (loss, said) = train(&addresses, 1000)?;
    println!("loss {loss:.4}; XOR of 00, 01, 10, 11 is {said:.2?}");
    assert!(loss < 0.01, "the net has not learned");
    for (mut task, _) in tasks {
        drop(task.stdin.take());
        task.wait()?;
    }
    Ok(())
}
// ANCHOR_END: main

#[cfg(test)]
mod tests {
    use super::*;

    /// A task of this process; its address.
    fn start() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || Arc::new(Task::default()).serve(&listener));
        address
    }

    #[test]
    fn gradients_are_differences() {
        let mut g = Graph::default();
        let (x, w) = (g.add("Placeholder", &["x"], &[]), g.add("Placeholder", &["w"], &[]));
        let product = g.add("MatMul", &[], &[x, w]);
        let bent = g.add("Tanh", &[], &[product]);
        let rest = g.add("Sub", &[], &[product, bent]);
        let square = g.add("Mul", &[], &[rest, bent]);
        let y = g.add("Mean", &[], &[square]);
        let slope = g.gradients(y, &[w]).unwrap()[0];
        let mut session = Session::new(&g, &[start()], 0, 0);
        let x = Tensor::new(2, 2, &[0.5, -1.0, 2.0, 0.25]);
        let mut at = |w: &Tensor| session.run(&[("x", &x), ("w", w)], &[y, slope]).unwrap();
        let w = Tensor::new(2, 1, &[0.75, -0.5]);
        let slopes = at(&w)[1].data.clone();
        for i in 0..2 {
            let mut moved = |by: f32| {
                let mut w = w.clone();
                w.data[i] += by;
                at(&w)[0].data[0]
            };
            let difference = (moved(0.01) - moved(-0.01)) / 0.02;
            assert!((difference - slopes[i]).abs() < 1e-3, "{difference} and {slopes:?}");
        }
    }

    #[test]
    fn an_edge_between_tasks_is_sent_once() {
        let (graph, _, _, step) = net().unwrap();
        let tasks = ["ps".to_owned(), "worker".to_owned()];
        let parts = partition(&graph, &tasks, &place(&graph, 1), &step);
        let count = |part: &Graph, op: &str| part.0.iter().filter(|node| node.op == op).count();
        assert_eq!((count(&parts[0], "Send"), count(&parts[0], "Recv")), (2, 2));
        assert_eq!((count(&parts[1], "Send"), count(&parts[1], "MatMul")), (2, 5));
        assert_eq!(Graph::parse(&parts[1].text()).unwrap().text(), parts[1].text());
    }

    #[test]
    fn an_error_ends_the_step_on_all_tasks() {
        let (graph, init, _, step) = net().unwrap();
        let tasks = [start(), start()];
        let mut session = Session::new(&graph, &tasks, 1, 0);
        session.run(&[], &init).unwrap();
        // The parameter server waits for gradients that never come: x has too few columns.
        let feeds = [("x", &Tensor::new(1, 2, &[1., 0.])), ("wanted", &Tensor::new(1, 1, &[1.]))];
        let error = session.run(&feeds, &step).unwrap_err();
        assert_eq!(error, "cannot multiply [1,2] by [3,8]");
        assert_eq!(session.run(&[], &step).unwrap_err(), "'x' has to be fed");
    }

    #[test]
    fn damaged_requests_are_refused() {
        let task = Task::default();
        for request in ["", "Nope\n", "RunGraph 7 1\n", "RegisterGraph\nAdd\t0 1 \n"] {
            assert!(task.answer(request).is_err(), "{request:?}");
        }
        assert!(Tensor::parse("2 2 1").is_err() && Tensor::parse("x").is_err());
    }

    #[test]
    fn the_program_is_short() {
        let program = include_str!("from_scratch.rs").split("#[cfg(test)]").next().unwrap();
        let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
        let lines = program.lines().filter(is_code).count();
        assert!(lines <= 500, "{lines} lines of code: the chapter promises at most 500");
    }
}
