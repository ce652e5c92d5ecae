//! The models that are quick run with every change; those marked `#[ignore]` in `cargo xtask test --all`.

use loom_models::{
    counts_model, explore, offers_model, outstanding_model, pool, rendezvous_model, ring,
};

/// Switches between threads that could go on; most mistakes need two.
const QUICK: Option<usize> = Some(2);

#[test]
fn a_thread_of_the_pool_does_not_sleep_through_a_job() {
    explore(None, || pool::sleep_model(1, 1));
    explore(QUICK, || pool::sleep_model(2, 1));
    explore(QUICK, || pool::sleep_model(1, 2));
}

#[test]
fn a_loop_ends_after_its_blocks() {
    explore(None, || pool::blocks_model(1, 2));
    explore(QUICK, || pool::blocks_model(2, 2));
}

#[test]
fn a_step_ends_once_and_its_caller_wakes() {
    explore(None, || outstanding_model::end(1));
    explore(QUICK, || outstanding_model::end(2));
}

#[test]
fn the_caller_of_a_step_wakes_for_offers() {
    explore(None, || outstanding_model::offers(1));
    explore(QUICK, || outstanding_model::offers(2));
}

#[test]
fn no_offered_node_is_left_behind() {
    explore(QUICK, || offers_model::leaving(1, 1, 1));
    explore(QUICK, || offers_model::leaving(1, 2, usize::MAX));
    explore(QUICK, || offers_model::leaving(2, 1, usize::MAX));
    explore(QUICK, || offers_model::waiting(1, 1));
}

#[test]
fn the_last_input_runs_a_node() {
    explore(None, || counts_model::node(2, &[]));
    explore(None, || counts_model::node(2, &[1]));
    explore(QUICK, || counts_model::node(3, &[0, 2]));
}

#[test]
fn a_merge_runs_once() {
    for alive in [Some(0), Some(1), None] {
        explore(None, move || counts_model::merge(2, alive, 0));
        explore(QUICK, move || counts_model::merge(2, alive, 1));
    }
}

#[test]
fn the_last_reader_takes_a_value() {
    explore(None, || counts_model::readers(2));
    explore(QUICK, || counts_model::readers(3));
}

#[test]
fn an_iteration_ends_once() {
    explore(None, || counts_model::iteration(2));
    explore(QUICK, || counts_model::iteration(3));
}

#[test]
fn a_rendezvous_answers_once() {
    explore(None, || rendezvous_model::meeting(false));
    explore(None, || rendezvous_model::meeting(true));
}

#[test]
fn slots_of_a_ring_are_filled_by_one_and_read_whole() {
    explore(None, || ring::slots_model(1, 2));
    explore(QUICK, || ring::slots_model(2, 3));
}

#[test]
#[ignore = "long"]
fn larger_models_of_the_pool() {
    explore(Some(4), || pool::sleep_model(2, 1));
    explore(Some(3), || pool::sleep_model(2, 2));
    explore(None, || pool::blocks_model(2, 2));
    explore(Some(3), || pool::blocks_model(2, 3));
}

#[test]
#[ignore = "long"]
fn larger_models_of_the_executor() {
    explore(None, || outstanding_model::end(2));
    explore(Some(3), || outstanding_model::end(3));
    explore(Some(3), || outstanding_model::offers(2));
    explore(Some(3), || offers_model::leaving(1, 1, usize::MAX));
    explore(QUICK, || offers_model::leaving(1, 2, 1));
    explore(QUICK, || offers_model::leaving(2, 2, usize::MAX));
    explore(Some(3), || offers_model::waiting(1, 2));
    explore(Some(3), || offers_model::waiting(2, 2));
    explore(None, || counts_model::node(3, &[1]));
    explore(None, || counts_model::merge(2, Some(0), 1));
    explore(Some(3), || counts_model::merge(2, Some(1), 2));
    explore(Some(3), || counts_model::merge(3, None, 1));
    explore(None, || counts_model::readers(3));
    explore(None, || counts_model::iteration(3));
}

#[test]
#[ignore = "long"]
fn larger_models_of_the_ring() {
    explore(None, || ring::slots_model(2, 3));
    explore(Some(3), || ring::slots_model(2, 5));
}
