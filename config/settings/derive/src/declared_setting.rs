//! A field of a table of settings, as its struct declares it.

use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Attribute, Expr, ExprLit, Field, GenericArgument, Ident, Lit, Meta, PathArguments, RangeLimits,
    Token, Type,
};

/// What a field holds.
pub(crate) enum SettingShape {
    /// One value.
    Plain,
    /// A table of this type.
    Table(Type),
    /// A list of tables of this type.
    List(Type),
}

/// A setting, before code is written for it.
pub(crate) struct DeclaredSetting {
    pub(crate) name: Ident,
    pub(crate) documentation: String,
    pub(crate) shape: SettingShape,
    pub(crate) default: Option<Expr>,
    pub(crate) range: Option<(Expr, Expr)>,
    pub(crate) required: bool,
    pub(crate) example: Option<Expr>,
    pub(crate) is_option: bool,
}

impl DeclaredSetting {
    /// Reads a field and its `#[setting(…)]`.
    pub(crate) fn read_field(field: &Field) -> syn::Result<Self> {
        let name = field.ident.clone().expect("each field of a struct with braces has a name");
        let documentation = read_documentation(&field.attrs);
        if documentation.is_empty() {
            return Err(syn::Error::new(name.span(), "says nowhere what it means"));
        }
        let mut setting = Self {
            name,
            documentation,
            shape: SettingShape::Plain,
            default: None,
            range: None,
            required: false,
            example: None,
            is_option: inner_type(&field.ty, "Option").is_some(),
        };
        for attribute in field.attrs.iter().filter(|a| a.path().is_ident("setting")) {
            let parts =
                attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)?;
            for part in &parts {
                setting.read_part(part, &field.ty)?;
            }
        }
        let is_list = inner_type(&field.ty, "Vec").is_some();
        let has_empty = setting.is_option || is_list || setting.required;
        if matches!(setting.shape, SettingShape::Plain) && setting.default.is_none() && !has_empty {
            return Err(syn::Error::new(setting.name.span(), "has no default"));
        }
        Ok(setting)
    }

    fn read_part(&mut self, part: &Meta, kind: &Type) -> syn::Result<()> {
        match part {
            Meta::Path(path) if path.is_ident("required") => self.required = true,
            Meta::Path(path) if path.is_ident("table") => {
                self.shape = SettingShape::Table(kind.clone());
            }
            Meta::Path(path) if path.is_ident("list") => {
                let entry = inner_type(kind, "Vec")
                    .ok_or_else(|| syn::Error::new(kind.span(), "a list of tables is a Vec"))?;
                self.shape = SettingShape::List(entry.clone());
            }
            Meta::NameValue(pair) if pair.path.is_ident("default") => {
                self.default = Some(pair.value.clone());
            }
            Meta::NameValue(pair) if pair.path.is_ident("example") => {
                self.example = Some(pair.value.clone());
            }
            Meta::NameValue(pair) if pair.path.is_ident("range") => {
                self.range = Some(read_range(&pair.value)?);
            }
            other => {
                return Err(syn::Error::new_spanned(
                    other,
                    "is none of default, range, required, example, table and list",
                ));
            }
        }
        Ok(())
    }
}

fn read_range(value: &Expr) -> syn::Result<(Expr, Expr)> {
    if let Expr::Range(range) = value
        && let (Some(low), RangeLimits::Closed(_), Some(high)) =
            (&range.start, &range.limits, &range.end)
    {
        return Ok((low.as_ref().clone(), high.as_ref().clone()));
    }
    Err(syn::Error::new_spanned(value, "a range has both ends: low..=high"))
}

/// `T` of `wrapper<T>`.
fn inner_type<'a>(kind: &'a Type, wrapper: &str) -> Option<&'a Type> {
    let Type::Path(path) = kind else { return None };
    let last = path.path.segments.last().filter(|segment| segment.ident == wrapper)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first()? {
        GenericArgument::Type(inner) => Some(inner),
        _ => None,
    }
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
