//! Where the API server is, and who we are there.

use std::path::{Path, PathBuf};

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
                regular(path).map_err(|error| told(&error))?;
                let file = Kubeconfig::read_from(path).map_err(|error| told(&error))?;
                Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(|error| told(&error))?
            }
            None => match Config::incluster() {
                Ok(config) => config,
                Err(_) => {
                    for path in named_by_the_environment() {
                        regular(&path).map_err(|error| AccessError(format!("KUBECONFIG: {}: {error}", path.display())))?;
                    }
                    Config::from_kubeconfig(&KubeConfigOptions::default()).await.map_err(|error| {
                        AccessError(format!(
                            "this is no Pod with a ServiceAccount, and there is no kubeconfig: {error}: give --kubeconfig FILE"
                        ))
                    })?
                }
            },
        };
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = None;
        Ok(config)
    }
}

/// Opening a FIFO waits for somebody who writes to it, and reading a device may never end. What is not there is for the reader to say.
fn regular(path: &Path) -> std::io::Result<()> {
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(std::io::Error::other("it is not a regular file")),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The files that `KUBECONFIG` names, which the client's library reads by itself.
#[expect(clippy::disallowed_methods, reason = "the library reads the same variable; here its files are looked at before")]
fn named_by_the_environment() -> Vec<PathBuf> {
    std::env::var_os("KUBECONFIG").map(|paths| std::env::split_paths(&paths).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Issue 10, 9.
    #[tokio::test]
    async fn a_kubeconfig_that_is_no_regular_file_is_refused_at_once() {
        for path in ["/dev/zero", "/tmp"] {
            let load = Access { kubeconfig: Some(path.into()) };
            let refused = tokio::time::timeout(std::time::Duration::from_secs(5), load.load()).await.expect("it does not wait");
            assert_eq!(refused.err().map(|error| error.0), Some(format!("kubeconfig {path}: it is not a regular file")));
        }
    }
}
