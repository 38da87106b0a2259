//! What each tenant did in the last hour.

use maud::{Markup, html};
use verbs3_coordinator_client::api::TenantActivity;

use super::super::picture::ClusterPicture;
use super::super::shown_text::{
    count_text, per_second, percent_text, plain_text, rate_text, size_text,
};

pub(in super::super) fn draw_tenants(picture: &ClusterPicture) -> Markup {
    let hour = &picture.hour;
    let moved = |tenant: &TenantActivity| tenant.bytes_sent.saturating_add(tenant.bytes_received);
    let all: u64 = hour.tenants.iter().map(moved).fold(0, u64::saturating_add);
    html! {
        @if hour.tenants.is_empty() {
            p { "No tenant has sent a request in the last hour." }
        } @else {
            p { "The last hour, at all gateways that report. Each gateway tells the first 64 \
                tenants that it knows apart. Here are those with the most bytes; all others are "
                em { "other" } "." }
            div class="scroll" tabindex="0" role="region" aria-label="Tenants" {
                table {
                    thead { tr {
                        th scope="col" { "Tenant" }
                        th scope="col" class="number" { "Requests" }
                        th scope="col" class="number" { "A second" }
                        th scope="col" class="number" { "Sent" }
                        th scope="col" class="number" { "Taken" }
                        th scope="col" class="number" { "Refused" }
                        th scope="col" { "Share of bytes" }
                    } }
                    tbody { @for tenant in &hour.tenants { tr {
                        th scope="row" { bdi { (plain_text(&tenant.name)) } }
                        td class="number" { (count_text(tenant.requests)) }
                        td class="number" { (rate_text(per_second(tenant.requests, hour.seen))) }
                        td class="number" { (size_text(tenant.bytes_sent)) }
                        td class="number" { (size_text(tenant.bytes_received)) }
                        td class="number" { (count_text(tenant.refusals)) }
                        @let share = percent_text(moved(tenant), all);
                        td { @if let Some(share) = share {
                            meter min="0" max=(all) value=(moved(tenant)) aria-label=(share) {}
                            " " (share)
                        } }
                    } } }
                }
            }
        }
    }
}
