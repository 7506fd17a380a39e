//! Where the API server is, and who we are there.

use std::path::PathBuf;

use kube::config::{Config, KubeConfigOptions, Kubeconfig};

use crate::client::CONNECT;

/// How the API server is found (OP-27): the file that was named; else, in a Pod, its ServiceAccount; else `KUBECONFIG` or the
/// user's default file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Access {
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
}

/// Why there is no client. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AccessError(pub String);

impl Access {
    /// Reads the files again.
    pub(crate) async fn load(&self) -> Result<Config, AccessError> {
        let mut config = match &self.kubeconfig {
            Some(path) => {
                let told = |error: &dyn std::fmt::Display| AccessError(format!("kubeconfig {}: {error}", path.display()));
                let file = Kubeconfig::read_from(path).map_err(|error| told(&error))?;
                Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(|error| told(&error))?
            }
            None => match Config::incluster() {
                Ok(config) => config,
                Err(_) => Config::from_kubeconfig(&KubeConfigOptions::default()).await.map_err(|error| {
                    AccessError(format!(
                        "this is no Pod with a ServiceAccount, and there is no kubeconfig: {error}: give --kubeconfig FILE"
                    ))
                })?,
            },
        };
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = None;
        Ok(config)
    }
}
