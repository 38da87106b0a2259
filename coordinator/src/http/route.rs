//! One route: how it is asked, what answers it, and what the OpenAPI document says of it. Both the
//! router and the document are made from it.

use futures::future::BoxFuture;
use http::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use verbs3_certificates::NodeRole;
use verbs3_coordinator_client::api::{CoordinatorRefusal, PREFIX};

use super::api_context::ApiContext;
use super::request::{CoordinatorRequest, PathValue};
use super::response::HandlerResult;

/// Answers a request.
pub(super) type RouteHandler =
    for<'a> fn(&'a ApiContext, &'a CoordinatorRequest) -> BoxFuture<'a, HandlerResult>;

/// Describes the content of a body.
pub(super) type SchemaSource = Box<dyn Fn(&mut SchemaGenerator) -> Schema + Send + Sync>;

/// A question that the API answers.
pub(super) struct Route {
    /// Name in metrics.
    pub(super) name: &'static str,
    pub(super) method: Method,
    /// With [`PREFIX`]. `{name}` is one part of the path, `{*name}` all that follows.
    pub(super) path: &'static str,
    pub(super) handler: RouteHandler,
    /// The proof of such a request may be used again, although it is no `GET`.
    pub(super) is_repeatable: bool,
    /// Roles of certificates that may ask. Operators alone, unless the route says otherwise.
    pub(super) asked_by: &'static [NodeRole],
    /// Gateways ask on behalf of identities, which `owner` of the query names.
    pub(super) has_owners: bool,
    /// An answer to such a request is written to the audit log.
    pub(super) is_audited: bool,
    pub(super) summary: &'static str,
    pub(super) parameters: Vec<RouteParameter>,
    pub(super) body: Option<SchemaSource>,
    pub(super) answers: Vec<RouteAnswer>,
}

/// Value in a route's path or query.
pub(super) struct RouteParameter {
    pub(super) name: &'static str,
    /// `path` or `query`.
    pub(super) place: &'static str,
    pub(super) description: &'static str,
    pub(super) schema: SchemaSource,
}

/// One of a route's answers.
pub(super) struct RouteAnswer {
    pub(super) status: StatusCode,
    pub(super) description: &'static str,
    pub(super) content: Option<AnswerContent>,
}

/// Content of an answer that has one.
pub(super) struct AnswerContent {
    pub(super) media_type: &'static str,
    pub(super) schema: SchemaSource,
}

impl Route {
    pub(super) fn get(name: &'static str, path: &'static str, handler: RouteHandler) -> Self {
        Self::new(Method::GET, name, path, handler)
    }

    pub(super) fn post(name: &'static str, path: &'static str, handler: RouteHandler) -> Self {
        Self::new(Method::POST, name, path, handler)
    }

    pub(super) fn delete(name: &'static str, path: &'static str, handler: RouteHandler) -> Self {
        Self::new(Method::DELETE, name, path, handler)
    }

    fn new(method: Method, name: &'static str, path: &'static str, handler: RouteHandler) -> Self {
        let is_audited = method != Method::GET;
        Self {
            name,
            method,
            path,
            handler,
            is_repeatable: false,
            asked_by: &[NodeRole::Operator],
            has_owners: false,
            is_audited,
            summary: "",
            parameters: Vec::new(),
            body: None,
            answers: Vec::new(),
        }
    }

    /// Says what the route is for.
    pub(super) fn summary(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    /// Names the roles that may ask, in place of operators.
    pub(super) fn asked_by(mut self, roles: &'static [NodeRole]) -> Self {
        self.asked_by = roles;
        self
    }

    /// Lets gateways ask, too, for owners that they name.
    pub(super) fn of_owners(self) -> Self {
        Self { has_owners: true, ..self.asked_by(&[NodeRole::Operator, NodeRole::Gateway]) }
    }

    /// Keeps what workers and gateways do all the time out of the audit log.
    pub(super) fn unaudited(mut self) -> Self {
        self.is_audited = false;
        self
    }

    /// Lets the proof of a request be used again.
    pub(super) fn repeatable(mut self) -> Self {
        self.is_repeatable = true;
        self
    }

    /// Names a part of the path.
    pub(super) fn in_path(mut self, name: &'static str, description: &'static str) -> Self {
        let schema: SchemaSource =
            Box::new(|_| schemars::json_schema!({ "type": "string", "minLength": 1 }));
        self.parameters.push(RouteParameter { name, place: "path", description, schema });
        self
    }

    /// Names a value of the query.
    pub(super) fn in_query<T: JsonSchema>(
        self,
        name: &'static str,
        description: &'static str,
    ) -> Self {
        self.in_query_as(name, description, |generator| generator.subschema_for::<T>())
    }

    /// Names a value of the query that is narrower than its type.
    pub(super) fn in_query_as(
        mut self,
        name: &'static str,
        description: &'static str,
        schema: fn(&mut SchemaGenerator) -> Schema,
    ) -> Self {
        let schema = Box::new(schema);
        self.parameters.push(RouteParameter { name, place: "query", description, schema });
        self
    }

    /// Says what the body of a request is.
    pub(super) fn takes<T: JsonSchema>(self) -> Self {
        self.takes_as(|generator| generator.subschema_for::<T>())
    }

    /// Says what the body of a request is, where that is narrower than its type.
    pub(super) fn takes_as(mut self, schema: fn(&mut SchemaGenerator) -> Schema) -> Self {
        self.body = Some(Box::new(schema));
        self
    }

    /// Says that the body of a request is a message between processes of this release.
    pub(super) fn takes_message(self, type_name: &'static str) -> Self {
        Self { body: Some(message_schema(type_name)), ..self }
    }

    /// Says what comes back with a status.
    pub(super) fn answers<T: JsonSchema>(
        self,
        status: StatusCode,
        description: &'static str,
    ) -> Self {
        let schema = Box::new(|generator: &mut SchemaGenerator| generator.subschema_for::<T>());
        self.with_answer(status, description, Some(AnswerContent::json(schema)))
    }

    /// Says that a message between processes of this release comes back.
    pub(super) fn answers_message(
        self,
        description: &'static str,
        type_name: &'static str,
    ) -> Self {
        let content = AnswerContent::json(message_schema(type_name));
        self.with_answer(StatusCode::OK, description, Some(content))
    }

    /// Says that lines come back, each a JSON document.
    pub(super) fn answers_lines<T: JsonSchema>(self, description: &'static str) -> Self {
        let schema = Box::new(|generator: &mut SchemaGenerator| generator.subschema_for::<T>());
        let content = AnswerContent { media_type: "application/x-ndjson", schema };
        self.with_answer(StatusCode::OK, description, Some(content))
    }

    /// Says that 204 comes back.
    pub(super) fn answers_nothing(self, description: &'static str) -> Self {
        self.with_answer(StatusCode::NO_CONTENT, description, None)
    }

    /// Says what a refusal of this route means, besides those that any route gives.
    pub(super) fn refuses(self, status: StatusCode, description: &'static str) -> Self {
        self.answers::<CoordinatorRefusal>(status, description)
    }

    fn with_answer(
        mut self,
        status: StatusCode,
        description: &'static str,
        content: Option<AnswerContent>,
    ) -> Self {
        self.answers.push(RouteAnswer { status, description, content });
        self
    }

    /// Returns the named parts of `path` if it is one of this route's.
    pub(super) fn match_path(&self, path: &str) -> Option<Vec<PathValue>> {
        let decode = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
        let mut parts = path.strip_prefix(PREFIX)?.split('/').skip(1).map(decode);
        let mut values = Vec::new();
        for wanted in self.path.strip_prefix(PREFIX)?.split('/').skip(1) {
            let name = wanted.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
            match name.map(|name| name.strip_prefix('*').ok_or(name)) {
                None if parts.next()? == wanted => {}
                None => return None,
                Some(Err(name)) => values.push(PathValue { name, value: parts.next()? }),
                Some(Ok(name)) => {
                    let mut value = parts.next()?;
                    parts.by_ref().for_each(|part| value.extend(["/", part.as_str()]));
                    values.push(PathValue { name, value });
                }
            }
        }
        parts.next().is_none().then_some(values)
    }
}

impl AnswerContent {
    fn json(schema: SchemaSource) -> Self {
        Self { media_type: "application/json", schema }
    }
}

/// Describes a message between processes. It is no contract with anybody else, so the document does
/// not list its fields.
fn message_schema(type_name: &'static str) -> SchemaSource {
    let description = format!("Between processes of one release: `{type_name}`");
    Box::new(move |_| schemars::json_schema!({ "description": description }))
}
