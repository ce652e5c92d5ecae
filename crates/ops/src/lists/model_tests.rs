//! Model-based test: random list ops are compared with a vector of vectors. Some ops receive the
//! only handle of a list and may change it in place, some receive one of two.

use prost::Message;
use thalweg_proto::TensorProto;
use thalweg_tensor::{Code, DType, Result, Shape, Tensor};

use crate::math::random::philox::Philox;
use crate::testing::{Call, call};

/// Width of a list element.
const WIDTH: usize = 2;

type Value = [f32; WIDTH];
type Model = Vec<Option<Value>>;

#[derive(Debug)]
enum Change {
    Push(Value),
    Pop,
    Set(usize, Value, bool),
    Resize(usize),
    Append(Value),
    Scatter([(usize, Value); 2]),
    /// Encoded and decoded again.
    Send,
}

/// Random numbers with a fixed seed.
struct Random {
    seed: i64,
    drawn: i64,
}

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.drawn += 1;
        Philox::from_seeds(self.seed, self.drawn).block()[0] as usize % n
    }

    fn value(&mut self) -> Value {
        [self.below(100) as f32, self.below(100) as f32]
    }

    fn change(&mut self, len: usize) -> Change {
        match self.below(8) {
            0 | 1 => Change::Push(self.value()),
            2 => Change::Pop,
            3 => Change::Set(self.below(len + 2), self.value(), self.below(2) == 0),
            4 => Change::Resize(self.below(len + 3)),
            5 => Change::Append(self.value()),
            6 => Change::Scatter([(); 2].map(|()| (self.below(len.max(1)), self.value()))),
            _ => Change::Send,
        }
    }
}

impl Change {
    /// The model after the change; `None` if the op must fail.
    fn expected(&self, model: &Model) -> Option<Model> {
        let mut model = model.clone();
        match *self {
            Change::Push(value) => model.push(Some(value)),
            Change::Pop => {
                model.pop()?;
            }
            Change::Set(i, value, grows) => {
                if grows && i >= model.len() {
                    model.resize(i + 1, None);
                }
                *model.get_mut(i)? = Some(value);
            }
            Change::Resize(len) => model.resize(len, None),
            Change::Append(value) => model.extend([None, Some(value)]),
            Change::Scatter(pairs) => {
                for (i, value) in pairs {
                    if i >= model.len() {
                        // As in TensorFlow, the list is extended by one empty tensor.
                        return None;
                    }
                    model[i] = Some(value);
                }
            }
            Change::Send => {}
        }
        Some(model)
    }

    fn run(&self, handle: Tensor) -> Result<Tensor> {
        match *self {
            Change::Push(value) => op("TensorListPushBack", handle).input(vector(&value)).run(),
            Change::Pop => op("TensorListPopBack", handle).input(element_shape()).run(),
            Change::Set(i, value, grows) => op("TensorListSetItem", handle)
                .input(int(i))
                .input(vector(&value))
                .attr("resize_if_index_out_of_bounds", grows)
                .run(),
            Change::Resize(len) => call("TensorListResize").input(handle).input(int(len)).run(),
            Change::Append(value) => {
                let pair = op("TensorListSetItem", reserved(2)).input(int(1));
                let pair = pair.input(vector(&value)).run()?;
                op("TensorListConcatLists", handle).input(pair).run()
            }
            Change::Scatter(pairs) => {
                let rows = Shape::new(&[2, WIDTH])?;
                let rows = Tensor::from_slice(rows, &pairs.map(|p| p.1).concat())?;
                let places = pairs.map(|p| p.0 as i64);
                let call = op("TensorListScatterIntoExistingList", handle).input(rows);
                call.input(Tensor::vector(&places.map(|p| p as i32))?).run()
            }
            Change::Send => {
                let bytes = handle.to_proto()?.encode_to_vec();
                Tensor::from_proto(&TensorProto::decode(&bytes[..]).unwrap(), None)
            }
        }
    }
}

fn op(name: &'static str, handle: Tensor) -> Call {
    call(name).input(handle).attr("element_dtype", DType::Float)
}

fn int(value: usize) -> Tensor {
    Tensor::scalar(value as i32)
}

fn element_shape() -> Tensor {
    Tensor::vector(&[WIDTH as i32]).unwrap()
}

fn vector(value: &Value) -> Tensor {
    Tensor::vector(value).unwrap()
}

fn reserved(len: usize) -> Tensor {
    let call = call("TensorListReserve").input(Tensor::vector(&[-1i32]).unwrap()).input(int(len));
    call.attr("element_dtype", DType::Float).attr("shape_type", DType::Int32).run().unwrap()
}

fn numbers(tensor: &Tensor) -> &[f32] {
    tensor.as_slice().unwrap()
}

fn check(random: &mut Random, handle: &Tensor, model: &Model) {
    let len = call("TensorListLength").input(handle.clone()).run().unwrap();
    assert_eq!(len.scalar_value::<i32>().unwrap() as usize, model.len());
    let stacked = op("TensorListStack", handle.clone()).input(element_shape()).run().unwrap();
    let elements: Vec<Value> = model.iter().map(|v| v.unwrap_or_default()).collect();
    assert_eq!(numbers(&stacked), elements.concat());
    let i = random.below(model.len() + 1);
    let got = op("TensorListGetItem", handle.clone()).input(int(i)).input(element_shape()).run();
    match model.get(i) {
        Some(value) => assert_eq!(numbers(&got.unwrap()), value.unwrap_or_default()),
        None => assert_eq!(got.unwrap_err().code(), Code::InvalidArgument),
    }
}

#[test]
fn lists_are_vectors() {
    for seed in 0..150 {
        let mut random = Random { seed, drawn: 0 };
        let (mut handle, mut model) = (reserved(3), vec![None; 3]);
        for _ in 0..20 {
            let change = random.change(model.len());
            let Some(expected) = change.expected(&model) else {
                if !matches!(change, Change::Scatter(_)) {
                    let refused = change.run(handle.clone()).unwrap_err();
                    assert_eq!(refused.code(), Code::InvalidArgument, "seed {seed}: {change:?}");
                }
                continue;
            };
            // Elements of a shared list must not change.
            let kept = (random.below(2) == 0).then(|| handle.clone());
            handle = change.run(handle).unwrap_or_else(|e| panic!("seed {seed}: {change:?}: {e}"));
            if let Some(kept) = kept {
                check(&mut random, &kept, &model);
            }
            model = expected;
            check(&mut random, &handle, &model);
        }
    }
}

#[test]
fn the_only_holder_changes_a_list_in_place() {
    let address = |handle: &Tensor| match handle.variants().unwrap() {
        [Some(list)] => std::ptr::from_ref(&**list).addr(),
        _ => panic!("a handle holds one list"),
    };
    let handle = reserved(3);
    let before = address(&handle);
    let handle = Change::Set(1, [1.0, 2.0], false).run(handle).unwrap();
    assert_eq!(address(&handle), before);
    let other = Change::Set(1, [1.0, 2.0], false).run(handle.clone()).unwrap();
    assert_ne!(address(&other), address(&handle));
}

#[test]
fn lists_in_lists_end_somewhere() {
    let empty = || {
        let call =
            call("EmptyTensorList").input(Tensor::scalar(-1i32)).input(Tensor::scalar(-1i32));
        call.attr("element_dtype", DType::Variant).attr("shape_type", DType::Int32).run().unwrap()
    };
    let mut handle = empty();
    let refused = (0..1000).find_map(|_| {
        let push = call("TensorListPushBack").input(empty()).input(handle.clone());
        match push.attr("element_dtype", DType::Variant).run() {
            Ok(next) => {
                handle = next;
                None
            }
            Err(e) => Some(e),
        }
    });
    assert_eq!(refused.unwrap().code(), Code::InvalidArgument);
}

#[test]
fn huge_lists_are_refused() {
    let huge = call("TensorListReserve").input(Tensor::scalar(-1i32));
    let huge = huge.input(Tensor::scalar(i32::MAX)).attr("element_dtype", DType::Float);
    let refused = huge.attr("shape_type", DType::Int32).run().unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let array = call("TensorArrayV3").input(Tensor::scalar(i32::MAX)).attr("dtype", DType::Float);
    assert_eq!(array.run().unwrap_err().code(), Code::ResourceExhausted);
}

#[test]
fn shapes() {
    let vector = |values: &[i32]| Tensor::vector(values).unwrap();
    let stack = |shape: Tensor, n: i64| {
        let call = call("TensorListStack").shape(DType::Variant, "").constant(shape);
        call.attr("element_dtype", DType::Float).attr("num_elements", n).infer()
    };
    assert_eq!(stack(vector(&[2, -1]), 5), "[5,2,?]");
    assert_eq!(stack(vector(&[]), -1), "[?]");
    assert_eq!(stack(Tensor::scalar(-1i32), 5), "<unknown>");
    let gather = call("TensorListGather").shape(DType::Variant, "").shape(DType::Int32, "4");
    let gather = gather.constant(vector(&[2])).attr("element_dtype", DType::Float);
    assert_eq!(gather.infer(), "[4,2]");
    let concat = call("TensorListConcatV2").shape(DType::Variant, "").constant(vector(&[-1, 3]));
    let concat = concat.shape(DType::Int64, "?").attr("element_dtype", DType::Float);
    assert_eq!(concat.attr("shape_type", DType::Int32).infer(), "[?,3] [?]");
    let read = call("TensorArrayGatherV3").shape(DType::Resource, "unknown");
    let read = read.shape(DType::Int32, "7").shape(DType::Float, "").attr("dtype", DType::Float);
    assert_eq!(
        read.attr("element_shape", &thalweg_tensor::PartialShape::new([Some(2)])).infer(),
        "[7,2]"
    );
}
