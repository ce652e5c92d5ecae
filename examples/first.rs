//! The README's example: a product of two matrices.

use thalweg::prelude::*;

fn main() -> Result<()> {
    let mut scope = thalweg::scope();
    let x = scope.placeholder(DType::Float, &PartialShape::new([None, Some(2)]))?;
    let w = scope.constant(&Tensor::from_slice(Shape::new(&[2, 1])?, &[1.0f32, 2.0])?)?;
    let y = scope.add("MatMul", &[x, w])?;
    let session = thalweg::session(&scope)?;
    let feed = Tensor::from_slice(Shape::new(&[1, 2])?, &[3.0f32, 4.0])?;
    let result = session.run(&[(&scope.name_of(x), feed)], &[&scope.name_of(y)], &[])?;
    println!("{:?}", result[0].as_slice::<f32>()?); // [11.0]
    Ok(())
}
