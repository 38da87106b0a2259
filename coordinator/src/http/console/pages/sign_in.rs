//! The page for who is not known yet. Says nothing of the cluster.

use maud::{Markup, html};

use super::frame::draw_notice;

pub(in super::super) fn draw_sign_in(ticket: &str, refusal: Option<&str>) -> Markup {
    html! {
        section class="panel narrow" {
            @if let Some(refusal) = refusal { (draw_notice(refusal)) }
            form method="post" action="/console/sign-in" {
                input type="hidden" name="ticket" value=(ticket);
                label for="name" { "Name" }
                input id="name" name="name" required maxlength="64" autocomplete="username"
                    autocapitalize="none" spellcheck="false" autofocus;
                label for="password" { "Password" }
                input id="password" name="password" type="password" required maxlength="256"
                    autocomplete="current-password";
                button type="submit" { "Sign in" }
            }
        }
    }
}
