//! Benchmarks as ratios against a named reference in one run.
