//! Measuring an accelerator: products and copies of known size.

use std::sync::Arc;

use thalweg_hlo::{Argument, Program};
use thalweg_tensor::{DType, Result, Shape, Tensor};

use crate::device::Accelerator;
use crate::pjrt::{Buffer, CompileOptions, Executable};

/// Work whose time a caller takes.
pub struct Probe {
    executable: Arc<Executable>,
    arguments: Vec<Buffer>,
    /// Floating-point operations, or bytes read and written, of one run.
    pub work: f64,
}

impl Accelerator {
    /// A product of two square matrices of this size and dtype.
    pub fn product_probe(&self, size: usize, dtype: DType) -> Result<Probe> {
        let matrix = Argument::new(dtype, &[size, size]);
        let (program, values) = Program::new(&[matrix.clone(), matrix]);
        program.allow_rounded_products();
        let text = program.finish(&[values[0].matmul(&values[1])])?;
        let work = 2.0 * (size as f64).powi(3);
        self.probe(&text, &[(dtype, vec![size, size]), (dtype, vec![size, size])], work)
    }

    /// An addition of one to a vector of 32-bit floats of this length.
    pub fn copy_probe(&self, elements: usize) -> Result<Probe> {
        let (program, values) = Program::new(&[Argument::new(DType::Float, &[elements])]);
        let text = program.finish(&[&values[0] + 1.0])?;
        let work = 8.0 * elements as f64;
        self.probe(&text, &[(DType::Float, vec![elements])], work)
    }

    fn probe(&self, text: &str, arguments: &[(DType, Vec<usize>)], work: f64) -> Result<Probe> {
        let options = CompileOptions { device: self.ordinal, ..CompileOptions::default() };
        let executable = self.client.compile(text, &options)?;
        let arguments = arguments
            .iter()
            .map(|(dtype, dims)| {
                let tensor = Tensor::zeros(*dtype, Shape::new(dims)?)?;
                self.client.upload(&tensor, self.ordinal)
            })
            .collect::<Result<_>>()?;
        Ok(Probe { executable, arguments, work })
    }
}

impl Probe {
    /// Runs once and waits for the end.
    pub fn run(&self) -> Result<()> {
        let arguments: Vec<&Buffer> = self.arguments.iter().collect();
        let results = self.executable.execute(&arguments, &[])?;
        for result in results {
            result.wait()?;
        }
        Ok(())
    }
}
