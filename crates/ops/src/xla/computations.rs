//! XLA's ops that call a function on pairs of elements: reductions, scatters and sorting.

use thalweg_graph::{OpDef, ShapeContext, Work, shape};
use thalweg_hlo::{ScatterDims, Value, Window};
use thalweg_kernel::{Family, KernelSpec, Lowering};
use thalweg_tensor::{Error, PartialShape, Result, bail, ensure, err};

use super::arrays::sizes;
use super::numbers::Numbers;

use crate::work;

pub(crate) static FAMILY: Family =
    Family {
        ops: &[
            OpDef::new("XlaReduce", reduced_shapes).with_work(Work::per_input::<20>),
            OpDef::new("XlaReduceWindow", shape::unknown),
            OpDef::new("XlaScatter", shape::from_first_input),
            OpDef::new("XlaSelectAndScatter", shape::from_first_input),
            OpDef::new("XlaVariadicReduce", reduced_shapes).with_work(Work::per_input::<20>),
            OpDef::new("XlaVariadicReduceV2", reduced_shapes).with_work(Work::per_input::<20>),
            OpDef::new("XlaVariadicSort", sorted_shapes).with_work(work::sort),
        ],
        kernels: &[
            KernelSpec::lowering("XlaReduce", lower_reduce),
            KernelSpec::lowering("XlaReduceWindow", lower_reduce_window).with_host_inputs(&[
                "window_dimensions",
                "window_strides",
                "base_dilations",
                "window_dilations",
                "padding",
            ]),
            KernelSpec::lowering("XlaScatter", lower_scatter),
            KernelSpec::lowering("XlaSelectAndScatter", lower_select_and_scatter)
                .with_host_inputs(&["window_dimensions", "window_strides", "padding"]),
            KernelSpec::lowering("XlaVariadicReduce", lower_reduce),
            KernelSpec::lowering("XlaVariadicReduceV2", lower_reduce),
            KernelSpec::lowering("XlaVariadicSort", lower_sort).with_host_inputs(&["dimension"]),
        ],
    };

fn reduced_shapes(c: &mut ShapeContext<'_>) -> Result<()> {
    let reduced = c.attrs().ints("dimensions_to_reduce")?;
    for i in 0..c.num_outputs() {
        let Some(dims) = c.input(i).dims() else { continue };
        let rank = dims.len();
        if let Some(dim) = reduced.iter().find(|dim| !(0..rank as i64).contains(dim)) {
            bail!(InvalidArgument, "dimensions_to_reduce has {dim}, the input has rank {rank}");
        }
        let kept = (0..rank).filter(|&d| !reduced.contains(&(d as i64))).map(|d| dims[d]);
        let shape = PartialShape::new(kept.collect::<Vec<_>>());
        c.set_output(i, shape);
    }
    Ok(())
}

fn sorted_shapes(c: &mut ShapeContext<'_>) -> Result<()> {
    (0..c.num_outputs()).for_each(|i| c.set_output(i, c.input(i).clone()));
    Ok(())
}

/// A function of a node that a computation applies to scalars, and its first failure.
struct Computation<'l, 'a> {
    lowering: &'l mut Lowering<'a>,
    failure: Option<Error>,
}

impl<'l, 'a> Computation<'l, 'a> {
    fn new(lowering: &'l mut Lowering<'a>) -> Self {
        Computation { lowering, failure: None }
    }

    /// The results of the function, which must have the types of `like`.
    fn call(&mut self, attr: &str, args: &[Value], like: &[Value]) -> Vec<Value> {
        let results = self.lowering.call(attr, args).and_then(|results| {
            let fits = results.len() == like.len()
                && results.iter().zip(like).all(|(result, wanted)| {
                    result.dtype() == wanted.dtype() && result.dims() == wanted.dims()
                });
            ensure!(fits, InvalidArgument, "{attr} must give {like:?}, gives {results:?}");
            Ok(results)
        });
        results.unwrap_or_else(|e| {
            self.failure.get_or_insert(e);
            like.to_vec()
        })
    }

    /// The result of a function of two elements.
    fn combine(&mut self, attr: &str, a: &Value, b: &Value) -> Value {
        self.call(attr, &[a.clone(), b.clone()], std::slice::from_ref(a)).remove(0)
    }

    fn finish(self) -> Result<()> {
        self.failure.map_or(Ok(()), Err)
    }
}

fn lower_reduce(l: &mut Lowering<'_>) -> Result<()> {
    let inputs = l.inputs_from(0)?;
    let (values, initial) = inputs.split_at(inputs.len() / 2);
    let dims = sizes_of(l.attrs().ints("dimensions_to_reduce")?)?;
    for (value, initial) in values.iter().zip(initial) {
        ensure!(
            value.dims() == values[0].dims() && initial.rank() == 0,
            InvalidArgument,
            "reduces {value:?} beside {:?}, beginning with {initial:?}",
            values[0]
        );
    }
    let mut computation = Computation::new(l);
    let reduced = Value::reduce_together(values, initial, &dims, |a, b| {
        computation.call("reducer", &[a, b].concat(), a)
    });
    computation.finish()?;
    reduced.into_iter().enumerate().try_for_each(|(i, value)| l.set(i, value))
}

fn sizes_of(numbers: &[i64]) -> Result<Vec<usize>> {
    let size =
        |&x: &i64| usize::try_from(x).map_err(|_| err!(InvalidArgument, "a dimension is {x}"));
    numbers.iter().map(size).collect()
}

/// The window of inputs from `first` on: sizes and strides, dilations if there are some, and padding.
fn window(l: &Lowering<'_>, first: usize, dilations: Option<usize>, pad: usize) -> Result<Window> {
    let size = sizes(l, first)?;
    let padding = l.ints(pad)?;
    let rank = size.len();
    let dilations = dilations.map_or_else(|| Ok(vec![1; rank]), |i| sizes(l, i))?;
    let window = Window {
        strides: sizes(l, first + 1)?,
        dilations,
        padding: padding.chunks(2).map(|pair| (pair[0], pair[pair.len() - 1])).collect(),
        size,
    };
    let fits = padding.len() == 2 * rank
        && [&window.strides, &window.dilations].iter().all(|list| list.len() == rank)
        && window.strides.iter().chain(&window.dilations).all(|&n| n > 0);
    ensure!(fits, InvalidArgument, "{} has no window: {window:?}", l.node().op.name);
    Ok(window)
}

fn lower_reduce_window(l: &mut Lowering<'_>) -> Result<()> {
    let (x, initial) = (l.input(0)?, l.input(1)?);
    let (window, base) = (window(l, 2, Some(5), 6)?, l.ints(4)?);
    let fits = window.size.len() == x.rank() && base.len() == x.rank() && initial.rank() == 0;
    let is_small = base.iter().all(|n| (1..1 << 40).contains(n));
    ensure!(fits && is_small, InvalidArgument, "{window:?} does not fit {:?}", x.dims());
    // Elements between those of the operand do not change the result.
    let zeros = vec![0; x.rank()];
    let between: Vec<i64> = base.iter().map(|n| n - 1).collect();
    let spread = match between.iter().all(|n| *n == 0) {
        true => x,
        false => x.pad(&initial, &zeros, &zeros, &between),
    };
    let mut computation = Computation::new(l);
    let reduced =
        spread.reduce_window_by(&initial, &window, |a, b| computation.combine("computation", a, b));
    computation.finish()?;
    l.set(0, reduced)
}

fn lower_select_and_scatter(l: &mut Lowering<'_>) -> Result<()> {
    let (x, source, initial) = (l.input(0)?, l.input(4)?, l.input(5)?);
    let window = window(l, 1, None, 3)?;
    let fits = window.size.len() == x.rank() && source.rank() == x.rank() && initial.rank() == 0;
    ensure!(
        fits,
        InvalidArgument,
        "{window:?} does not fit {:?} and {:?}",
        x.dims(),
        source.dims()
    );
    let is_selected = x.splat(thalweg_tensor::DType::Bool, &[], 0.0);
    let mut computation = Computation::new(l);
    let shared = std::cell::RefCell::new(&mut computation);
    let scattered = x.select_and_scatter(
        &source,
        &initial,
        &window,
        |a, b| {
            let like = std::slice::from_ref(&is_selected);
            shared.borrow_mut().call("select", &[a.clone(), b.clone()], like).remove(0)
        },
        |a, b| shared.borrow_mut().combine("scatter", a, b),
    );
    computation.finish()?;
    l.set(0, scattered)
}

fn lower_scatter(l: &mut Lowering<'_>) -> Result<()> {
    let (x, indices, updates, numbers) = (l.input(0)?, l.input(1)?, l.input(2)?, Numbers::of(l)?);
    let dims = ScatterDims {
        update_window_dims: numbers.all(1)?,
        inserted_window_dims: numbers.all(2)?,
        scatter_dims_to_operand_dims: numbers.all(3)?,
        index_vector_dim: numbers.one(4)?,
        input_batching_dims: numbers.all(5)?,
        scatter_indices_batching_dims: numbers.all(6)?,
    };
    let mut computation = Computation::new(l);
    let scattered = x.scatter(&indices, &updates, &dims, false, |a, b| {
        computation.combine("update_computation", a, b)
    });
    computation.finish()?;
    l.set(0, scattered)
}

fn lower_sort(l: &mut Lowering<'_>) -> Result<()> {
    let count = l.num_inputs() - 1;
    let values = l.inputs_from(0)?[..count].to_vec();
    let dims = values[0].dims();
    let dim = l.int(count)?;
    let dim = usize::try_from(dim).ok().filter(|dim| *dim < dims.len());
    let fits = values.iter().all(|value| value.dims() == dims);
    let (Some(dim), true) = (dim, fits) else {
        bail!(InvalidArgument, "cannot sort {values:?} along dimension {}", l.int(count)?);
    };
    let is_before = values[0].splat(thalweg_tensor::DType::Bool, &[], 0.0);
    let mut computation = Computation::new(l);
    let sorted = Value::sort_together(&values, dim, |pairs| {
        let args: Vec<Value> = pairs.iter().flat_map(|(a, b)| [a.clone(), b.clone()]).collect();
        computation.call("comparator", &args, std::slice::from_ref(&is_before)).remove(0)
    });
    computation.finish()?;
    sorted.into_iter().enumerate().try_for_each(|(i, value)| l.set(i, value))
}
