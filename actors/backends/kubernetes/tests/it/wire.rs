//! What goes over the wire, and what every answer comes to: the whole client against the double (K8-21 U).

mod answers;
mod credentials;
mod requests;
mod seen;
