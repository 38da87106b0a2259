//! Derives `SettingsTable`: a setting's default, range, example and meaning from the one place
//! where it is declared.
//!
//! Owns the syntax of `#[setting(…)]`. What the generated code calls is in `verbs3-settings`.
#![forbid(unsafe_code)]

mod declared_setting;

use declared_setting::{DeclaredSetting, SettingShape, read_documentation};
use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Expr, Fields, Ident, parse_macro_input};

/// Implements `SettingsTable` and `Default` for a struct whose fields are settings.
///
/// Each field says in `#[setting(…)]`, by commas, what holds for it:
/// - `default = "10s"`: its default, written as in a file. A field of type `Option` or `Vec` has
///   none, every other field must have one.
/// - `range = "1s"..="1h"`: the values that are taken.
/// - `required`: the user has to write it; until then it is empty.
/// - `example = "/etc/verbs3/tls.key"`: what example files show where there is no default.
/// - `table`: the field is a table of settings. `list`: it is a list of such tables.
#[proc_macro_derive(SettingsTable, attributes(setting))]
pub fn derive_settings_table(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    implement_table(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

fn implement_table(input: &DeriveInput) -> syn::Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(syn::Error::new_spanned(input, "a table of settings is a struct"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(syn::Error::new_spanned(input, "each setting has a name"));
    };
    let settings =
        fields.named.iter().map(DeclaredSetting::read_field).collect::<syn::Result<Vec<_>>>()?;
    let name = &input.ident;
    let documentation = read_documentation(&input.attrs);
    let defaults = settings.iter().map(write_default);
    let checks = settings.iter().map(write_check);
    let descriptions = settings.iter().map(write_description);
    Ok(quote! {
        impl ::core::default::Default for #name {
            fn default() -> Self {
                Self { #(#defaults),* }
            }
        }

        impl ::verbs3_settings::SettingsTable for #name {
            fn check_ranges(&self, path: &str, findings: &mut ::verbs3_settings::CheckFindings) {
                #(#checks)*
            }

            fn describe_table() -> ::verbs3_settings::TableDescription {
                let defaults = Self::default();
                ::verbs3_settings::TableDescription {
                    documentation: #documentation,
                    default_tree: || ::verbs3_settings::write_tree(&<Self as ::core::default::Default>::default()),
                    settings: ::std::vec![#(#descriptions),*],
                }
            }
        }
    })
}

fn write_default(setting: &DeclaredSetting) -> TokenStream {
    let name = &setting.name;
    let value = match &setting.default {
        Some(Expr::Array(list)) => {
            let entries = list.elems.iter().map(write_literal);
            quote!(::std::vec![#(#entries),*])
        }
        Some(value) => write_literal(value),
        None => quote!(::core::default::Default::default()),
    };
    quote!(#name: #value)
}

/// A text stands for the value that a file means by it; anything else for itself.
fn write_literal(value: &Expr) -> TokenStream {
    match value {
        Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => {
            quote!(::verbs3_settings::read_literal(#text))
        }
        other => quote!(#other),
    }
}

fn write_check(setting: &DeclaredSetting) -> TokenStream {
    let name = &setting.name;
    let text = name.to_string();
    match (&setting.shape, &setting.range) {
        (SettingShape::Table(_), _) => quote! {
            self.#name.check_ranges(&::verbs3_settings::join_path(path, #text), findings);
        },
        (SettingShape::List(_), _) => quote! {
            for (index, entry) in self.#name.iter().enumerate() {
                let path = ::verbs3_settings::join_path(path, #text);
                entry.check_ranges(&::std::format!("{path}[{index}]"), findings);
            }
        },
        (SettingShape::Plain, None) => TokenStream::new(),
        (SettingShape::Plain, Some((low, high))) => {
            let (low, high) = (write_literal(low), write_literal(high));
            let value = format_ident!("value");
            let values = borrow_values(name, setting.is_option);
            quote! {
                for #value in #values {
                    let path = ::verbs3_settings::join_path(path, #text);
                    findings.check_range(path, *#value, #low, #high);
                }
            }
        }
    }
}

/// The value to check: none where nothing is set.
fn borrow_values(name: &Ident, is_option: bool) -> TokenStream {
    if is_option { quote!(&self.#name) } else { quote!([&self.#name]) }
}

fn write_description(setting: &DeclaredSetting) -> TokenStream {
    let DeclaredSetting { name, documentation, shape, range, required, example, .. } = setting;
    let text = name.to_string();
    let content = match shape {
        SettingShape::Table(kind) => quote! {
            ::verbs3_settings::SettingContent::Table(
                <#kind as ::verbs3_settings::SettingsTable>::describe_table(),
            )
        },
        SettingShape::List(kind) => quote! {
            ::verbs3_settings::SettingContent::List(
                <#kind as ::verbs3_settings::SettingsTable>::describe_table(),
            )
        },
        SettingShape::Plain => {
            let range = match range {
                Some((low, high)) => quote! {
                    ::core::option::Option::Some((
                        ::verbs3_settings::write_literal(&#low),
                        ::verbs3_settings::write_literal(&#high),
                    ))
                },
                None => quote!(::core::option::Option::None),
            };
            let example = match example {
                Some(example) => quote! {
                    ::core::option::Option::Some(::verbs3_settings::write_literal(&#example))
                },
                None => quote!(::core::option::Option::None),
            };
            quote! {
                ::verbs3_settings::SettingContent::Plain(::verbs3_settings::PlainSetting {
                    default: ::verbs3_settings::write_default(&defaults.#name, #required),
                    range: #range,
                    required: #required,
                    example: #example,
                })
            }
        }
    };
    quote! {
        ::verbs3_settings::SettingDescription {
            name: #text,
            documentation: #documentation,
            content: #content,
        }
    }
}
