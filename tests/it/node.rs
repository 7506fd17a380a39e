//! On a real node: the chart installed, Pods that really run, and what really happens to them (RE-4, K8-20, K8-21 C).
//! All of them are skipped by name without the node bed (tests/bed/README.md).

mod guide;
mod pods;
mod replicas;
mod whole;
