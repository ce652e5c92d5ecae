//! The thalweg command.
