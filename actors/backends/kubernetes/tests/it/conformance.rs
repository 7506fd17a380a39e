//! The backend runs the conformance suite (PC-89, K8-1, K8-17): over the double, and over a real API server.

mod fixture;

use egress_conformance::{self as conformance, Report};

use crate::support::bed::Bed;
use fixture::KubernetesFixture;

/// What does not apply as a whole; a test that stops applying has to be looked at.
const NOT_AT_ALL: [&str; 6] = ["CT-07", "CT-13", "CT-14", "CT-16", "CT-23", "CT-31"];

fn look_at(report: &Report) {
    println!("{report}");
    assert!(report.is_ok(), "{report}");
    let not_at_all: Vec<_> = report.not_applicable.iter().map(|(id, _)| *id).filter(|id| !report.passed.contains(id)).collect();
    let expected: Vec<_> = NOT_AT_ALL.into_iter().chain(["CT-38", "CT-40"]).collect();
    assert_eq!(not_at_all, expected);
}

#[test]
fn the_kubernetes_backend_keeps_the_contract_over_a_double() {
    look_at(&conformance::run(&KubernetesFixture::over_doubles()));
}

#[test]
fn the_kubernetes_backend_keeps_the_contract_at_a_real_api_server() {
    if let Some(bed) = Bed::find("the_kubernetes_backend_keeps_the_contract_at_a_real_api_server") {
        look_at(&conformance::run(&KubernetesFixture::at(bed)));
    }
}
