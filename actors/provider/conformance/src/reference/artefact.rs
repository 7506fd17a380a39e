//! The base image that every machine of the cloud needs: fetched once for all who wait for it (PC-70), which may take hours.

use egress_provider::{BackendError, Call, Ground};
use tokio::sync::watch;

use super::Mutation;
use super::cloud::Cloud;

/// The image, and the fetch of it.
pub(super) struct Artefact {
    cloud: Cloud,
    ground: Ground,
    fetching: watch::Sender<Fetch>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fetch {
    NotBegun,
    UnderWay,
    Done,
}

impl Artefact {
    pub(super) fn new(cloud: Cloud, ground: Ground) -> Self {
        Self { cloud, ground, fetching: watch::Sender::new(Fetch::NotBegun) }
    }

    /// Waits outside until it is there (PC-100). The fetch is a task of the ground, so that it goes on when the one who
    /// began it leaves.
    pub(super) async fn needed(&self, call: &Call, mutation: Option<Mutation>) -> Result<(), BackendError> {
        if !self.cloud.lacks_image() {
            return Ok(());
        }
        let began = self.fetching.send_if_modified(|fetch| std::mem::replace(fetch, Fetch::UnderWay) != Fetch::UnderWay);
        if began {
            let (cloud, fetching) = (self.cloud.clone(), self.fetching.clone());
            self.ground.spawn(async move {
                cloud.image_is_there().await;
                fetching.send_replace(Fetch::Done);
            });
        }
        call.progress.set("the base image is being fetched");
        let mut seen = self.fetching.subscribe();
        let there = async move { drop(seen.wait_for(|fetch| *fetch == Fetch::Done).await) };
        match mutation {
            Some(Mutation::KeepsSlotOutside) => {
                there.await;
                Ok(())
            }
            Some(Mutation::ClockRunsOutside) => {
                let late = |_| BackendError::transient("the image did not come in time");
                call.outside(tokio::time::timeout_at(call.deadline(), there)).await?.map_err(late)
            }
            _ => call.outside(there).await,
        }
    }
}
