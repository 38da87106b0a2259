//! Refuses what only the leader answers, and names the leader.

use http::StatusCode;

use super::response::CoordinatorResponse;
use crate::leadership::ClusterLeadership;

/// Refuses a request because another coordinator leads, or none.
pub(super) async fn redirect_to_leader(leadership: &ClusterLeadership) -> CoordinatorResponse {
    let refused = leadership.explain_refusal().await;
    CoordinatorResponse::from_refusal(StatusCode::MISDIRECTED_REQUEST, &refused)
}
