//! The pages, drawn on the server. Each has a part that shows figures, which the script fetches
//! anew, and below it what stays as it is: forms. Decides nothing.

mod frame;
mod health;
mod jobs;
mod nodes;
mod object;
mod overview;
mod runbooks;
mod sign_in;
mod tenants;
#[cfg(test)]
mod tests;

pub(super) use frame::{PageContent, PageFrame, PageTab, draw_notice};
pub(super) use jobs::{
    JobFormValues, draw_job, draw_job_form, draw_jobs, draw_stop_form, job_path,
};
pub(super) use nodes::draw_nodes;
pub(super) use object::{ObjectQuestion, draw_object, draw_object_form};
pub(super) use overview::draw_overview;
pub(super) use runbooks::find_runbook;
pub(super) use sign_in::draw_sign_in;
pub(super) use tenants::draw_tenants;
