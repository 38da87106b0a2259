//! Makes an S3 operation's identifiers from its name, so that a table of operations names each one
//! once. Knows nothing of what an operation does.
#![forbid(unsafe_code)]

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::{Ident, Token, parse_macro_input};

/// A row: the operation's S3 name, and its columns.
struct NamedRow {
    name: Ident,
    columns: Vec<Ident>,
}

/// A macro's name, and the rows to hand it.
struct NamedTable {
    callback: Ident,
    rows: Vec<NamedRow>,
}

impl Parse for NamedRow {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let name = input.parse()?;
        let mut columns = Vec::new();
        while !input.peek(Token![;]) {
            columns.push(input.parse()?);
        }
        input.parse::<Token![;]>()?;
        Ok(Self { name, columns })
    }
}

impl Parse for NamedTable {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let callback = input.parse()?;
        input.parse::<Token![;]>()?;
        let mut rows = Vec::new();
        while !input.is_empty() {
            rows.push(input.parse()?);
        }
        Ok(Self { callback, rows })
    }
}

impl ToTokens for NamedRow {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let name = &self.name;
        let method = Ident::new(&snake_case(&name.to_string()), name.span());
        let (input, output) = (format_ident!("{name}Input"), format_ident!("{name}Output"));
        let columns = self.columns.iter().map(|column| match *column == "own" {
            true => &method,
            false => column,
        });
        tokens.extend(quote!(#name #method(#input) -> #output: #(#columns)*;));
    }
}

/// Hands each row `GetObject read own;` of `callback; rows…` to the macro `callback`, as
/// `GetObject get_object(GetObjectInput) -> GetObjectOutput: read get_object;`. A column `own`
/// becomes the operation's method.
#[proc_macro]
pub fn name_operations(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let NamedTable { callback, rows } = parse_macro_input!(input as NamedTable);
    quote!(#callback! { #(#rows)* }).into()
}

/// `ListObjectsV2` → `list_objects_v2`.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}
