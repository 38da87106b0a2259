//! Pages and forms of users who have signed in.

use http::{Method, StatusCode, request};
use hyper::body::Incoming;
use maud::Markup;
use percent_encoding::percent_decode_str;
use verbs3_coordinator_client::api::{CoordinatorRefusal, escape_path_segment};
use verbs3_coordinator_client::proof::wall_clock_ms;
use verbs3_preload::api::{JobView, PreloadJobSpec, PreloadPriority, PreloadTier};

use super::browser::ConsoleResponse;
use super::form::{ConsoleForm, USER_FORM_BYTES_MAX};
use super::pages::{
    JobFormValues, ObjectQuestion, PageContent, PageFrame, PageTab, draw_job, draw_job_form,
    draw_jobs, draw_nodes, draw_notice, draw_object, draw_object_form, draw_overview,
    draw_stop_form, draw_tenants, find_runbook, job_path,
};
use super::{ConsoleOrigin, ConsoleSite, is_part};
use crate::console_access::SignedInUser;
use crate::http::caller::RequestCaller;
use crate::http::request::CoordinatorRequest;
use crate::http::response::CoordinatorResponse;
use crate::http::routes::route_request;

/// A page before its frame.
struct UserPage {
    title: String,
    tab: PageTab,
    content: PageContent,
    status: StatusCode,
}

impl UserPage {
    fn new(title: &str, tab: PageTab, live: Option<Markup>, still: Option<Markup>) -> Self {
        let content = PageContent { live, still };
        Self { title: title.to_owned(), tab, content, status: StatusCode::OK }
    }

    fn not_here(tab: PageTab, text: &str) -> Self {
        let page = Self::new("Not here", tab, None, Some(draw_notice(text)));
        Self { status: StatusCode::NOT_FOUND, ..page }
    }
}

fn runbook_page(name: &str) -> UserPage {
    match find_runbook(name) {
        Some((title, text)) => UserPage::new(title, PageTab::Runbooks, None, Some(text)),
        None => UserPage::not_here(PageTab::Runbooks, "There is no such runbook."),
    }
}

/// Says which moment a page shows.
fn time_text(now_ms: u64) -> String {
    let seconds = now_ms / 1000 % 86_400;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("As of {hours:02}:{minutes:02}:{:02} UTC.", seconds % 60)
}

impl ConsoleSite {
    pub(super) async fn answer_user(
        &self,
        user: &SignedInUser,
        head: request::Parts,
        body: Incoming,
        origin: ConsoleOrigin,
    ) -> ConsoleResponse {
        let path = head.uri.path();
        if head.method == Method::POST {
            let form = ConsoleForm::read_body(&head.headers, body, USER_FORM_BYTES_MAX).await;
            let form = match form {
                Ok(form) => form,
                Err(flaw) => {
                    return ConsoleResponse::from_sentence(
                        StatusCode::BAD_REQUEST,
                        flaw.to_string(),
                    );
                }
            };
            if !user.owns_form(form.field("form_token")) {
                let text = "This form is of another session. Go back and load the page anew.";
                return ConsoleResponse::from_sentence(StatusCode::FORBIDDEN, text);
            }
            if path == "/console/sign-out" {
                return self.sign_out(user, &head.headers, origin);
            }
            return self.change_as_user(user, path, &form).await;
        }
        let page = match path {
            "/console" | "/console/" => {
                self.picture_page("Overview", PageTab::Overview, |p| (Some(draw_overview(p)), None))
                    .await
            }
            "/console/nodes" => {
                self.picture_page("Nodes", PageTab::Nodes, |p| (Some(draw_nodes(p)), None)).await
            }
            "/console/tenants" => {
                self.picture_page("Tenants", PageTab::Tenants, |p| (Some(draw_tenants(p)), None))
                    .await
            }
            "/console/jobs" => {
                self.picture_page("Jobs", PageTab::Jobs, |p| {
                    let form = draw_job_form(user, JobFormValues::default());
                    (Some(draw_jobs(&p.jobs, wall_clock_ms())), form)
                })
                .await
            }
            "/console/object" => self.object_page(head.uri.query()).await,
            "/console/runbooks" => runbook_page("index"),
            _ => match path.strip_prefix("/console/runbooks/") {
                Some(name) => runbook_page(name),
                None => self.job_page(user, path).await,
            },
        };
        let as_of = time_text(wall_clock_ms());
        let live =
            page.content.live.map(|live| maud::html! { p class="hint as-of" { (as_of) } (live) });
        if is_part(&head.headers) {
            return ConsoleResponse::from_page(page.status, live.unwrap_or_default());
        }
        let content = PageContent { live, ..page.content };
        let page = UserPage { content, ..page };
        self.frame_page(user, page)
    }

    fn frame_page(&self, user: &SignedInUser, page: UserPage) -> ConsoleResponse {
        let UserPage { title, tab, content, status } = page;
        let cluster = &self.context.options.cluster_name;
        let frame = PageFrame { cluster, title: &title, tab: Some(tab), user: Some(user) };
        ConsoleResponse::from_page(status, frame.draw_page(content))
    }

    async fn picture_page(
        &self,
        title: &str,
        tab: PageTab,
        draw: impl FnOnce(&super::picture::ClusterPicture) -> (Option<Markup>, Option<Markup>),
    ) -> UserPage {
        match self.take_picture().await {
            Ok(picture) => {
                let (live, still) = draw(&picture);
                UserPage::new(title, tab, live, still)
            }
            Err(why) => UserPage::new(title, tab, Some(draw_notice(&why)), None),
        }
    }

    async fn job_page(&self, user: &SignedInUser, path: &str) -> UserPage {
        let id = path.strip_prefix("/console/jobs/").map(|id| percent_decode_str(id));
        let id = id.map(|id| id.decode_utf8_lossy().into_owned());
        if id.is_some() && !self.context.leadership.is_leader() {
            let live = draw_notice(&self.name_leader().await);
            return UserPage::new("Job", PageTab::Jobs, Some(live), None);
        }
        let job = match (id, self.context.preload.current_engine()) {
            (Some(id), Some(engine)) => engine.get(&id, None, std::time::Duration::ZERO).await.ok(),
            _ => None,
        };
        match job {
            Some(job) => {
                // A job that is over has none: so the form is of the part that changes.
                let stop = draw_stop_form(&job, user);
                let live = maud::html! {
                    (draw_job(&job, wall_clock_ms()))
                    @if let Some(stop) = stop { (stop) }
                };
                UserPage::new(&format!("Job {}", job.id), PageTab::Jobs, Some(live), None)
            }
            None => UserPage::not_here(PageTab::Jobs, "There is no such page or job here."),
        }
    }

    async fn object_page(&self, query: Option<&str>) -> UserPage {
        let form = ConsoleForm::parse_fields(query.unwrap_or_default().as_bytes());
        let form = form.unwrap_or_default();
        let path = form.field("path").unwrap_or_default();
        let first_block = form.field("first_block").and_then(|text| text.parse().ok()).unwrap_or(0);
        let page = |refusal: Option<&str>, found: Option<Markup>| {
            let asked = draw_object_form(path, refusal);
            let still = maud::html! { (asked) @if let Some(found) = found { (found) } };
            UserPage::new("Objects", PageTab::Object, None, Some(still))
        };
        if path.is_empty() {
            return page(None, None);
        }
        let Some(objects) = self.context.preload.object_admin() else {
            let why = "This coordinator knows no objects: it needs [[ufs]] and [[mount]].";
            return page(Some(why), None);
        };
        let Ok(_lookup) = self.console.lookups.try_acquire() else {
            return page(Some("Others look objects up. Try again in a moment."), None);
        };
        match objects.locate_object(path, first_block).await {
            Ok(view) => page(None, Some(draw_object(&view, &ObjectQuestion { path, first_block }))),
            Err(error) => page(Some(&super::shown_text::sentence(&error.to_string())), None),
        }
    }

    /// Asks the API in the user's name, which holds the role and writes the audit log.
    async fn ask_as_user(
        &self,
        user: &SignedInUser,
        method: Method,
        path: String,
        body: Vec<u8>,
    ) -> CoordinatorResponse {
        let asked = CoordinatorRequest {
            method,
            path,
            query: String::new(),
            body: body.into(),
            path_values: Vec::new(),
            caller: RequestCaller::ConsoleUser { name: user.name.clone(), role: user.role },
        };
        route_request(&self.context, asked).await.response
    }

    async fn change_as_user(
        &self,
        user: &SignedInUser,
        path: &str,
        form: &ConsoleForm,
    ) -> ConsoleResponse {
        let stopped = path.strip_prefix("/console/jobs/").and_then(|id| id.strip_suffix("/stop"));
        let answer = match (path, stopped) {
            ("/console/jobs", _) => {
                let spec = serde_json::to_vec(&job_spec(form)).unwrap_or_default();
                self.ask_as_user(user, Method::POST, "/v1/preload".to_owned(), spec).await
            }
            (_, Some(id)) => {
                let id = percent_decode_str(id).decode_utf8_lossy();
                let path = format!("/v1/preload/{}", escape_path_segment(&id));
                self.ask_as_user(user, Method::DELETE, path, Vec::new()).await
            }
            _ => {
                let text = "There is no such form here.";
                return ConsoleResponse::from_sentence(StatusCode::NOT_FOUND, text);
            }
        };
        if answer.status.is_success() {
            let job = serde_json::from_slice::<JobView>(&answer.body);
            let job = job.map_or_else(|_| "/console/jobs".to_owned(), |job| job_path(&job.id));
            return ConsoleResponse::see_other(job);
        }
        let refused = serde_json::from_slice::<CoordinatorRefusal>(&answer.body);
        let refusal = refused.map_or_else(|error| error.to_string(), |refused| refused.reason);
        let values = JobFormValues { sent: Some(form), refusal: Some(refusal.clone()) };
        let still = draw_job_form(user, values).or_else(|| Some(draw_notice(&refusal)));
        let page = UserPage::new("Jobs", PageTab::Jobs, None, still);
        self.frame_page(user, UserPage { status: answer.status, ..page })
    }
}

fn job_spec(form: &ConsoleForm) -> PreloadJobSpec {
    PreloadJobSpec {
        id: form.field("id").map(str::to_owned),
        paths: form.lines("paths"),
        prefixes: form.lines("prefixes"),
        tier: match form.field("tier") {
            Some("disk") => PreloadTier::Disk,
            _ => PreloadTier::Memory,
        },
        priority: match form.field("priority") {
            Some("high") => PreloadPriority::High,
            Some("low") => PreloadPriority::Low,
            _ => PreloadPriority::Normal,
        },
        verify: form.field("verify").is_some(),
        ..PreloadJobSpec::default()
    }
}
