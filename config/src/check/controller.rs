//! Checks of `[controller]`.

use super::coordinator::check_url;
use crate::process_role::ProcessRole;
use verbs3_kubernetes::ControllerSettings;
use verbs3_settings::CheckFindings;

pub(super) fn check_controller(
    controller: &ControllerSettings,
    roles: &[ProcessRole],
    findings: &mut CheckFindings,
) {
    let ControllerSettings { api_server, api_ca_file, api_token_file, endpoint, region, .. } =
        controller;
    // A token goes over it.
    check_url("controller.api_server", api_server, &["https://"], findings);
    if let Some(endpoint) = endpoint {
        check_url("controller.endpoint", endpoint, &["http://", "https://"], findings);
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if region.is_empty() || !region.chars().all(is_plain) {
        findings.add_error("controller.region", format!("{region:?} is no name of a region"));
    }
    if roles.contains(&ProcessRole::Controller) {
        if endpoint.is_none() {
            findings.add_error("controller.endpoint", "is missing; name the gateways' Service");
        }
        findings.check_readable("controller.api_ca_file", api_ca_file);
        findings.check_readable("controller.api_token_file", api_token_file);
    }
}
