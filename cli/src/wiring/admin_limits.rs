//! Bounds of the admin endpoints, the same in every process.

use verbs3_config::ProcessSettings;
use verbs3_gateway::AdminLimits;

/// Bounds of the admin endpoints of any process.
pub fn admin_limits(process: &ProcessSettings) -> AdminLimits {
    let ProcessSettings {
        threads: _,
        drain_for: _,
        admin_connections_max,
        admin_per_address_max,
        admin_deadline,
    } = process;
    AdminLimits {
        connections_max: *admin_connections_max as usize,
        per_address_max: *admin_per_address_max as usize,
        deadline: admin_deadline.0,
    }
}
