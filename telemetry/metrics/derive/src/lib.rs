//! Derives `MetricsTable` and `MetricLabel`: a metric's name, labels and meaning from the one place
//! where it is declared.
//!
//! A metric's full name is seldom in the code. It is the table's prefix, `_`, the field's name, and
//! `_total` for a counter or `_seconds` for a histogram: search for the field's name.
//!
//! Owns the syntax of `#[metric(…)]`, `#[metrics(…)]` and `#[label(…)]`. What the generated code
//! calls is in `verbs3-metrics`.
#![forbid(unsafe_code)]

mod declared_metric;
mod label_values;

use declared_metric::{DeclaredMetric, read_documentation};
use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Fields, LitStr, parse_macro_input};

/// Implements `MetricsTable`, `Collector` and `Clone` for a struct whose fields are metrics.
///
/// The doc comment of a field is its help text. Its name is the prefix and the field's name, with
/// `_total` for a counter and `_seconds` for a histogram. `#[metric(…)]` says, by commas:
/// - `"verbs3_disk_write_queue"`: another name.
/// - `labels(operation, kind)`: names of labels, in the order of the family's type.
/// - `buckets = SECONDS`: the bounds of a histogram.
/// - `from_zero`: all series show from the start.
///
/// `#[metrics(prefix = "verbs3_disk", each = "folder")]` on the struct: there is one such table for each folder, made by
/// `new("/mnt/a")` or by a `TableFamily` in another table. Without `each`, `new(registry)` makes the
/// table and shows it, and `default()` makes it only.
#[proc_macro_derive(MetricsTable, attributes(metric, metrics))]
pub fn derive_metrics_table(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    implement_table(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Implements `MetricLabel` for an enum.
#[proc_macro_derive(MetricLabel, attributes(label))]
pub fn derive_metric_label(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    label_values::implement_label(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

fn implement_table(input: &DeriveInput) -> syn::Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(syn::Error::new_spanned(input, "a table of metrics is a struct"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(syn::Error::new_spanned(input, "each metric has a field with a name"));
    };
    let TableAttributes { prefix, label: table_label } = read_attributes(input)?;
    let metrics = fields.named.iter().map(|field| DeclaredMetric::read_field(&prefix, field));
    let metrics = metrics.collect::<syn::Result<Vec<_>>>()?;
    let name = &input.ident;
    let documentation = read_documentation(&input.attrs);
    let fields: Vec<_> = metrics.iter().map(|metric| &metric.field).collect();
    let kinds: Vec<_> = metrics.iter().map(|metric| &metric.kind).collect();
    let names = metrics.iter().map(|metric| &metric.name);
    let declarations: Vec<_> = metrics.iter().map(DeclaredMetric::write_declaration).collect();
    let constructors = write_constructors(input, table_label.as_ref());
    let outer = table_label.as_ref().map(|label| {
        quote!(for metric in &mut metrics {
            metric.labels.insert(0, ::verbs3_metrics::LabelDescription { name: #label, values: &[] });
        })
    });
    let table_label = match &table_label {
        Some(label) => quote!(::core::option::Option::Some(#label)),
        None => quote!(::core::option::Option::None),
    };
    Ok(quote! {
        #constructors

        #(const _: () = ::verbs3_metrics::check_metric_name(
            #names,
            <#kinds as ::verbs3_metrics::MetricField>::KIND,
        );)*

        impl ::verbs3_metrics::MetricsTable for #name {
            const TABLE_LABEL: ::core::option::Option<&'static str> = #table_label;

            fn create_table(outer: &[(&str, &str)]) -> Self {
                use ::verbs3_metrics::MetricField;
                Self { #(#fields: MetricField::create_field(&#declarations, outer)),* }
            }

            fn describe_table() -> ::verbs3_metrics::MetricsTableDescription {
                let mut metrics = ::std::vec::Vec::new();
                #(metrics.extend(
                    <#kinds as ::verbs3_metrics::MetricField>::describe_field(&#declarations),
                );)*
                #outer
                ::verbs3_metrics::MetricsTableDescription { documentation: #documentation, file: ::core::file!(), metrics }
            }
        }

        impl ::core::clone::Clone for #name {
            fn clone(&self) -> Self {
                Self { #(#fields: self.#fields.clone()),* }
            }
        }

        impl ::verbs3_metrics::prometheus::core::Collector for #name {
            fn desc(&self) -> ::std::vec::Vec<&::verbs3_metrics::prometheus::core::Desc> {
                let mut all = ::std::vec::Vec::new();
                #(all.extend(self.#fields.desc());)*
                all
            }

            fn collect(&self) -> ::std::vec::Vec<::verbs3_metrics::prometheus::proto::MetricFamily> {
                let mut all = ::std::vec::Vec::new();
                #(all.extend(self.#fields.collect());)*
                all
            }
        }
    })
}

/// What `#[metrics(prefix = "verbs3_disk", each = "folder")]` says.
struct TableAttributes {
    prefix: String,
    label: Option<LitStr>,
}

fn read_attributes(input: &DeriveInput) -> syn::Result<TableAttributes> {
    let mut found = TableAttributes { prefix: String::new(), label: None };
    for attribute in input.attrs.iter().filter(|a| a.path().is_ident("metrics")) {
        attribute.parse_nested_meta(|part| {
            let text: LitStr = part.value()?.parse()?;
            if part.path.is_ident("each") {
                found.label = Some(text);
            } else if part.path.is_ident("prefix") {
                found.prefix = text.value();
            } else {
                return Err(part.error("is neither prefix nor each"));
            }
            Ok(())
        })?;
    }
    Ok(found)
}

fn write_constructors(input: &DeriveInput, table_label: Option<&LitStr>) -> TokenStream {
    let name = &input.ident;
    if let Some(label) = table_label {
        return quote! {
            #[allow(dead_code, reason = "a family of tables makes them, too")]
            impl #name {
                /// Makes every metric at zero. `value`: the label that all of them have.
                pub fn new(value: &str) -> Self {
                    ::verbs3_metrics::MetricsTable::create_table(&[(#label, value)])
                }
            }
        };
    }
    quote! {
        impl ::core::default::Default for #name {
            fn default() -> Self {
                ::verbs3_metrics::MetricsTable::create_table(&[])
            }
        }

        #[allow(dead_code, reason = "tables of a whole process are registered several times")]
        impl #name {
            /// Makes every metric at zero, and shows them in `registry`. Fails if one of the names
            /// is taken there.
            pub fn new(
                registry: &::verbs3_metrics::prometheus::Registry,
            ) -> ::core::result::Result<Self, ::verbs3_metrics::prometheus::Error> {
                let table = Self::default();
                registry.register(::std::boxed::Box::new(table.clone()))?;
                ::core::result::Result::Ok(table)
            }
        }
    }
}
