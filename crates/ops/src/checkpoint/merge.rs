//! `MergeV2Checkpoints`: merges the checkpoints of several tasks.

use thalweg_formats::Storage;
use thalweg_formats::checkpoint::{MergeOptions, WriteOptions, index_path, merge};
use thalweg_graph::{OpDef, ShapeContext};
use thalweg_kernel::{AnyKernel, KernelInit, Outputs};
use thalweg_tensor::{Result, ensure};

use super::{check_folder, on_files, only_path};
use crate::files::path_of;
use crate::work;

pub(super) const MERGE_V2_CHECKPOINTS: OpDef =
    OpDef::new("MergeV2Checkpoints", ranks).with_work(work::file);

fn ranks(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, "checkpoint_prefixes", 1)?;
    c.with_rank(1, "destination_prefix", 0)?;
    Ok(())
}

pub(super) fn create(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let options = MergeOptions {
        delete_old_dirs: init.attrs().bool("delete_old_dirs")?,
        allow_missing: init.attrs().bool("allow_missing_files")?,
        write: WriteOptions::default(),
    };
    on_files(move |call| {
        let (prefixes, destination) = (call.input(0)?, call.input(1)?);
        ensure!(
            prefixes.rank() == 1,
            InvalidArgument,
            "Input checkpoint_prefixes should be an 1-D tensor, got {} instead.",
            prefixes.shape()
        );
        ensure!(
            destination.rank() == 0,
            InvalidArgument,
            "Input destination_prefix should be a scalar tensor, got {} instead.",
            destination.shape()
        );
        let prefixes: Vec<&str> = prefixes.strings()?.iter().map(path_of).collect::<Result<_>>()?;
        let destination = only_path(destination, "destination_prefix")?;
        let storage = &call.step.environment().storage;
        check_there(&**storage, &prefixes, options.allow_missing)?;
        check_folder(&**storage, destination)?;
        merge(storage, &prefixes, destination, options)?;
        Ok(Outputs::new())
    })
}

/// Missing checkpoint parts are INVALID_ARGUMENT, as in TensorFlow.
fn check_there(storage: &dyn Storage, prefixes: &[&str], may_miss: bool) -> Result<()> {
    let mut found = 0;
    for prefix in prefixes {
        let is_there = storage.exists(&index_path(prefix))?;
        ensure!(
            is_there || may_miss,
            InvalidArgument,
            "allow_missing_files was set to false and {prefix} did not exist."
        );
        found += usize::from(is_there);
    }
    ensure!(
        found > 0,
        InvalidArgument,
        "At least one prefix checkpoint file must exist, but none existed."
    );
    Ok(())
}
