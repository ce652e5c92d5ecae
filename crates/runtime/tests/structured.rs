//! Random structured programs over integers (branches and loops, nested) give the same results in
//! three ways: a naive interpreter, the executor on frames, and the executor on functions.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use support::flow::Flow;
use support::*;
use thalweg_graph::{AttrValue, Attrs};
use thalweg_proto as pb;
use thalweg_runtime::Session;
use thalweg_tensor::{DType, Tensor};

/// Variables of a program.
const VARS: usize = 3;
/// Programs that are tried; `STRUCTURED_SEEDS` says otherwise.
const SEEDS: u64 = 2000;

/// How a program becomes a graph: feeds `x0..`, results `y0..`.
type Lowering = fn(&Program) -> Flow;
const LOWERINGS: [(&str, Lowering); 2] = [("frames", to_frames), ("functions", to_functions)];

struct Program {
    body: Vec<Stmt>,
}

enum Stmt {
    /// `vars[to] = a op b`.
    Set { to: usize, op: &'static str, a: Operand, b: Operand },
    /// `if a < b { then } else { otherwise }`.
    If { a: Operand, b: Operand, then: Vec<Stmt>, otherwise: Vec<Stmt> },
    /// `for _ in 0..times while vars[var] < bound { body }`.
    While { times: i32, var: usize, bound: i32, body: Vec<Stmt>, parallel: i64 },
}

#[derive(Clone, Copy)]
enum Operand {
    Var(usize),
    Const(i32),
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    fn operand(&mut self) -> Operand {
        if self.below(3) == 0 {
            Operand::Const(self.below(21) as i32 - 10)
        } else {
            Operand::Var(self.below(VARS as u64) as usize)
        }
    }

    fn block(&mut self, depth: u32) -> Vec<Stmt> {
        (0..self.below(4)).map(|_| self.stmt(depth)).collect()
    }

    fn stmt(&mut self, depth: u32) -> Stmt {
        match self.below(if depth == 0 { 3 } else { 6 }) {
            4 => Stmt::If {
                a: self.operand(),
                b: self.operand(),
                then: self.block(depth - 1),
                otherwise: self.block(depth - 1),
            },
            5 => Stmt::While {
                times: self.below(5) as i32,
                var: self.below(VARS as u64) as usize,
                bound: self.below(200) as i32 - 50,
                body: self.block(depth - 1),
                parallel: 1 + self.below(5) as i64,
            },
            _ => Stmt::Set {
                to: self.below(VARS as u64) as usize,
                op: ["AddV2", "Sub", "Mul", "Maximum", "Minimum"][self.below(5) as usize],
                a: self.operand(),
                b: self.operand(),
            },
        }
    }
}

/// What a program does to its variables.
fn interpret(body: &[Stmt], vars: &mut [i32; VARS]) {
    let value = |vars: &[i32; VARS], x: Operand| match x {
        Operand::Var(i) => vars[i],
        Operand::Const(c) => c,
    };
    for stmt in body {
        match stmt {
            Stmt::Set { to, op, a, b } => {
                let (a, b) = (value(vars, *a), value(vars, *b));
                vars[*to] = match *op {
                    "AddV2" => a.wrapping_add(b),
                    "Sub" => a.wrapping_sub(b),
                    "Mul" => a.wrapping_mul(b),
                    "Maximum" => a.max(b),
                    _ => a.min(b),
                };
            }
            Stmt::If { a, b, then, otherwise } => {
                let taken = if value(vars, *a) < value(vars, *b) { then } else { otherwise };
                interpret(taken, vars);
            }
            Stmt::While { times, var, bound, body, .. } => {
                for _ in 0..*times {
                    if vars[*var] >= *bound {
                        break;
                    }
                    interpret(body, vars);
                }
            }
        }
    }
}

/// Branches as `Switch` and `Merge`, loops as frames.
fn to_frames(program: &Program) -> Flow {
    let mut lower = Frames { flow: Flow::default(), next: 0 };
    let mut vars: Vec<String> = (0..VARS).map(|i| format!("x{i}")).collect();
    for var in &vars {
        lower.flow.node(var, "Placeholder", &[]).attr("dtype", DType::Int32);
    }
    lower.block(&program.body, &mut vars);
    for (i, var) in vars.iter().enumerate() {
        lower.flow.int(&format!("y{i}"), "Identity", &[var]);
    }
    lower.flow
}

struct Frames {
    flow: Flow,
    next: usize,
}

impl Frames {
    fn name(&mut self, what: &str) -> String {
        self.next += 1;
        format!("{what}{}", self.next)
    }

    fn int(&mut self, op: &str, inputs: &[&str]) -> String {
        let name = self.name(op);
        self.flow.int(&name, op, inputs);
        name
    }

    /// A constant belongs where the values of `vars` do: it comes after one of them.
    fn constant(&mut self, value: i32, vars: &[String]) -> String {
        let (name, after) = (self.name("c"), vars[0].split(':').next().unwrap());
        // A `Switch` runs whichever way it goes; what comes after its output needs that one.
        let after =
            if vars[0].contains(':') { self.int("Identity", &[&vars[0]]) } else { after.into() };
        self.flow.constant(&name, Tensor::scalar(value), &[&format!("^{after}")]);
        name
    }

    fn operand(&mut self, x: Operand, vars: &[String]) -> String {
        match x {
            Operand::Var(i) => vars[i].clone(),
            Operand::Const(c) => self.constant(c, vars),
        }
    }

    fn block(&mut self, body: &[Stmt], vars: &mut [String]) {
        for stmt in body {
            match stmt {
                Stmt::Set { to, op, a, b } => {
                    let (a, b) = (self.operand(*a, vars), self.operand(*b, vars));
                    vars[*to] = self.int(op, &[&a, &b]);
                }
                Stmt::If { a, b, then, otherwise } => {
                    let (a, b) = (self.operand(*a, vars), self.operand(*b, vars));
                    let choice = self.int("Less", &[&a, &b]);
                    let switches: Vec<String> =
                        vars.iter().map(|v| self.int("Switch", &[v, &choice])).collect();
                    let mut yes: Vec<String> = switches.iter().map(|s| format!("{s}:1")).collect();
                    let mut no: Vec<String> =
                        switches.iter().map(|s| self.int("Identity", &[s])).collect();
                    self.block(then, &mut yes);
                    self.block(otherwise, &mut no);
                    for (var, (yes, no)) in vars.iter_mut().zip(yes.iter().zip(&no)) {
                        *var = self.name("Merge");
                        self.flow.merge(var, &[no, yes]);
                    }
                }
                Stmt::While { times, var, bound, body, parallel } => {
                    self.while_loop((*times, *var, *bound), body, *parallel, vars);
                }
            }
        }
    }

    fn while_loop(
        &mut self,
        (times, var, bound): (i32, usize, i32),
        body: &[Stmt],
        parallel: i64,
        vars: &mut [String],
    ) {
        let frame = self.name("frame");
        let enter = |this: &mut Self, input: &str, is_constant: bool| {
            let name = this.name("Enter");
            this.flow.enter(&name, input, &frame).attr("parallel_iterations", parallel);
            this.flow.attr("is_constant", is_constant);
            name
        };
        let (zero, bound) = (self.constant(0, vars), self.constant(bound, vars));
        let bound = enter(self, &bound, true);
        let outside: Vec<String> = vars.iter().cloned().chain([zero]).collect();
        let mut merges = Vec::new();
        for value in &outside {
            let (entered, merge) = (enter(self, value, false), self.name("Merge"));
            // The back edge's node has the merge's name with `next` before it.
            self.flow.merge(&merge, &[&entered, &format!("next{merge}")]);
            merges.push(merge);
        }
        let count = self.constant(times, &merges);
        let (more, small) =
            (self.int("Less", &[&merges[VARS], &count]), self.int("Less", &[&merges[var], &bound]));
        let (both, cond) = (self.name("LogicalAnd"), self.name("LoopCond"));
        self.flow.node(&both, "LogicalAnd", &[&more, &small]).node(&cond, "LoopCond", &[&both]);
        let switches: Vec<String> =
            merges.iter().map(|m| self.int("Switch", &[m, &cond])).collect();
        let mut inside: Vec<String> = switches.iter().map(|s| format!("{s}:1")).collect();
        let counter = inside.pop().unwrap();
        let one = self.constant(1, &inside);
        let counter = self.int("AddV2", &[&counter, &one]);
        self.block(body, &mut inside);
        for (merge, value) in merges.iter().zip(inside.iter().chain([&counter])) {
            self.flow.int(&format!("next{merge}"), "NextIteration", &[value]);
        }
        for (var, switch) in vars.iter_mut().zip(&switches) {
            *var = self.int("Exit", &[switch]);
        }
    }
}

/// Branches as `StatelessIf`, loops as `StatelessWhile`.
fn to_functions(program: &Program) -> Flow {
    let mut lower = Functions { library: Vec::new(), next: 0 };
    let mut flow = Flow::default();
    let mut vars: Vec<String> = (0..VARS).map(|i| format!("x{i}")).collect();
    for var in &vars {
        flow.node(var, "Placeholder", &[]).attr("dtype", DType::Int32);
    }
    lower.block(&mut Body { flow: &mut flow, is_function: false }, &program.body, &mut vars);
    for (i, var) in vars.iter().enumerate() {
        flow.int(&format!("y{i}"), "Identity", &[var]);
    }
    flow.def.library =
        Some(pb::FunctionDefLibrary { function: lower.library, ..Default::default() });
    flow
}

/// Where nodes go: the graph, or a function, where outputs have names.
struct Body<'a> {
    flow: &'a mut Flow,
    is_function: bool,
}

impl Body<'_> {
    fn output(&self, node: &str, arg: &str, i: usize) -> String {
        if self.is_function { format!("{node}:{arg}:{i}") } else { format!("{node}:{i}") }
    }
}

struct Functions {
    library: Vec<pb::FunctionDef>,
    next: usize,
}

impl Functions {
    fn name(&mut self, what: &str) -> String {
        self.next += 1;
        format!("{what}{}", self.next)
    }

    fn int(&mut self, body: &mut Body<'_>, op: &str, inputs: &[&str]) -> String {
        let name = self.name(op);
        body.flow.int(&name, op, inputs);
        body.output(&name, "z", 0)
    }

    fn operand(&mut self, body: &mut Body<'_>, x: Operand, vars: &[String]) -> String {
        match x {
            Operand::Var(i) => vars[i].clone(),
            Operand::Const(c) => {
                let name = self.name("c");
                body.flow.constant(&name, Tensor::scalar(c), &[]);
                body.output(&name, "output", 0)
            }
        }
    }

    /// A function of `args` integers; `build` makes its body and returns its results.
    fn function(
        &mut self,
        args: usize,
        build: impl FnOnce(&mut Self, &mut Body<'_>, Vec<String>) -> Vec<String>,
        result_type: DType,
    ) -> AttrValue {
        let (name, mut flow) = (self.name("function"), Flow::default());
        let inputs: Vec<String> = (0..args).map(|i| format!("x{i}")).collect();
        let mut body = Body { flow: &mut flow, is_function: true };
        let results = build(self, &mut body, inputs.clone());
        let arg = |name: String, dtype: DType| pb::op_def::ArgDef {
            name,
            r#type: dtype.to_proto(),
            ..Default::default()
        };
        self.library.push(pb::FunctionDef {
            signature: Some(pb::OpDef {
                name: name.clone(),
                input_arg: inputs.into_iter().map(|n| arg(n, DType::Int32)).collect(),
                output_arg: (0..results.len()).map(|i| arg(format!("y{i}"), result_type)).collect(),
                ..Default::default()
            }),
            node_def: flow.def.node,
            ret: results.into_iter().enumerate().map(|(i, r)| (format!("y{i}"), r)).collect(),
            ..Default::default()
        });
        AttrValue::function(&name, &Attrs::default())
    }

    fn block(&mut self, body: &mut Body<'_>, stmts: &[Stmt], vars: &mut Vec<String>) {
        for stmt in stmts {
            match stmt {
                Stmt::Set { to, op, a, b } => {
                    let (a, b) = (self.operand(body, *a, vars), self.operand(body, *b, vars));
                    vars[*to] = self.int(body, op, &[&a, &b]);
                }
                Stmt::If { a, b, then, otherwise } => {
                    let (a, b) = (self.operand(body, *a, vars), self.operand(body, *b, vars));
                    let choice = self.int(body, "Less", &[&a, &b]);
                    let mut branch = |stmts: &[Stmt]| {
                        let build = |this: &mut Self, body: &mut Body<'_>, mut vars| {
                            this.block(body, stmts, &mut vars);
                            vars
                        };
                        self.function(VARS, build, DType::Int32)
                    };
                    let (then, otherwise) = (branch(then), branch(otherwise));
                    let name = self.name("If");
                    let inputs: Vec<&str> =
                        [&choice].into_iter().chain(&*vars).map(String::as_str).collect();
                    let types = [DType::Int32; VARS];
                    body.flow.node(&name, "StatelessIf", &inputs).attr("Tcond", DType::Bool);
                    body.flow.attr("Tin", &types[..]).attr("Tout", &types[..]);
                    body.flow.attr("then_branch", then).attr("else_branch", otherwise);
                    *vars = (0..VARS).map(|i| body.output(&name, "output", i)).collect();
                }
                Stmt::While { times, var, bound, body: inner, parallel } => {
                    let limits = (*times, *var, *bound);
                    self.while_loop(body, limits, inner, *parallel, vars);
                }
            }
        }
    }

    fn while_loop(
        &mut self,
        body: &mut Body<'_>,
        (times, var, bound): (i32, usize, i32),
        stmts: &[Stmt],
        parallel: i64,
        vars: &mut Vec<String>,
    ) {
        let goes_on = |this: &mut Self, body: &mut Body<'_>, vars: Vec<String>| {
            let (times, bound) = (
                this.operand(body, Operand::Const(times), &[]),
                this.operand(body, Operand::Const(bound), &[]),
            );
            let more = this.int(body, "Less", &[&vars[VARS], &times]);
            let small = this.int(body, "Less", &[&vars[var], &bound]);
            let name = this.name("And");
            body.flow.node(&name, "LogicalAnd", &[&more, &small]);
            vec![body.output(&name, "z", 0)]
        };
        let step = |this: &mut Self, body: &mut Body<'_>, mut vars: Vec<String>| {
            let counter = vars.pop().unwrap();
            let one = this.operand(body, Operand::Const(1), &[]);
            let counter = this.int(body, "AddV2", &[&counter, &one]);
            this.block(body, stmts, &mut vars);
            vars.push(counter);
            vars
        };
        let goes_on = self.function(VARS + 1, goes_on, DType::Bool);
        let step = self.function(VARS + 1, step, DType::Int32);
        let zero = self.operand(body, Operand::Const(0), &[]);
        let inputs: Vec<&str> = vars.iter().chain([&zero]).map(String::as_str).collect();
        let name = self.name("While");
        body.flow.node(&name, "StatelessWhile", &inputs).attr("T", &[DType::Int32; VARS + 1][..]);
        body.flow.attr("cond", goes_on).attr("body", step).attr("parallel_iterations", parallel);
        *vars = (0..VARS).map(|i| body.output(&name, "output", i)).collect();
    }
}

fn check(seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let program = Program { body: (0..2).flat_map(|_| random.block(3)).collect() };
    let threads = 1 + (seed % 4) as usize;
    for (way, lower) in LOWERINGS {
        let (ops, kernels) = shared_registries();
        let def = lower(&program).def;
        let graph = thalweg_graph::Graph::from_def(ops.clone(), def)
            .unwrap_or_else(|e| panic!("seed {seed}, {way}: {e}"));
        let session = Session::new(graph, kernels.clone(), options(threads)).unwrap();
        for round in 0..4 {
            let start: [i32; VARS] = std::array::from_fn(|_| random.below(41) as i32 - 20);
            let mut wanted = start;
            interpret(&program.body, &mut wanted);
            let names: Vec<String> = (0..VARS).map(|i| format!("x{i}")).collect();
            let feeds: Vec<(&str, Tensor)> =
                names.iter().zip(start).map(|(n, x)| (n.as_str(), Tensor::scalar(x))).collect();
            let out = session
                .run(&feeds, &["y0", "y1", "y2"], &[])
                .unwrap_or_else(|e| panic!("seed {seed}, {way}, round {round}: {e}"));
            assert_eq!(flow::ints(&out), wanted, "seed {seed}, {way}, round {round}, {start:?}");
        }
    }
}

#[test]
fn programs_mean_the_same_in_every_form() {
    let seeds = std::env::var("STRUCTURED_SEEDS").map_or(SEEDS, |s| s.parse().unwrap());
    watched("a structured program", move || (0..seeds).for_each(check));
}
