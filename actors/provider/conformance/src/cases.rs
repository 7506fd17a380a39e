//! The contract tests, by operation.

mod calls;
mod create;
mod delete;
mod fence;
mod get;
mod hosts;
mod list;
mod seen;

use super::Case;

macro_rules! case {
    ($id:literal, $says:literal, $run:path) => {
        Case { id: $id, says: $says, run: |trial| Box::pin($run(trial)) }
    };
}

/// In the order of provider-contract.md §11, with the fence that came later (SV-4).
pub(crate) const ALL: &[Case] = &[
    case!("CT-01", "a repeated create returns the same id and the object count does not change", create::repeated),
    case!("CT-02", "a create cut after each step, repeated, ends in one instance and no stray object", create::cut),
    case!("CT-03", "all marks are present the moment the instance exists", create::marked),
    case!("CT-04", "create over what is not ours: Permanent, object unchanged", create::over_foreign),
    case!("CT-05", "create over a dying instance: Transient", create::over_dying),
    case!("CT-06", "get right after create is never NotFound", create::visible),
    case!("CT-07", "bad placement: Permanent naming field and value, zero backend calls", create::bad_placement),
    case!("CT-08", "get after a finished delete: NotFound", get::after_delete),
    case!("CT-09", "backend unreachable, unauthorised or erring: never NotFound from get", get::never_not_found),
    case!("CT-10", "get on what is not ours: NotFound; unreadable marks: Transient; corrupt: Permanent", get::foreign),
    case!("CT-11", "get during a delete still answers, deleting, not Running", get::dying),
    case!("CT-12", "running without an address: Provisioning; with one: Running", get::address),
    case!("CT-13", "every address source failing, link dying under the read: Transient", get::sources),
    case!("CT-14", "state table; unknown is Stopped; paused is Paused", get::states),
    case!("CT-15", "created but not yet started is never Stopped", get::not_started),
    case!("CT-16", "get during a task or lock: last state or Transient", get::busy),
    case!("CT-17", "uid, installation, created_at follow the backend, not memory", get::follows),
    case!("CT-18", "malformed id: Permanent from get and delete", get::malformed),
    case!("CT-19", "delete twice, delete during delete, two deletes at once: success", delete::repeated),
    case!("CT-20", "delete of a foreign instance: Gone, object unchanged", delete::foreign),
    case!("CT-21", "after Gone no object of that name remains", delete::complete),
    case!("CT-22", "delete without an id removes instance and leftovers by name", delete::by_name),
    case!("CT-23", "unconfigured location: get Permanent, delete Gone", delete::unconfigured),
    case!("CT-24", "list excludes unmarked, other-type and other-installation instances; an empty uid is listed", list::ours),
    case!("CT-25", "listed ids are accepted by delete; every page is drained", list::pages),
    case!("CT-26", "part unreachable: error or named in left_out; link dying mid-list likewise", list::partial),
    case!("CT-27", "a cancelled or expired call returns within 1 s from every blocking point", calls::cancelled),
    case!("CT-28", "two creates of one name at once: one instance, same id", calls::at_once),
    case!("CT-29", "an aborted call leaves other calls on the link working, or failing once as Transient", calls::aborted),
    case!("CT-30", "the constructor makes no backend call and survives missing credential files", calls::constructor),
    case!("CT-31", "credentials replaced on disk are used by the next dial or request", calls::credentials),
    case!("CT-32", "every error carries class, op, configured name", seen::errors),
    case!("CT-33", "child spans sit under the operation span; one span and one line per seam call", seen::spans),
    case!("CT-34", "check: one verdict per target in config order, prompt on an ended call, link undisturbed", calls::check),
    case!("CT-35", "names match the vectors of PC-49", create::names),
    case!("CT-36", "a panic in a backend call becomes Transient and the next call works", calls::panics),
    case!("CT-37", "list returns leftovers of our tag only; delete with an empty uid removes just those", delete::leftovers),
    case!("CT-38", "adoption rebuilds a missing secondary resource and refuses a mismatched disk", create::adoption),
    case!("CT-39", "a killed host fails its running calls once as Transient; other hosts do not notice; the restart shows", hosts::killed),
    case!("CT-40", "a call outside holds no slot and its time stands still; cancelled there it answers at once", hosts::outside),
    case!("SV-4", "no client call starts once leadership is lost, and the answer is Transient", fence::closed),
    case!("PC-92", "no secret in any line, span, error, summary or metric", seen::sentinels),
    case!("PC-93", "the classification table holds every class, cancellation and a foreign error", seen::classification),
];
