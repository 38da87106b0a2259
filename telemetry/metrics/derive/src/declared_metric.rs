//! A field of a table of metrics, as its struct declares it.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ExprLit, Field, Ident, Lit, LitStr, Meta, Token, Type, parenthesized};

/// A metric, before code is written for it.
pub(crate) struct DeclaredMetric {
    pub(crate) field: Ident,
    pub(crate) kind: Type,
    /// Empty for tables in a table.
    pub(crate) name: String,
    help: String,
    labels: Vec<String>,
    buckets: Option<Expr>,
    from_zero: bool,
}

impl DeclaredMetric {
    /// Reads a field and its `#[metric(…)]`.
    pub(crate) fn read_field(prefix: &str, field: &Field) -> syn::Result<Self> {
        let ident = field.ident.clone().expect("each field of a struct with braces has a name");
        let mut metric = Self {
            name: derive_name(prefix, &ident, &field.ty),
            field: ident,
            kind: field.ty.clone(),
            help: read_documentation(&field.attrs),
            labels: Vec::new(),
            buckets: None,
            from_zero: false,
        };
        for attribute in field.attrs.iter().filter(|a| a.path().is_ident("metric")) {
            attribute.parse_args_with(|input: ParseStream| metric.read_parts(input))?;
        }
        if metric.help.is_empty() && !metric.name.is_empty() {
            return Err(syn::Error::new(metric.field.span(), "says nowhere what it means"));
        }
        Ok(metric)
    }

    fn read_parts(&mut self, input: ParseStream) -> syn::Result<()> {
        while !input.is_empty() {
            if input.peek(LitStr) {
                self.name = input.parse::<LitStr>()?.value();
                input.parse::<Option<Token![,]>>()?;
                continue;
            }
            let part: Ident = input.parse()?;
            if part == "labels" {
                let names;
                parenthesized!(names in input);
                let names = Punctuated::<Ident, Token![,]>::parse_terminated(&names)?;
                self.labels = names.iter().map(ToString::to_string).collect();
            } else if part == "buckets" {
                input.parse::<Token![=]>()?;
                self.buckets = Some(input.parse()?);
            } else if part == "from_zero" {
                self.from_zero = true;
            } else {
                return Err(syn::Error::new(part.span(), "is not labels, buckets or from_zero"));
            }
            input.parse::<Option<Token![,]>>()?;
        }
        Ok(())
    }

    /// Writes the declaration as a value.
    pub(crate) fn write_declaration(&self) -> TokenStream {
        let Self { name, help, labels, from_zero, .. } = self;
        let buckets = match &self.buckets {
            Some(buckets) => quote!(&#buckets),
            None => quote!(&[]),
        };
        quote! {
            ::verbs3_metrics::MetricDeclaration {
                name: #name,
                help: #help,
                labels: &[#(#labels),*],
                buckets: #buckets,
                from_zero: #from_zero,
            }
        }
    }
}

/// The name that follows from prefix, field and type. Empty for a family of tables.
fn derive_name(prefix: &str, field: &Ident, kind: &Type) -> String {
    let kind = kind.to_token_stream().to_string();
    let end = match kind {
        _ if kind.contains("TableFamily") => return String::new(),
        _ if kind.contains("IntCounter") => "_total",
        _ if kind.contains("Histogram") => "_seconds",
        _ => "",
    };
    let name = format!("{prefix}_{field}");
    if name.ends_with(end) { name } else { name + end }
}

/// The doc comment as one line.
pub(crate) fn read_documentation(attributes: &[Attribute]) -> String {
    let mut words = Vec::new();
    for attribute in attributes {
        if let Meta::NameValue(pair) = &attribute.meta
            && pair.path.is_ident("doc")
            && let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &pair.value
        {
            words.push(text.value().trim().to_owned());
        }
    }
    words.join(" ").trim().to_owned()
}
