//! `ShardedFilename` and `ShardedFilespec`.

use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{Result, StringBuilder, Tensor};

use super::printf::{self, Spec};
use super::text::scalar_string;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("ShardedFilename", shape::scalar),
        OpDef::new("ShardedFilespec", shape::scalar),
    ],
    kernels: &[
        KernelSpec {
            op: "ShardedFilename",
            create: sharded_filename,
            is_cheap: true,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "ShardedFilespec",
            create: sharded_filespec,
            is_cheap: true,
            ..KernelSpec::CPU
        },
    ],
};

/// At least five digits.
const FIVE_DIGITS: Spec = Spec { width: 5, flag: Some(b'0'), ..Spec::PLAIN };

fn sharded_filename(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let mut name = begin(ctx)?;
        printf::signed(&mut name, FIVE_DIGITS, ctx.scalar_int(1, "shard")?)?;
        end(ctx, name, 2)
    })
}

fn sharded_filespec(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let mut name = begin(ctx)?;
        name.push(b"?????")?;
        end(ctx, name, 1)
    })
}

fn begin(ctx: &KernelContext<'_>) -> Result<StringBuilder> {
    let mut name = StringBuilder::new(ctx.budget());
    name.push(scalar_string(ctx, 0, "basename")?)?;
    name.push(b"-")?;
    Ok(name)
}

fn end(ctx: &mut KernelContext<'_>, mut name: StringBuilder, num_shards: usize) -> Result<()> {
    name.push(b"-of-")?;
    printf::signed(&mut name, FIVE_DIGITS, ctx.scalar_int(num_shards, "num_shards")?)?;
    ctx.set_output(0, Tensor::scalar_string(name.take()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call, code};
    use thalweg_tensor::Code;

    #[test]
    fn names() {
        for (shard, shards, expected) in [
            (1, 2, "a-00001-of-00002"),
            (100_000, 1_234_567, "a-100000-of-1234567"),
            (-1, -2, "a--0001-of--0002"),
        ] {
            let call = call("ShardedFilename").input(Tensor::scalar_string("a"));
            let name = call.input(Tensor::scalar(shard)).input(Tensor::scalar(shards)).run();
            assert_eq!(name.unwrap().strings().unwrap()[0], expected);
        }
        let spec =
            call("ShardedFilespec").input(Tensor::scalar_string("a")).input(Tensor::scalar(2i32));
        assert_eq!(spec.run().unwrap().strings().unwrap()[0], "a-?????-of-00002");
        let vector = call("ShardedFilespec").input(Tensor::scalar_string("a"));
        assert_eq!(
            code(vector.input(Tensor::vector(&[2i32]).unwrap()).run()),
            Some(Code::InvalidArgument)
        );
    }
}
