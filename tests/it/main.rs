//! Whole-system tests, grouped by promise. One binary, so that everything is linked once.

mod architecture;
