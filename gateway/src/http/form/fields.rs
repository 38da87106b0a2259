//! Parses the multipart/form-data document of a form upload in memory: its fields, and the file
//! after them. Owns the syntax (RFC 7578, RFC 2046 section 5.1). Knows no S3 field. The fields can
//! be read before the file is there.
//!
//! s3s's own parser is not used: it takes a boundary cut by a packet for a wrong one, fails on
//! files whose packets end in a carriage return, and drops the file's name.

use bytes::Bytes;
use memchr::memmem;

/// Most header bytes of one part; a longer head is refused.
const PART_HEAD_BYTES_MAX: usize = 8 * 1024;

/// A form that ends in a file.
#[derive(Debug)]
pub(super) struct MultipartForm {
    /// Names in lower case, in the form's order, none twice.
    pub fields: Vec<(String, String)>,
    pub file: Bytes,
    /// The client's name of the file, without folders.
    pub file_name: String,
}

/// Reason why a document is no form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FormError {
    #[error("the body of your POST request is not well-formed multipart/form-data: {0}")]
    Malformed(&'static str),
    #[error(
        "your POST request fields preceding the upload file were too large: at most {max} bytes"
    )]
    FieldsTooLarge { max: usize },
    #[error("POST requires exactly one file upload per request")]
    NoFile,
    #[error("the field {name:?} stands in the form twice")]
    Twice { name: String },
}

impl MultipartForm {
    /// Returns the value of a field by its lower-case name; `None` if the form has no such field.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Replaces `${filename}` in the fields. S3 does so before it looks at the policy.
    pub fn name_file(&mut self) {
        for (_, value) in &mut self.fields {
            if value.contains("${filename}") {
                *value = value.replace("${filename}", &self.file_name);
            }
        }
    }
}

/// A form up to the first byte of its file.
#[derive(Debug)]
pub(super) struct FormHead {
    /// The form without its file.
    pub form: MultipartForm,
    /// Offset of the file in the document.
    file_at: usize,
}

/// Returns the bytes within which a head must end.
pub(super) fn head_bytes_max(fields_bytes_max: usize) -> usize {
    fields_bytes_max + 2 * PART_HEAD_BYTES_MAX
}

/// Parses a whole form. Ignores what follows the file, as S3 does.
pub(super) fn parse_form(
    document: &Bytes,
    boundary: &str,
    fields_bytes_max: usize,
) -> Result<MultipartForm, FormError> {
    let head = parse_head(document, boundary, fields_bytes_max)?.map_err(FormError::Malformed)?;
    complete_form(head, document, boundary)
}

/// Adds the file to a head. `document` is the whole document that begins with the head.
pub(super) fn complete_form(
    head: FormHead,
    document: &Bytes,
    boundary: &str,
) -> Result<MultipartForm, FormError> {
    let FormHead { mut form, file_at } = head;
    // In an empty part, the delimiter's line break may be the one that ends the headers.
    let length = memmem::find(&document[file_at - 2..], format!("\r\n--{boundary}").as_bytes());
    let end = file_at - 2 + length.ok_or(FormError::Malformed("it ends within a part"))?;
    form.file = document.slice(file_at..end.max(file_at));
    Ok(form)
}

/// Parses up to the file, of which no byte need be there. The inner error means that the document
/// ends too early, and the rest may still come.
pub(super) fn parse_head(
    document: &[u8],
    boundary: &str,
    fields_bytes_max: usize,
) -> Result<Result<FormHead, &'static str>, FormError> {
    let first = format!("--{boundary}");
    let delimiter = format!("\r\n--{boundary}");
    let finder = memmem::Finder::new(delimiter.as_bytes());
    // A preamble may come before the first boundary.
    let mut at = match document.starts_with(first.as_bytes()) {
        true => first.len(),
        false => match finder.find(document) {
            Some(at) => at + delimiter.len(),
            None => return Ok(Err("there is no boundary")),
        },
    };
    let mut fields: Vec<(String, String)> = Vec::new();
    loop {
        let rest = &document[at..];
        if rest.starts_with(b"--") {
            return Err(FormError::NoFile);
        }
        // Blanks may follow a boundary.
        let Some(line) = memmem::find(rest, b"\r\n") else {
            return Ok(Err("it ends within a boundary"));
        };
        if !rest[..line].iter().all(|byte| matches!(byte, b' ' | b'\t')) {
            return Err(FormError::Malformed("there is something else behind a boundary"));
        }
        // A part without headers begins with the empty line itself.
        let head = &rest[line..rest.len().min(line + PART_HEAD_BYTES_MAX)];
        let Some(length) = memmem::find(head, b"\r\n\r\n") else {
            let unended = "a part's headers do not end";
            return if head.len() < PART_HEAD_BYTES_MAX {
                Ok(Err(unended))
            } else {
                Err(FormError::Malformed(unended))
            };
        };
        let part = parse_part_head(&head[..length])?;
        let content = at + line + length + 4;
        if part.name == "file" {
            let name = part.file_name.unwrap_or_default();
            let file_name = name.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
            return Ok(Ok(FormHead {
                form: MultipartForm { fields, file: Bytes::new(), file_name },
                file_at: content,
            }));
        }
        let Some(length) = finder.find(&document[content - 2..]) else {
            return Ok(Err("it ends within a part"));
        };
        let value = content..(content - 2 + length).max(content);
        if value.end > fields_bytes_max {
            return Err(FormError::FieldsTooLarge { max: fields_bytes_max });
        }
        if fields.iter().any(|(name, _)| *name == part.name) {
            // The policy could be checked against one of them, and the other be used.
            return Err(FormError::Twice { name: part.name });
        }
        at = content - 2 + length + delimiter.len();
        let value = std::str::from_utf8(&document[value])
            .map_err(|_| FormError::Malformed("a field is not UTF-8"))?;
        fields.push((part.name, value.to_owned()));
    }
}

struct FormPartHead {
    name: String,
    file_name: Option<String>,
}

/// Parses the headers of a part. Only Content-Disposition is used.
fn parse_part_head(head: &[u8]) -> Result<FormPartHead, FormError> {
    let head = std::str::from_utf8(head)
        .map_err(|_| FormError::Malformed("a part's headers are not UTF-8"))?;
    for line in head.split("\r\n") {
        let Some((name, value)) = line.split_once(':') else { continue };
        if !name.trim().eq_ignore_ascii_case("content-disposition") {
            continue;
        }
        let (kind, mut rest) = value.split_once(';').unwrap_or((value, ""));
        if !kind.trim().eq_ignore_ascii_case("form-data") {
            break;
        }
        let mut part = FormPartHead { name: String::new(), file_name: None };
        while let Some((name, value, left)) = parse_parameter(rest) {
            match name.to_ascii_lowercase().as_str() {
                "name" => part.name = value.to_ascii_lowercase(),
                "filename" => part.file_name = Some(value),
                _ => {}
            }
            rest = left;
        }
        if part.name.is_empty() {
            break;
        }
        return Ok(part);
    }
    Err(FormError::Malformed("a part has no Content-Disposition with a name"))
}

/// Returns the next `name=value` or `name="value"`, and the rest. Browsers write a quote in a name
/// as `%22` (WHATWG) or `\"`. Other backslashes stand for themselves, because file names of Windows
/// have them.
fn parse_parameter(text: &str) -> Option<(&str, String, &str)> {
    let text = text.trim_start_matches([';', ' ', '\t']);
    let (name, rest) = text.split_once('=')?;
    let Some(quoted) = rest.strip_prefix('"') else {
        let (value, left) = rest.split_once(';').unwrap_or((rest, ""));
        return Some((name.trim(), value.trim().to_owned(), left));
    };
    let mut from = 0;
    loop {
        let end = from + quoted[from..].find('"')?;
        if !quoted[..end].ends_with('\\') {
            let value = quoted[..end].replace("\\\"", "\"").replace("%22", "\"");
            return Some((name.trim(), value, &quoted[end + 1..]));
        }
        from = end + 1;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> Result<MultipartForm, FormError> {
        parse_form(&Bytes::copy_from_slice(text.as_bytes()), "X", 300)
    }

    const FILE: &str = "--X\r\nContent-Disposition: form-data; name=\"file\"; filename=\"C:\\a\\ü \
        \\\"b\\\".txt\"\r\n\r\n";

    #[test]
    fn fields_and_file_are_taken_apart_byte_by_byte() {
        let form = read(&format!(
            "--X \r\ncontent-disposition:form-data;name=Key\r\nx: y\r\n\r\n \
            a\r\n--\r\n--X\r\nContent-Disposition: form-data; \
            name=\"e\"\r\n\r\n\r\n{FILE}\r\n--Y\r\r\n--X--\r\nignored"
        ))
        .unwrap();
        assert_eq!(
            form.fields,
            [("key".to_owned(), " a\r\n--".to_owned()), ("e".to_owned(), String::new())]
        );
        assert_eq!(&form.file[..], b"\r\n--Y\r");
        assert_eq!(form.file_name, "ü \"b\".txt");
        let empty = read(&format!("preamble\r\n{FILE}\r\n--X--")).unwrap();
        assert!(empty.file.is_empty() && empty.fields.is_empty());
    }

    #[test]
    fn what_is_no_form_is_refused_and_never_read_past() {
        let field = |name: &str, value: &str| {
            format!("--X\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        let whole = format!("{}{FILE}body\r\n--X--\r\n", field("a", "b"));
        let bytes = Bytes::from(whole);
        for cut in 0..bytes.len() - "--\r\n".len() {
            assert!(parse_form(&bytes.slice(..cut), "X", 300).is_err(), "cut after {cut} bytes");
        }
        // Cut before the file, more may come; from there on nothing more is needed to know who
        // sends it.
        let head = field("a", "b").len() + FILE.len();
        for cut in 0..bytes.len() {
            let read = parse_head(&bytes[..cut], "X", 300).unwrap();
            assert_eq!(read.is_ok(), cut >= head, "cut after {cut} bytes");
        }
        assert_eq!(read(&format!("{}--X--", field("a", "b"))).unwrap_err(), FormError::NoFile);
        let twice = format!("{}{}{FILE}\r\n--X--", field("a", "b"), field("A", "c"));
        assert_eq!(read(&twice).unwrap_err(), FormError::Twice { name: "a".to_owned() });
        let long = format!("{}{FILE}\r\n--X--", field("a", &"b".repeat(300)));
        assert_eq!(read(&long).unwrap_err(), FormError::FieldsTooLarge { max: 300 });
        for bad in [
            "--Xy\r\n\r\n",
            "--X\r\nno: name\r\n\r\nv\r\n--X--",
            "--X\r\nContent-Disposition: form-data; name=\"a\r\n\r\n",
        ] {
            assert!(matches!(read(bad), Err(FormError::Malformed(_))), "{bad:?}");
        }
    }

    #[test]
    fn the_files_name_goes_where_it_is_asked_for() {
        let mut form = read(&format!(
            "--X\r\nContent-Disposition: form-data; \
            name=key\r\n\r\nin/${{filename}}\r\n{FILE}\r\n--X--"
        ))
        .unwrap();
        form.name_file();
        assert_eq!(form.get("key"), Some("in/ü \"b\".txt"));
    }
}
