//! Which credentials an entry uses: the chain of Application Default Credentials (GC-21).

use std::ffi::OsString;
use std::path::PathBuf;

use super::CredentialFile;

/// The host of the metadata server where nothing else is said.
pub const METADATA_HOST: &str = "metadata.google.internal";

/// What the chain came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A credential file, read anew for each token (PC-74).
    File {
        /// Where it is.
        path: PathBuf,
        /// The key or the variable that names it, for people.
        named_by: &'static str,
    },
    /// The metadata server, by `HOST[:PORT]`.
    Metadata(String),
}

impl Credentials {
    /// The file, for the fingerprint of the entry and the warning that it is missing (GC-33).
    pub(super) fn file(&self) -> Option<CredentialFile> {
        match self {
            Self::File { path, named_by } => Some(CredentialFile { key: (*named_by).to_owned(), path: path.clone() }),
            Self::Metadata(_) => None,
        }
    }
}

/// What of the environment the chain looks at.
#[derive(Debug, Clone, Default)]
pub(super) struct Environment {
    /// `GOOGLE_APPLICATION_CREDENTIALS`.
    pub(super) named: Option<PathBuf>,
    /// gcloud's file, where one is.
    pub(super) well_known: Option<PathBuf>,
    /// `GCE_METADATA_HOST`.
    pub(super) metadata_host: Option<String>,
}

/// Below gcloud's folder.
const WELL_KNOWN: &str = "application_default_credentials.json";

impl Environment {
    #[expect(
        clippy::disallowed_methods,
        reason = "the file is read in places that no command line leads to; these variables are Google's, not ours"
    )]
    pub(super) fn of_process() -> Self {
        Self::of(|name| std::env::var_os(name))
    }

    /// An empty variable counts as not set.
    pub(super) fn of(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let gcloud = set("CLOUDSDK_CONFIG").map(PathBuf::from).or_else(|| Some(PathBuf::from(set("HOME")?).join(".config/gcloud")));
        Self {
            named: set("GOOGLE_APPLICATION_CREDENTIALS").map(PathBuf::from),
            well_known: gcloud.map(|folder| folder.join(WELL_KNOWN)).filter(|path| path.exists()),
            metadata_host: set("GCE_METADATA_HOST").and_then(|host| host.into_string().ok()),
        }
    }

    /// The first that there is: the entry's own file, the one that the environment names, gcloud's, the metadata server.
    pub(super) fn credentials(&self, own: Option<&str>) -> Credentials {
        let file = |path: &PathBuf, named_by| Credentials::File { path: path.clone(), named_by };
        if let Some(own) = own {
            return file(&PathBuf::from(own), "gcp.credentialsFile");
        }
        if let Some(path) = &self.named {
            return file(path, "GOOGLE_APPLICATION_CREDENTIALS");
        }
        if let Some(path) = &self.well_known {
            return file(path, "gcloud's application default credentials");
        }
        Credentials::Metadata(self.metadata_host.clone().unwrap_or_else(|| METADATA_HOST.to_owned()))
    }
}
