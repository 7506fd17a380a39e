//! The calls of the backend, through its host (PC-101).

use std::sync::Arc;

use egress_protocol::InstanceName;
use egress_provider::{Call, Host, HostError};
use serde::de::DeserializeOwned;

use crate::client::Answer;
use crate::error::CallError;
use crate::host::HostMessage;
use crate::operations::Known;
use crate::request::ApiRequest;

/// One entry's way to Compute Engine.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    host: Host<HostMessage>,
}

impl From<HostError> for CallError {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Ended(_) => Self::Ended,
            HostError::Down(_) | HostError::WentAway(_) => Self::HostWentAway(error.to_string()),
        }
    }
}

impl Api {
    pub(crate) const fn new(host: Host<HostMessage>) -> Self {
        Self { host }
    }

    /// The answer of a success.
    pub(crate) async fn send(&self, request: ApiRequest, call: &Call) -> Result<Answer, CallError> {
        let request = Arc::new(request);
        self.host.ask(call, |caller, reply_to| HostMessage::Send { request, caller, reply_to }).await?
    }

    /// The body of a success.
    pub(crate) async fn read<T: DeserializeOwned>(&self, request: ApiRequest, call: &Call) -> Result<T, CallError> {
        self.send(request, call).await?.read()
    }

    /// It is the instance's last operation from now on. Lossy: what is not known here is found at the backend (GC-11).
    pub(crate) fn keep(&self, name: &InstanceName, known: Known) {
        let _ = self.host.tell(HostMessage::Keep { name: name.clone(), known });
    }

    pub(crate) async fn known(&self, name: &InstanceName, call: &Call) -> Result<Option<Known>, CallError> {
        Ok(self.host.ask(call, |_, reply_to| HostMessage::Known { name: name.clone(), reply_to }).await?)
    }

    pub(crate) fn settled(&self, name: &InstanceName, operation: &str) {
        let _ = self.host.tell(HostMessage::Settled { name: name.clone(), operation: operation.to_owned() });
    }

    /// Whether that operation's failure is told for the first time.
    pub(crate) async fn report(&self, name: &InstanceName, known: Known, call: &Call) -> Result<bool, CallError> {
        Ok(self.host.ask(call, |_, reply_to| HostMessage::Report { name: name.clone(), known, reply_to }).await?)
    }

    pub(crate) async fn account(&self, call: &Call) -> Option<String> {
        self.host.ask(call, |_, reply_to| HostMessage::Account { reply_to }).await.ok().flatten()
    }
}
