//! What all pages share: head, navigation, who is signed in.

use maud::{DOCTYPE, Markup, html};

use super::super::shown_text::plain_text;
use crate::console_access::ConsoleRole;
use crate::console_access::SignedInUser;

/// A page of the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum PageTab {
    Overview,
    Nodes,
    Jobs,
    Object,
    Tenants,
    Runbooks,
}

impl PageTab {
    const ALL: [(Self, &'static str, &'static str); 6] = [
        (Self::Overview, "/console", "Overview"),
        (Self::Nodes, "/console/nodes", "Nodes"),
        (Self::Jobs, "/console/jobs", "Jobs"),
        (Self::Object, "/console/object", "Objects"),
        (Self::Tenants, "/console/tenants", "Tenants"),
        (Self::Runbooks, "/console/runbooks", "Runbooks"),
    ];
}

/// What a page shows: a part that changes by itself, and one that does not.
#[derive(Default)]
pub(in super::super) struct PageContent {
    pub(in super::super) live: Option<Markup>,
    pub(in super::super) still: Option<Markup>,
}

/// What stands around a page.
pub(in super::super) struct PageFrame<'a> {
    pub(in super::super) cluster: &'a str,
    pub(in super::super) title: &'a str,
    pub(in super::super) tab: Option<PageTab>,
    pub(in super::super) user: Option<&'a SignedInUser>,
}

impl PageFrame<'_> {
    pub(in super::super) fn draw_page(&self, content: PageContent) -> Markup {
        let cluster = plain_text(self.cluster);
        let PageContent { live, still } = content;
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " · " (cluster) " · verbs3" }
                    link rel="icon" type="image/svg+xml" href="/console/icon.svg";
                    link rel="stylesheet" href="/console/style.css";
                    @if self.user.is_some() { script src="/console/console.js" defer {} }
                }
                body {
                    a class="skip" href="#main" { "Skip to content" }
                    header class="top" {
                        div class="wide" {
                            p class="brand" { "verbs3 " span { (cluster) } }
                            @if let Some(user) = self.user { (draw_user(user)) }
                        }
                        @if self.user.is_some() {
                            nav class="wide" aria-label="Pages" {
                                ul { @for (tab, path, name) in PageTab::ALL {
                                    li { a href=(path) aria-current=[
                                        (self.tab == Some(tab)).then_some("page")
                                    ] { (name) } }
                                } }
                            }
                        }
                    }
                    main id="main" class="wide" tabindex="-1" {
                        div class="head" {
                            h1 { (self.title) }
                            @if live.is_some() {
                                p class="live-state" {
                                    noscript { a href="" { "Load the figures anew" } }
                                    span id="live-state" role="status" {}
                                    button id="live-toggle" type="button" hidden { "Pause" }
                                }
                            }
                        }
                        @if let Some(live) = live { div id="live" { (live) } }
                        @if let Some(still) = still { (still) }
                    }
                }
            }
        }
    }
}

fn draw_user(user: &SignedInUser) -> Markup {
    html! {
        form class="who" method="post" action="/console/sign-out" {
            input type="hidden" name="form_token" value=(user.form_token);
            span { (user.name) " "
                span class="chip" { (user.role.role_text()) } }
            button type="submit" class="quiet" { "Sign out" }
        }
    }
}

/// Draws a sentence that something can't be shown or was not done.
pub(in super::super) fn draw_notice(text: &str) -> Markup {
    html! { p class="notice" role="alert" { (text) } }
}

impl SignedInUser {
    /// Whether pages show this user forms that change something.
    pub(in super::super) fn may_change(&self) -> bool {
        self.role == ConsoleRole::Operator
    }
}
