//! Writes the values of a label, one for each variant of an enum.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Fields, LitStr, Variant};

use crate::declared_metric::read_documentation;

pub(crate) fn implement_label(input: &DeriveInput) -> syn::Result<TokenStream> {
    let Data::Enum(data) = &input.data else {
        return Err(syn::Error::new_spanned(input, "a label's values are an enum"));
    };
    let name = &input.ident;
    let mut values = Vec::new();
    let mut arms = Vec::new();
    for (index, variant) in data.variants.iter().enumerate() {
        if !matches!(variant.fields, Fields::Unit) {
            return Err(syn::Error::new_spanned(variant, "a value of a label holds nothing"));
        }
        let text = read_text(variant)?;
        let documentation = read_documentation(&variant.attrs);
        values.push(quote! {
            ::verbs3_metrics::LabelValue { text: #text, documentation: #documentation }
        });
        let ident = &variant.ident;
        arms.push(quote!(Self::#ident => #index));
    }
    Ok(quote! {
        impl ::verbs3_metrics::MetricLabel for #name {
            const VALUES: &'static [::verbs3_metrics::LabelValue] = &[#(#values),*];

            fn value_index(self) -> usize {
                match self { #(#arms),* }
            }
        }
    })
}

/// Returns the value's text: of `#[label("3xx")]`, or the variant in lower case with underscores.
fn read_text(variant: &Variant) -> syn::Result<String> {
    let mut attributes = variant.attrs.iter();
    if let Some(attribute) = attributes.find(|attribute| attribute.path().is_ident("label")) {
        return Ok(attribute.parse_args::<LitStr>()?.value());
    }
    let mut text = String::new();
    for letter in variant.ident.to_string().chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    Ok(text)
}
