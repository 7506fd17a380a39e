//! How a call ends that did not succeed.

use std::time::Duration;

use kube::core::Status;

/// A failed call.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ApiError {
    /// The API server answered so.
    #[error("{}", status_text(.0))]
    Status(Box<Status>),
    /// It did not answer in time.
    #[error("the API server did not answer within {0:?}")]
    Timeout(Duration),
    /// It could not be asked, or the answer could not be read.
    #[error("{0}")]
    Transport(String),
    /// It was not sent: the caller's guard refused (SV-4).
    #[error("{0}")]
    Withheld(String),
    /// There is nobody to ask.
    #[error("{0}")]
    Access(#[from] crate::AccessError),
}

fn status_text(status: &Status) -> String {
    let message = if status.message.is_empty() { &status.reason } else { &status.message };
    format!("{message} ({})", status.code)
}

impl ApiError {
    /// The HTTP status, if there was an answer.
    pub fn code(&self) -> Option<u16> {
        self.status().map(|status| status.code)
    }

    /// How long the API server asks us to wait, if it does.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.status()?.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    /// The answer.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Status(status) => Some(status),
            Self::Timeout(_) | Self::Transport(_) | Self::Withheld(_) | Self::Access(_) => None,
        }
    }
}

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Status(status),
            other => Self::Transport(chain(&other)),
        }
    }
}

/// An error and its causes, each said once.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        source = cause.source();
    }
    text
}
