//! At a real API server with its controllers, RBAC and admission, and no kubelet (K8-21 A). What the suite proves there
//! (names, marks, pages, repeats) is not repeated here.

mod admission;
mod hosts;
mod life;
mod rights;
mod states;
