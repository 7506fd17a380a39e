//! The prober against an in-process zoo of proxies and targets, most of them ill-behaved (HE-1…12).

mod actors;
mod real;
mod reasons;
mod tunnels;
mod zoo;
