//! A refused token is read again once (K8-13), and no secret is told.

use egress_protocol::provider::ErrorClass;

use crate::support::double::{Double, TOKEN};
use crate::support::kit::{Calls, backend, config, key, request};
use crate::wire::later;

#[tokio::test]
async fn a_refused_token_is_read_again_once() {
    let double = Double::start();
    let backend = backend(config(), &double.kubeconfig()).await;
    let asked = request("team-a", "u-1");
    backend.made(&asked).await.unwrap();
    // Rotated: the file has the new one.
    double.accept_token("rotated");
    std::fs::write(double.token_file(), "rotated").unwrap();
    later().await;
    double.forget();
    backend.read(&key(&asked)).await.unwrap();
    let tokens: Vec<_> = double.seen().iter().map(|seen| seen.headers["authorization"].to_str().unwrap().to_owned()).collect();
    assert_eq!(tokens, [format!("Bearer {TOKEN}"), "Bearer rotated".to_owned()], "the old one, then the new one");
    double.forget();
    backend.read(&key(&asked)).await.unwrap();
    assert_eq!(double.seen().len(), 1, "from then on the new one at once");
}

#[tokio::test]
async fn a_token_that_stays_refused_is_permanent_and_the_environments_fault() {
    let double = Double::start();
    let backend = backend(config(), &double.kubeconfig()).await;
    let asked = request("team-a", "u-1");
    backend.made(&asked).await.unwrap();
    double.accept_token("another");
    later().await;
    double.forget();
    let error = backend.read(&key(&asked)).await.unwrap_err();
    assert_eq!((error.class, error.environment), (ErrorClass::Permanent, true), "{}", error.message);
    assert_eq!(double.seen().len(), 2, "tried once more, no storm");
    // A moment later nothing new can be on disk.
    double.forget();
    assert_eq!(backend.made(&request("team-a", "u-2")).await.unwrap_err().class, ErrorClass::Permanent);
    assert_eq!(double.seen().len(), 1);
    let told = format!("{error:?} {:?}", error.cause);
    assert!(!told.contains(TOKEN), "{told}");
}
