//! A program under construction.

use std::cell::RefCell;
use std::fmt::Write;
use std::rc::Rc;

use thalweg_tensor::{DType, Result, Tensor, bail, ensure};

use crate::control::Block;
use crate::element::is_supported;
use crate::value::{Dims, Value, type_text};

/// Most bytes of a program's text: constants of more elements belong into arguments.
const TEXT_MAX: usize = 256 << 20;

/// An argument of a program.
#[derive(Clone, Debug)]
pub struct Argument {
    dtype: DType,
    dims: Dims,
    is_donated: bool,
}

impl Argument {
    /// An argument of this type.
    pub fn new(dtype: DType, dims: &[usize]) -> Argument {
        Argument { dtype, dims: dims.into(), is_donated: false }
    }
}

/// A program under construction: one function, `main`.
pub struct Program {
    pub(crate) body: Rc<Body>,
    arguments: Vec<Argument>,
    platform: String,
}

/// The operations so far.
pub(crate) struct Body {
    state: RefCell<State>,
}

struct State {
    /// The text of the function and of the regions that are open, the innermost last.
    blocks: Vec<String>,
    next_id: u32,
    mistake: Option<String>,
    /// Whether products of 32-bit floats are computed in full.
    is_precise: bool,
}

impl Program {
    /// An empty program, and its arguments as values.
    pub fn new(arguments: &[Argument]) -> (Program, Vec<Value>) {
        let blocks = vec![String::new()];
        let state = State { blocks, next_id: 0, mistake: None, is_precise: true };
        let body = Rc::new(Body { state: RefCell::new(state) });
        let values = arguments.iter().map(|a| body.new_value(a.dtype, &a.dims)).collect();
        (Program { body, arguments: arguments.to_vec(), platform: String::new() }, values)
    }

    /// Lets the accelerator round the operands of 32-bit products (to TF32 on a GPU).
    pub fn allow_rounded_products(&self) {
        self.body.state.borrow_mut().is_precise = false;
    }

    /// Says for which platform the program is compiled: `CPU`, `CUDA`, `ROCM`, `TPU`.
    pub fn set_platform(&mut self, platform: &str) {
        platform.to_uppercase().clone_into(&mut self.platform);
    }

    /// The platform for which the program is compiled; empty if nothing said.
    pub fn platform(&self) -> &str {
        &self.platform
    }

    pub(crate) fn body(&self) -> &Rc<Body> {
        &self.body
    }

    /// A constant.
    pub fn constant(&self, tensor: &Tensor) -> Value {
        self.body.constant(tensor)
    }

    /// A scalar constant.
    pub fn scalar(&self, dtype: DType, x: f64) -> Value {
        self.body.splat(dtype, &[], x)
    }

    /// Lets the program use an argument's memory for a result.
    pub fn donate(&mut self, argument: usize) {
        self.arguments[argument].is_donated = true;
    }

    /// The position of the argument that a value is, if it is one.
    pub fn argument_index(&self, value: &Value) -> Option<usize> {
        Some(value.id as usize).filter(|&id| id < self.arguments.len())
    }

    /// The text of the program that returns `results`; the first mistake that was made.
    pub fn finish(self, results: &[Value]) -> Result<String> {
        let mut state = self.body.state.borrow_mut();
        if let Some(mistake) = state.mistake.take() {
            bail!(InvalidArgument, "{mistake}");
        }
        for dtype in self.arguments.iter().map(|a| a.dtype) {
            ensure!(is_supported(dtype), Unimplemented, "an accelerator has no {dtype}");
        }
        let arguments: Vec<String> = self
            .arguments
            .iter()
            .enumerate()
            .map(|(i, a)| {
                let donated = if a.is_donated { " {jax.buffer_donor = true}" } else { "" };
                format!("%{i}: {}{donated}", type_text(a.dtype, &a.dims))
            })
            .collect();
        let types: Vec<String> = results.iter().map(Value::ty).collect();
        let names: Vec<String> = results.iter().map(|r| format!("%{}", r.id)).collect();
        let block = std::mem::take(&mut state.blocks[0]);
        let returned = match results {
            [] => "return".to_owned(),
            _ => format!("return {} : {}", names.join(", "), types.join(", ")),
        };
        ensure!(
            block.len() <= TEXT_MAX,
            ResourceExhausted,
            "the program has {} bytes, at most {TEXT_MAX} are compiled",
            block.len()
        );
        Ok(format!(
            "module @region {{\nfunc.func public @main({}) -> ({}) {{\n{block}{returned}\n}}\n}}\n",
            arguments.join(", "),
            types.join(", ")
        ))
    }
}

impl Body {
    pub(crate) fn new_value(self: &Rc<Self>, dtype: DType, dims: &[usize]) -> Value {
        let mut state = self.state.borrow_mut();
        let id = state.next_id;
        state.next_id += 1;
        Value { body: self.clone(), id, dtype, dims: dims.into() }
    }

    /// Appends an operation with one result. `attrs` is the text between the braces.
    pub(crate) fn append(
        self: &Rc<Self>,
        name: &str,
        operands: &[&Value],
        attrs: &str,
        dtype: DType,
        dims: &[usize],
    ) -> Value {
        let attrs = if attrs.is_empty() { String::new() } else { format!(" {{{attrs}}}") };
        self.append_all(name, operands, "", &attrs, &[(dtype, dims.into())]).remove(0)
    }

    /// Appends an operation with any number of results; `regions` and `attrs` with their brackets.
    pub(crate) fn append_all(
        self: &Rc<Self>,
        name: &str,
        operands: &[&Value],
        regions: &str,
        attrs: &str,
        results: &[(DType, Dims)],
    ) -> Vec<Value> {
        for (dtype, _) in results {
            if !is_supported(*dtype) {
                self.mistake(&format!("an accelerator has no {dtype}"));
            }
        }
        let values: Vec<Value> = results.iter().map(|(d, dims)| self.new_value(*d, dims)).collect();
        let name_of = |v: &Value| format!("%{}", v.id);
        let list = |parts: Vec<String>| parts.join(", ");
        let operand_names = list(operands.iter().map(|v| name_of(v)).collect());
        let operand_types = list(operands.iter().map(|v| v.ty()).collect());
        let result_types = list(values.iter().map(Value::ty).collect());
        let result_names = list(values.iter().map(name_of).collect());
        let mut state = self.state.borrow_mut();
        if let Some(block) = state.blocks.last_mut() {
            // Writing to a string cannot fail.
            let _ = writeln!(
                block,
                "{result_names} = \"stablehlo.{name}\"({operand_names}){regions}{attrs} : ({operand_types}) -> ({result_types})"
            );
        }
        values
    }

    /// The text of a region with these arguments, whose operations `build` appends and whose results
    /// it returns.
    pub(crate) fn region(
        self: &Rc<Self>,
        arguments: &[(DType, Dims)],
        build: impl FnOnce(&[Value]) -> Vec<Value>,
    ) -> (String, Vec<(DType, Dims)>) {
        let values: Vec<Value> =
            arguments.iter().map(|(dtype, dims)| self.new_value(*dtype, dims)).collect();
        self.open(String::new());
        let results = build(&values);
        let block = Block { arguments: values, text: self.close() };
        let types = results.iter().map(|r| (r.dtype, r.dims.clone())).collect();
        (block.finish(&results), types)
    }

    /// Appends to this text from now on.
    pub(crate) fn open(&self, text: String) {
        self.state.borrow_mut().blocks.push(text);
    }

    /// The text that was opened last, with what has been appended.
    pub(crate) fn close(&self) -> String {
        self.state.borrow_mut().blocks.pop().unwrap_or_default()
    }

    /// The precision of both operands of a product. No hardware rounds those of 16 bits further.
    pub(crate) fn precision_text(&self, operand: DType) -> String {
        let is_narrow = matches!(operand, DType::Half | DType::BFloat16);
        let is_precise = self.state.borrow().is_precise && !is_narrow;
        let name = if is_precise { "HIGHEST" } else { "DEFAULT" };
        format!("[#stablehlo<precision {name}>, #stablehlo<precision {name}>]")
    }

    /// Keeps the first mistake.
    pub(crate) fn mistake(&self, sentence: &str) {
        self.state.borrow_mut().mistake.get_or_insert_with(|| sentence.to_owned());
    }
}
