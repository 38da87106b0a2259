//! Reads the identities file. The TOML is read by hand, so that every problem is reported at once,
//! with its place. Owns the format:
//!
//! ```toml
//! [[identity]]
//! name = "trainer"            # for the log; default: the access key
//! tenant = "vision"           # who is accounted for it; default: a tenant of the identity's name
//! access_key = "AKTRAINER"    # printable ASCII without slash, comma and space
//! secret_key = "…"            # or: secret_file = "trainer.secret": first line of a file beside
//! [[identity.allow]]
//! mount = "datasets"          # a bucket name that clients see; "*" for all
//! prefix = "imagenet/"        # a folder; "imagenet-*": all keys that begin so; default: all keys
//! rights = ["read", "list"]   # see the table
//!
//! [[tenant]]                  # only for tenants with a weight of their own
//! name = "vision"
//! weight = 3                  # its part of what is scarce, relative to the others; default: 1
//! ```
//!
//! | right | opens |
//! |---|---|
//! | `read` | objects, their attributes, tags, ACLs and locks |
//! | `write` | objects, parts, tags, copies, restores; no access to others and no locks |
//! | `list` | listings of keys, versions and uploads under the prefix |
//! | `delete` | objects and versions |
//! | `acl` | PutObjectAcl; with `write`, `x-amz-grant-*` and non-private `x-amz-acl` [^acl] |
//! | `lock` | PutObjectRetention, PutObjectLegalHold; with `write`, `x-amz-object-lock-*` |
//! | `warm` | preload jobs of this endpoint (`/v1/preload`) that load keys under the prefix |
//! | `admin` | bucket settings, governance bypass, `acl` and `lock`; only without a prefix |
//!
//! [^acl]: `private` and `bucket-owner-full-control` need no `acl` right.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use s3s::auth::SecretKey;
use toml::de::DeTable;
use toml::{Table as Toml, Value};
use verbs3_settings::read_bounded_text;
use zeroize::Zeroizing;

use super::identities::{AuthIdentity, IdentityFileProblem, IdentityRule, IdentityTable};
use super::signing_key::SigningKeySlot;
use super::tenant::{TENANTS_MAX, Tenant, WEIGHT_MAX, check_tenant_name};
use crate::operation_table::AccessRight;

/// Largest file; a larger one is taken for a mistake.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

const RIGHTS: [(&str, AccessRight); 8] = [
    ("read", AccessRight::read),
    ("write", AccessRight::write),
    ("list", AccessRight::list),
    ("delete", AccessRight::delete),
    ("acl", AccessRight::acl),
    ("lock", AccessRight::lock),
    ("warm", AccessRight::warm),
    ("admin", AccessRight::admin),
];

/// Reads a whole file, or returns all of its problems.
pub(super) fn read(path: &Path) -> Result<IdentityTable, Vec<IdentityFileProblem>> {
    let text = text_of(path).map_err(|what| {
        let place = path.display().to_string();
        vec![IdentityFileProblem { place, line: None, what }]
    })?;
    parse_identities(&text, path.parent().unwrap_or(Path::new(".")))
}

/// Returns the secret files of an identities file. They are watched, too.
pub(super) fn secret_files(path: &Path) -> Vec<PathBuf> {
    let Ok(text) = text_of(path) else { return Vec::new() };
    let Ok(toml) = text.parse::<Toml>() else { return Vec::new() };
    let folder = path.parent().unwrap_or(Path::new("."));
    let identities = toml.get("identity").and_then(Value::as_array).into_iter().flatten();
    identities
        .filter_map(|identity| Some(folder.join(identity.get("secret_file")?.as_str()?)))
        .collect()
}

fn text_of(path: &Path) -> Result<Zeroizing<String>, String> {
    read_bounded_text(path, FILE_BYTES_MAX)
        .map(Zeroizing::new)
        .map_err(|error| format!("can't be read: {error}"))
}

pub(super) fn parse_identities(
    text: &str,
    folder: &Path,
) -> Result<IdentityTable, Vec<IdentityFileProblem>> {
    // The error's display would quote the line, which may hold a secret. Only place and message are
    // kept.
    let toml: Toml = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        vec![IdentityFileProblem {
            place: format!("line {line}"),
            line: None,
            what: error.message().to_owned(),
        }]
    })?;
    let mut reader = IdentityFileReader { folder, problems: Vec::new() };
    let table = reader.read_identities(&toml);
    let mut problems = reader.problems;
    if problems.is_empty() {
        return Ok(table);
    }
    if let Ok(document) = DeTable::parse(text) {
        for problem in &mut problems {
            let offset = find_offset(document.get_ref(), &problem.place);
            problem.line = offset.map(|offset| line_of(text, offset));
        }
    }
    Err(problems)
}

/// Returns where a path such as `identity[1].allow[0].mount` begins in the text; of one that is
/// missing, where the last begins that is there.
fn find_offset(document: &DeTable<'_>, place: &str) -> Option<usize> {
    let mut steps = place.split(['.', '[']).map(|step| step.trim_end_matches(']'));
    let first = steps.next()?;
    let (_, mut found) = document.iter().find(|(name, _)| name.get_ref() == first)?;
    for step in steps {
        let next = match step.parse::<usize>() {
            Ok(number) => found.get_ref().get(number),
            Err(_) => found.get_ref().get(step),
        };
        let Some(next) = next else { break };
        found = next;
    }
    Some(found.span().start)
}

fn line_of(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}

struct IdentityFileReader<'a> {
    folder: &'a Path,
    problems: Vec<IdentityFileProblem>,
}

impl IdentityFileReader<'_> {
    fn add_problem(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.problems.push(IdentityFileProblem {
            place: place.into(),
            line: None,
            what: what.into(),
        });
    }

    fn check_known_names(&mut self, place: &str, table: &Toml, known: &[&str]) {
        for name in table.keys().filter(|name| !known.contains(&name.as_str())) {
            let dot = if place.is_empty() { "" } else { "." };
            self.add_problem(
                format!("{place}{dot}{name}"),
                format!("is not known; known are {}", known.join(", ")),
            );
        }
    }

    fn read_tables<'t>(
        &mut self,
        place: &str,
        parent: &'t Toml,
        name: &str,
    ) -> Vec<(String, &'t Toml)> {
        let Some(value) = parent.get(name) else { return Vec::new() };
        let dot = if place.is_empty() { "" } else { "." };
        let Some(items) = value.as_array() else {
            self.add_problem(
                format!("{place}{dot}{name}"),
                format!("is not a list; write [[…{name}]]"),
            );
            return Vec::new();
        };
        let mut tables = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let place = format!("{place}{dot}{name}[{index}]");
            match item.as_table() {
                Some(table) => tables.push((place, table)),
                None => self.add_problem(place, "is not a table"),
            }
        }
        tables
    }

    fn read_text<'t>(&mut self, place: &str, table: &'t Toml, name: &str) -> Option<&'t str> {
        let value = table.get(name)?;
        let text = value.as_str();
        if text.is_none() {
            self.add_problem(
                format!("{place}.{name}"),
                format!("is {}, not a string", value.type_str()),
            );
        }
        text
    }

    fn read_identities(&mut self, toml: &Toml) -> IdentityTable {
        self.check_known_names("", toml, &["identity", "tenant"]);
        let weights = self.read_weights(toml);
        let mut tenants: HashMap<String, Arc<Tenant>> = HashMap::new();
        let mut table = IdentityTable::new();
        for (place, item) in self.read_tables("", toml, "identity") {
            let Some(mut identity) = self.read_identity(&place, item) else { continue };
            let name = self.read_tenant_name(&place, item, &identity.name);
            if tenants.len() == TENANTS_MAX && !tenants.contains_key(&name) {
                let what = format!("makes more than {TENANTS_MAX} tenants; have some share one");
                self.add_problem(format!("{place}.tenant"), what);
                continue;
            }
            let weight = weights.get(&name).map_or(1, |(_, weight)| *weight);
            let tenant = tenants.entry(name);
            let make = |name: &String| Arc::new(Tenant::unnumbered(name, weight));
            identity.tenant = tenant.or_insert_with_key(make).clone();
            if let Some(other) = table.insert(identity.access_key.clone(), Arc::new(identity)) {
                self.add_problem(
                    format!("{place}.access_key"),
                    format!("{} is used twice", other.access_key),
                );
            }
        }
        for (name, (place, _)) in weights {
            if !tenants.contains_key(&name) {
                self.add_problem(place, format!("is about {name}, a tenant without identities"));
            }
        }
        table
    }

    /// Reads the weights of tenants, with the place of each.
    fn read_weights(&mut self, toml: &Toml) -> BTreeMap<String, (String, u32)> {
        let mut weights = BTreeMap::new();
        for (place, item) in self.read_tables("", toml, "tenant") {
            self.check_known_names(&place, item, &["name", "weight"]);
            let weight = match item.get("weight").map(Value::as_integer) {
                None => Some(1),
                Some(number) => number
                    .and_then(|number| u32::try_from(number).ok())
                    .filter(|weight| (1..=WEIGHT_MAX).contains(weight)),
            };
            if weight.is_none() {
                let what = format!("is no number from 1 to {WEIGHT_MAX}");
                self.add_problem(format!("{place}.weight"), what);
            }
            let Some(name) = self.read_text(&place, item, "name") else {
                self.add_problem(format!("{place}.name"), "is missing");
                continue;
            };
            let named = (place.clone(), weight.unwrap_or(1));
            if weights.insert(name.to_owned(), named).is_some() {
                self.add_problem(format!("{place}.name"), format!("{name} is used twice"));
            }
        }
        weights
    }

    /// Reads whose an identity is. Without a word about it, it is its own tenant.
    fn read_tenant_name(&mut self, place: &str, item: &Toml, identity: &str) -> String {
        let Some(name) = self.read_text(place, item, "tenant") else { return identity.to_owned() };
        if let Err(what) = check_tenant_name(name) {
            self.add_problem(format!("{place}.tenant"), what);
        }
        name.to_owned()
    }

    fn read_identity(&mut self, place: &str, item: &Toml) -> Option<AuthIdentity> {
        self.check_known_names(
            place,
            item,
            &["name", "tenant", "access_key", "secret_key", "secret_file", "allow"],
        );
        let access_key = self.read_text(place, item, "access_key").filter(|key| !key.is_empty());
        if access_key.is_none() && item.get("access_key").is_none_or(Value::is_str) {
            self.add_problem(format!("{place}.access_key"), "is missing or empty");
        }
        if access_key.is_some_and(|key| !fits_credential(key)) {
            // Not the text itself: it may be a secret in the wrong place.
            let what = "holds a slash, a comma, white space, or what is no printable ASCII; no \
                 signature can name such a key. Use letters, digits, hyphens, underscores and dots";
            self.add_problem(format!("{place}.access_key"), what);
        }
        let secret = self.read_secret(place, item);
        let name =
            self.read_text(place, item, "name").or(access_key).unwrap_or_default().to_owned();
        let allow = self.read_tables(place, item, "allow");
        let rules = allow.iter().filter_map(|(place, rule)| self.read_rule(place, rule)).collect();
        let (access_key, tenant) = (access_key?.to_owned(), Tenant::unknown().clone());
        let signing = SigningKeySlot::default();
        Some(AuthIdentity { name, access_key, secret: secret?, rules, signing, tenant })
    }

    fn read_secret(&mut self, place: &str, item: &Toml) -> Option<SecretKey> {
        match (item.get("secret_key"), item.get("secret_file")) {
            (Some(_), None) => {
                let secret = self.read_text(place, item, "secret_key")?;
                if secret.is_empty() {
                    self.add_problem(format!("{place}.secret_key"), "is empty");
                    return None;
                }
                Some(secret.into())
            }
            (None, Some(_)) => {
                let path = self.folder.join(self.read_text(place, item, "secret_file")?);
                let line = text_of(&path)
                    .map(|text| SecretKey::from(text.lines().next().unwrap_or_default().trim()));
                let what = match line {
                    Ok(secret) if !secret.expose().is_empty() => return Some(secret),
                    Ok(_) => "has an empty first line".to_owned(),
                    Err(what) => what,
                };
                self.add_problem(
                    format!("{place}.secret_file"),
                    format!("{} {what}", path.display()),
                );
                None
            }
            (None, None) | (Some(_), Some(_)) => {
                self.add_problem(place, "needs either secret_key or secret_file");
                None
            }
        }
    }

    fn read_rule(&mut self, place: &str, item: &Toml) -> Option<IdentityRule> {
        self.check_known_names(place, item, &["mount", "prefix", "rights"]);
        let mount = self.read_text(place, item, "mount").map(str::to_owned);
        if mount.is_none() && item.get("mount").is_none() {
            self.add_problem(
                format!("{place}.mount"),
                "is missing; name a mount, or \"*\" for all",
            );
        }
        if let Some(name) = mount.as_deref().filter(|name| !can_name_mounts(name)) {
            let what = format!(
                "is {name:?}, which is no bucket name: 3 to 63 lower-case letters, digits, dots and \
                 hyphens; \"*\" stands for all mounts"
            );
            self.add_problem(format!("{place}.mount"), what);
        }
        let prefix = self.read_prefix(place, item);
        let names = RIGHTS.map(|(name, _)| name).join(", ");
        let Some(list) = item.get("rights").and_then(Value::as_array) else {
            self.add_problem(
                format!("{place}.rights"),
                format!("is missing or not a list of {names}"),
            );
            return None;
        };
        let mut rights = Vec::new();
        for (index, right) in list.iter().enumerate() {
            match RIGHTS.iter().find(|(name, _)| right.as_str() == Some(*name)) {
                Some((_, right)) => rights.push(*right),
                None => self
                    .add_problem(format!("{place}.rights[{index}]"), format!("is none of {names}")),
            }
        }
        Some(IdentityRule { mount: mount?, prefix, rights })
    }

    /// Reads the prefix of a rule. A prefix `train` without an end would also open `training/`,
    /// unnoticed. So it has to end in a slash, or in a star to mean that.
    fn read_prefix(&mut self, place: &str, item: &Toml) -> String {
        let text = self.read_text(place, item, "prefix").unwrap_or_default();
        if !text.is_empty() && !text.ends_with(['/', '*']) {
            let what = format!(
                "is {text:?}, which does not end in a slash: write \"{text}/\" for what lies in that folder, or \"{text}*\" for \
                 all keys that begin so"
            );
            self.add_problem(format!("{place}.prefix"), what);
        }
        text.strip_suffix('*').unwrap_or(text).to_owned()
    }
}

/// Returns whether a rule about `name` can be about a mount at all.
fn can_name_mounts(name: &str) -> bool {
    name == "*" || s3s::path::check_bucket_name(name)
}

/// Returns whether the credential of a signature (`KEY/DAY/REGION/s3/aws4_request`, which ends at
/// a comma in a header) can be read with this key.
fn fits_credential(access_key: &str) -> bool {
    access_key.bytes().all(|byte| byte.is_ascii_graphic() && !b"/,".contains(&byte))
}

#[cfg(test)]
mod tests;
