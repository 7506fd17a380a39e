//! The local backend runs the conformance suite (LO-2, PC-89).

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod fixture;

use egress_conformance as conformance;

use fixture::LocalFixture;

#[test]
fn the_local_backend_keeps_the_contract() {
    let report = conformance::run(&LocalFixture);
    println!("{report}");
    assert!(report.is_ok(), "{report}");
    // What does not apply as a whole; a test that stops applying has to be looked at.
    let not_at_all: Vec<_> = report.not_applicable.iter().map(|(id, _)| *id).filter(|id| !report.passed.contains(id)).collect();
    assert_eq!(not_at_all, ["CT-05", "CT-11", "CT-13", "CT-14", "CT-16", "CT-23", "CT-31", "CT-38", "CT-39", "CT-40", "PC-93"]);
}
