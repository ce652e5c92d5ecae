//! Shape inference with partial shapes, and with values where shapes depend on them.

use std::sync::Arc;

use thalweg_graph::{
    Graph, OpDef, OpRegistry, Output, PartialValue, Scope, ShapeContext, ValueContext, shape,
    structural,
};
use thalweg_tensor::{DType, PartialShape, Result, Tensor, bail};

const SOURCE: OpDef = OpDef::new("Placeholder", shape::from_attr);

const SHAPE_OF: OpDef = OpDef::new("ShapeOf", |c| {
    c.set_output(0, PartialShape::new([c.input(0).rank()]));
    Ok(())
})
.with_interface("x: T | sizes: int32 | T: type")
.with_value(|c: &mut ValueContext<'_>| {
    let dims = c.input_shape(0).dims()?;
    Some(PartialValue::vector(dims.iter().map(|d| d.map(|d| d as i64))))
});

const JOIN: OpDef = OpDef::new("Join", shape::unknown)
    .with_interface("parts: N * int32 | sizes: int32 | N: int >= 1")
    .with_value(|c: &mut ValueContext<'_>| {
        let mut all = Vec::new();
        for i in 0..c.num_inputs() {
            all.extend(c.input(i)?.elements);
        }
        Some(PartialValue::vector(all))
    });

const RESHAPE_TO: OpDef =
    OpDef::new("ReshapeTo", reshape_to).with_interface("x: T; sizes: int32 | y: T | T: type");

fn reshape_to(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.shape_from_input(1)?;
    if let (Some(from), Some(to)) = (c.input(0).to_shape(), shape.to_shape())
        && from.num_elements() != to.num_elements()
    {
        bail!(InvalidArgument, "{from} cannot become {to}");
    }
    c.set_output(0, shape);
    Ok(())
}

fn scope() -> Scope {
    let ops = structural::OPS.iter().filter(|op| op.name != "Placeholder");
    let ours = [SOURCE, SHAPE_OF, JOIN, RESHAPE_TO];
    let registry: Arc<OpRegistry> = OpRegistry::new(ops.chain(&ours)).unwrap();
    Scope::new(registry)
}

fn shape_of(scope: &Scope, output: Output) -> String {
    scope.with_graph(|g| g.output(output).shape.to_string())
}

fn partial(dims: &[i64]) -> PartialShape {
    PartialShape::new(dims.iter().map(|&d| usize::try_from(d).ok()))
}

fn ints(scope: &mut Scope, values: &[i32]) -> Output {
    scope.constant(&Tensor::vector(values).unwrap()).unwrap()
}

#[test]
fn values_flow_through_shape_arithmetic() {
    let mut s = scope();
    let x = s.placeholder(DType::Float, &partial(&[7, -1])).unwrap();
    let sizes = s.add("ShapeOf", &[x]).unwrap();
    assert_eq!(shape_of(&s, sizes), "[2]");
    let extra = ints(&mut s, &[3, -1]);
    let joined = s.add("Join", &[sizes, extra]).unwrap();
    let passed = s.add("Identity", &[joined]).unwrap();
    let y = s.add("ReshapeTo", &[x, passed]).unwrap();
    assert_eq!(shape_of(&s, y), "[7,?,3,?]");
}

#[test]
fn unknown_dimensions_stay_unknown() {
    let mut s = scope();
    let x = s.placeholder(DType::Float, &PartialShape::unknown()).unwrap();
    let fed = s.placeholder(DType::Int32, &partial(&[4])).unwrap();
    let any = s.placeholder(DType::Int32, &PartialShape::unknown()).unwrap();
    for (sizes, expected) in [(fed, "[?,?,?,?]"), (any, "<unknown>")] {
        let y = s.add("ReshapeTo", &[x, sizes]).unwrap();
        assert_eq!(shape_of(&s, y), expected);
    }
    let minus_one = s.constant(&Tensor::scalar(-1i32)).unwrap();
    let y = s.add("ReshapeTo", &[x, minus_one]).unwrap();
    assert_eq!(shape_of(&s, y), "<unknown>");
}

#[test]
fn contradictions_name_the_node() {
    let mut s = scope();
    let x = s.placeholder(DType::Float, &partial(&[2, 3])).unwrap();
    let four = s.constant(&Tensor::scalar(4i32)).unwrap();
    for (sizes, expected) in [
        (ints(&mut s, &[4]), "[2,3] cannot become [4]"),
        (ints(&mut s, &[-2]), "a shape cannot have size -2"),
        (four, "a shape must be a vector, got the scalar 4"),
    ] {
        let refused = s.op("ReshapeTo").name("y").inputs(&[x, sizes]).build().unwrap_err();
        assert!(
            refused.to_string().starts_with("INVALID_ARGUMENT: node 'y")
                && refused.message().ends_with(&format!("(ReshapeTo): {expected}")),
            "{refused}"
        );
    }
}

#[test]
fn evaluation_is_bounded() {
    let mut s = scope();
    let x = s.placeholder(DType::Float, &PartialShape::unknown()).unwrap();
    let mut sizes = ints(&mut s, &[1, 2]);
    for _ in 0..1000 {
        sizes = s.add("Identity", &[sizes]).unwrap();
    }
    let y = s.add("ReshapeTo", &[x, sizes]).unwrap();
    assert_eq!(shape_of(&s, y), "[?,?]", "the chain is too long to be followed to its end");

    // Each node reads the one before twice: 2^60 paths.
    let mut wide = ints(&mut s, &[1]);
    for _ in 0..60 {
        wide = s.add("Join", &[wide, wide]).unwrap();
    }
    let y = s.add("ReshapeTo", &[x, wide]).unwrap();
    assert_eq!(shape_of(&s, y), "<unknown>");

    let long = s.constant(
        &Tensor::zeros(DType::Int32, thalweg_tensor::Shape::new(&[2000]).unwrap()).unwrap(),
    );
    let y = s.add("ReshapeTo", &[x, long.unwrap()]).unwrap();
    assert_eq!(shape_of(&s, y), "<unknown>", "2000 sizes are no shape");
}

#[test]
fn constants_that_lie_about_their_size() {
    // The value claims 2^40 elements; nothing of that size is made to look at it.
    let text = r#"
        node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
        node {
          name: "c" op: "Const" attr { key: "dtype" value { type: DT_INT32 } }
          attr { key: "value" value { tensor {
            dtype: DT_INT32 tensor_shape { dim { size: 1099511627776 } } int_val: 1
          } } }
        }
        node { name: "y" op: "ReshapeTo" input: "x" input: "c" attr { key: "T" value { type: DT_FLOAT } } }"#;
    let registry = scope().with_graph(|g| g.registry().clone());
    let graph = Graph::from_def(registry, crate::support::text_graph(text)).unwrap();
    let y = graph.node(graph.find("y").unwrap());
    assert_eq!(y.outputs[0].shape.to_string(), "<unknown>");
    let c = graph.node(graph.find("c").unwrap());
    assert_eq!(c.outputs[0].shape.to_string(), "[1099511627776]");
}
