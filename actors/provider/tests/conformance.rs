//! The suite proves itself: the reference backend passes all of it in each of its styles, and each mutant of it fails the
//! test named for the rule it breaks (PC-91). The mutant of OP-28 is not a backend's: it is in the proxy's own suite.

use std::collections::BTreeSet;

use egress_provider::conformance::{self, Report};
use egress_provider::reference::{Mutation, ReferenceFixture, Style};

#[expect(clippy::print_stdout, reason = "`--nocapture` shows the report")]
fn show(report: &Report) {
    println!("{report}");
}

#[test]
fn the_reference_backend_passes_everything() {
    let report = conformance::run(&ReferenceFixture::new(Style::Early));
    show(&report);
    assert!(report.is_ok(), "{report}");
    assert_eq!(report.not_applicable, [], "it offers every hook");
    assert_eq!(report.passed.len(), conformance::statements().count());
}

#[test]
fn the_reference_backend_passes_in_its_other_style() {
    let report = conformance::run(&ReferenceFixture::new(Style::Plain));
    show(&report);
    assert!(report.is_ok(), "{report}");
    let not: Vec<_> = report.not_applicable.iter().map(|(id, _)| *id).collect();
    assert_eq!(not, ["CT-13"], "its addresses are not discovered");
}

#[test]
fn every_mutant_is_caught_by_the_test_named_for_it() {
    let escaped: Vec<_> = Mutation::ALL
        .iter()
        .filter(|mutation| {
            let report = conformance::run_one(&ReferenceFixture::broken(**mutation), mutation.caught_by());
            let caught = report.failed.iter().any(|(id, _)| *id == mutation.caught_by());
            !caught
        })
        .collect();
    assert!(escaped.is_empty(), "not caught: {escaped:?}");
}

#[test]
fn every_contract_test_has_a_mutant() {
    let with: BTreeSet<_> = Mutation::ALL.iter().map(|mutation| mutation.caught_by()).collect();
    let without: Vec<_> = conformance::statements().map(|(id, _)| id).filter(|id| !with.contains(id)).collect();
    assert!(without.is_empty(), "no mutant for {without:?}");
}
