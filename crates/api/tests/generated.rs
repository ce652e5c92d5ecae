//! Generated functions: lists, references, resources, optional attrs, element types of outputs.

use thalweg_api::{
    Any, DType, FromTensor, Graph, Init, Output, PartialShape, Ref, Result, Shape, Tensor,
    TensorType, Variable, Variant, feed, tf,
};

/// The value of a tensor that depends on no feed.
#[track_caller]
fn value<T: TensorType, R: FromTensor<T>>(x: &Output<T>) -> R {
    x.graph().session().and_then(|session| session.run(x, (), &[])).expect("the step succeeds")
}

#[test]
fn element_types_are_inferred_or_given() {
    let g = Graph::new();
    let x = g.constant([[1.0f32, -2.0], [3.0, 4.0]]);
    assert_eq!(value::<f32, [[f32; 2]; 2]>(&tf::abs(&x))[0], [1.0, 2.0]);
    assert_eq!(value::<f32, [f32; 4]>(&tf::reshape(&x, [-1])), [1.0, -2.0, 3.0, 4.0]);
    assert_eq!(value::<i32, [[i32; 2]; 2]>(&tf::cast(&x))[1], [3, 4]);
    assert_eq!(value::<f64, [[f64; 2]; 2]>(&tf::cast::<f64, _>(&x))[1], [3.0, 4.0]);
    assert_eq!(value::<i64, [i64; 2]>(&tf::arg_max::<i64, _, _>(&x, 1)), [0, 1]);
    assert_eq!(value::<i32, [i32; 2]>(&tf::arg_min(&x, 0i64)), [0, 0]);
    assert_eq!(value::<i64, [i64; 2]>(&tf::shape(&x)), [2, 2]);
    assert_eq!(value::<i32, i32>(&tf::rank(&x)), 2);
    assert_eq!(value::<i32, i32>(&tf::size(&x)), 4);
    assert_eq!(value::<i32, [i32; 1]>(&tf::bitcast(g.constant([1.0f32]))), [0x3f80_0000]);
    assert_eq!(value::<f32, [f32; 2]>(&tf::sum(&x, [0])), [4.0, 2.0]);
    assert_eq!(value::<f32, f32>(&tf::l2_loss(&x)), 15.0);
    assert_eq!(value::<f32, [f32; 2]>(&tf::gather_v2(&x, 1, 0)), [3.0, 4.0]);
    assert_eq!(value::<f32, [[f32; 2]; 2]>(&tf::transpose(&x, [1, 0]))[0], [1.0, 3.0]);
    assert!(value::<bool, bool>(&tf::any(tf::greater(&x, 3.5), [0, 1])));
    let zeros: Output<f32> = tf::fill(g.constant([2]), 0.0);
    assert_eq!(value::<f32, [f32; 2]>(&zeros), [0.0; 2]);
    let one_hot = tf::OneHot::new().axis(0).build(g.constant([0i64, 1]), 2, 1.0f32, 0.0);
    assert_eq!(value::<f32, [[f32; 2]; 2]>(&one_hot), [[1.0, 0.0], [0.0, 1.0]]);
    assert!(g.check().is_ok(), "{:?}", g.check());
}

#[test]
fn optional_attrs_are_set_by_name() {
    let g = Graph::new();
    let x = g.constant([[1.0f32, 2.0], [3.0, 4.0]]);
    let product = tf::MatMul::new().transpose_a(true).name("gram").build(&x, &x);
    assert_eq!(product.name().unwrap(), "gram:0");
    assert_eq!(value::<f32, [[f32; 2]; 2]>(&product), [[10.0, 14.0], [14.0, 20.0]]);
    let mean = tf::Mean::new().keep_dims(true).build(&x, [1]);
    assert_eq!(value::<f32, [[f32; 1]; 2]>(&mean), [[1.5], [3.5]]);
    let sums = tf::Cumsum::new().exclusive(true).reverse(true).build(&x, 1);
    assert_eq!(value::<f32, [[f32; 2]; 2]>(&sums), [[2.0, 0.0], [4.0, 0.0]]);
    let leaky = tf::LeakyRelu::new().alpha(0.5).build(&(-&x));
    assert_eq!(value::<f32, [[f32; 2]; 2]>(&leaky), [[-0.5, -1.0], [-1.5, -2.0]]);
    let column = tf::Squeeze::new().squeeze_dims(&[1]).build(&mean);
    assert_eq!(column.shape(), PartialShape::new([Some(2)]));
    let images: Output<f32> = g.ones([1, 4, 4, 1]);
    let pooled = tf::max_pool(&images, &[1, 2, 2, 1], &[1, 2, 2, 1], "VALID");
    assert_eq!(pooled.shape().to_shape().unwrap().dims(), [1, 2, 2, 1]);
    let filters: Output<f32> = g.ones([3, 3, 1, 2]);
    let conv =
        tf::Conv2D::new().dilations(&[1, 1, 1, 1]).build(&images, &filters, &[1, 1, 1, 1], "SAME");
    assert_eq!(value::<f32, Vec<Vec<Vec<[f32; 2]>>>>(&conv)[0][1][1], [9.0, 9.0]);
    // What the op refuses is a mistake of this line.
    let line = line!() + 1;
    let _ = tf::max_pool(&images, &[1, 2, 2, 1], &[1, 2, 2, 1], "NEITHER");
    let error = g.check().unwrap_err();
    assert!(error.message().starts_with(&format!("{}:{line}: ", file!())), "{error}");
}

#[test]
fn several_outputs_are_tuples_and_structs() {
    let g = Graph::new();
    let x = g.constant([3i32, 1, 3, 2]);
    let (distinct, positions) = tf::unique::<i32, _>(&x);
    let session = g.session().unwrap();
    let both: (Vec<i32>, [i32; 4]) = session.run((&distinct, &positions), (), &[]).unwrap();
    assert_eq!(both, (vec![3, 1, 2], [0, 1, 0, 2]));
    let (top, _) = tf::TopKV2::new().sorted(true).build::<i32, _, _>(&x, 2);
    assert_eq!(value::<i32, [i32; 2]>(&top), [3, 3]);
    let matrix = g.constant([[2.0f32, 0.0], [0.0, 3.0]]);
    let (s, _, _) = tf::svd(&matrix);
    assert_eq!(value::<f32, [f32; 2]>(&s), [3.0, 2.0]);
    let images: Output<f32> = g.ones([2, 1, 1, 1]);
    let (scale, offset) = (g.constant([1.0f32]), g.constant([0.5f32]));
    let empty: Output<f32> = g.zeros([0]);
    let normal = tf::FusedBatchNormV3::new().build(&images, &scale, &offset, &empty, &empty);
    assert_eq!(value::<f32, Vec<Vec<Vec<Vec<f32>>>>>(&normal.y)[0][0][0], [0.5]);
    assert_eq!(value::<f32, [f32; 1]>(&normal.batch_mean), [1.0]);
    assert_eq!(
        value::<f32, f32>(
            &tf::sparse_softmax_cross_entropy_with_logits(g.constant([[0.0f32, 0.0]]), [1i64],)
                .0
                .sum()
        ),
        2.0f32.ln()
    );
}

#[test]
fn lists_are_slices_and_vectors() -> Result<()> {
    let g = Graph::new();
    let (a, b) = (g.constant([1.0f32, 2.0]), g.constant([3.0f32, 4.0]));
    let both = [a.clone(), b.clone()];
    assert_eq!(value::<f32, [f32; 2]>(&tf::add_n(&g, &both)), [4.0, 6.0]);
    assert_eq!(value::<f32, [f32; 4]>(&tf::concat_v2(&g, &both, 0)), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(value::<f32, [[f32; 2]; 2]>(&tf::pack(&g, &both))[1], [3.0, 4.0]);
    let halves = tf::split(0, tf::concat_v2(&g, &both, 0), 2);
    assert_eq!(halves.len(), 2);
    assert_eq!(value::<f32, [f32; 2]>(&halves[1]), [3.0, 4.0]);
    let sized = tf::split_v(&a, [1i64, 1], 0, 2);
    assert_eq!(value::<f32, [f32; 1]>(&sized[1]), [2.0]);
    let rows = tf::Unpack::new().axis(0).build(tf::pack(&g, &both), 2);
    assert_eq!(value::<f32, [f32; 2]>(&rows[0]), [1.0, 2.0]);
    let shapes = tf::shape_n::<i32, _>(&g, &both);
    assert_eq!(value::<i32, [i32; 1]>(&shapes[1]), [2]);
    let parts = tf::dynamic_partition(&a, [1, 0], 2);
    assert_eq!(value::<f32, Vec<f32>>(&parts[0]), [2.0]);
    let stitched = tf::dynamic_stitch(
        &g,
        &[g.constant([1]), g.constant([0])],
        &[g.constant([10.0f32]), g.constant([20.0f32])],
    );
    assert_eq!(value::<f32, [f32; 2]>(&stitched), [20.0, 10.0]);
    // A list of any types.
    let mixed: Vec<Output<Any>> = tf::identity_n(&g, &[a.any(), g.constant(7i64).any()]);
    assert_eq!(mixed[1].dtype(), Some(DType::Int64));
    assert_eq!(value::<i64, i64>(&mixed[1].typed::<i64>()), 7);
    let product = tf::einsum(&g, &both, "i,i->");
    assert_eq!(value::<f32, f32>(&product), 11.0);
    let check = tf::Assert::new().summarize(3).build(a.less(10.0).all(), &[a.any()]);
    g.session()?.run::<_, ()>((), (), &[&check])?;
    // Poisoned lists keep their length.
    let bad = tf::split(0, &a, 3);
    assert_eq!(bad.len(), 3);
    assert_eq!(g.mistakes().len(), 1);
    Ok(())
}

#[test]
fn references_and_resources_have_handles() -> Result<()> {
    let g = Graph::new();
    let shape = PartialShape::new([Some(2)]);
    let old: Output<Ref<f32>> = tf::variable_v2(&g, &shape);
    let set = tf::assign(&old, [1.0, 2.0]);
    let add = tf::assign_add(&old, [10.0, 10.0]);
    let double = old.value() * 2.0;
    let w: Variable<f32> = g.variable("w", Init::zeros([3]));
    let scatter = tf::resource_scatter_add(w.handle(), [1], [5.0f32]);
    let descend = tf::ResourceApplyGradientDescent::new().use_locking(true).build(
        w.handle(),
        0.5f32,
        [1.0f32, 1.0, 1.0],
    );
    let is_set = tf::var_is_initialized_op(w.handle());
    let session = g.session()?;
    let _: [f32; 2] = session.run(set.value(), (), &[])?;
    session.run::<_, ()>((), (), &[&add])?;
    assert_eq!(session.run::<_, [f32; 2]>(&double, (), &[])?, [22.0, 24.0]);
    session.run::<_, ()>((), (), &[&scatter])?;
    session.run::<_, ()>((), (), &[&descend])?;
    let (values, is_set): ([f32; 3], bool) = session.run((&w, &is_set), (), &[])?;
    assert_eq!((values, is_set), ([-0.5, 4.5, -0.5], true));

    let queue = tf::FIFOQueueV2::new().capacity(4).build(&g, &[DType::Int32]);
    let put = tf::queue_enqueue_v2(&queue, &[g.constant(8i32).any()]);
    let got = tf::queue_dequeue_v2(&queue, &[DType::Int32]);
    session.run::<_, ()>((), (), &[&put])?;
    assert_eq!(session.run::<_, i32>(&got[0].typed::<i32>(), (), &[])?, 8);
    Ok(())
}

#[test]
fn variants_strings_and_random_numbers() -> Result<()> {
    let g = Graph::new();
    let rows = g.constant([[1.0f32, 2.0], [3.0, 4.0]]);
    let list: Output<Variant> = tf::tensor_list_from_tensor(&rows, [2]);
    assert_eq!(value::<f32, [f32; 2]>(&tf::tensor_list_get_item(&list, 1, [2])), [3.0, 4.0]);
    assert_eq!(value::<i32, i32>(&tf::tensor_list_length(&list)), 2);
    let words = g.constant(["ab", "c"]);
    assert_eq!(value::<i32, [i32; 2]>(&tf::string_length(&words)), [2, 1]);
    let joined = tf::StringJoin::new().separator("-").build(&g, &[words.clone(), words]);
    assert_eq!(value::<String, Vec<String>>(&joined), ["ab-ab", "c-c"]);
    let number: f32 = value(&tf::string_to_number(g.constant("2.5")));
    assert_eq!(number, 2.5);
    let noise = tf::RandomUniform::new().seed(1).seed2(2).build::<f32, _>(&g.constant([4]));
    assert!(value::<f32, [f32; 4]>(&noise).iter().all(|x| (0.0..1.0).contains(x)));
    let same: Output<f64> = tf::stateless_random_uniform(g.constant([2]), [1, 2]);
    assert_eq!(value::<f64, [f64; 2]>(&same), value::<f64, [f64; 2]>(&same));
    let fixed = tf::const_::<f32>(&g, &Tensor::from_slice(Shape::new(&[1])?, &[1.5f32])?);
    assert_eq!(value::<f32, [f32; 1]>(&fixed), [1.5]);
    let x: Output<f32> = tf::Placeholder::new().shape(PartialShape::scalar()).build(&g);
    let or: Output<f32> = tf::placeholder_with_default(g.constant(1.0f32), PartialShape::scalar());
    let session = g.session()?;
    assert_eq!(session.run::<_, f32>(&(&x + &or), feed! { x: 2.0 }, &[])?, 3.0);
    assert_eq!(session.run::<_, f32>(&(&x + &or), feed! { x: 2.0, or: 5.0 }, &[])?, 7.0);
    Ok(())
}
