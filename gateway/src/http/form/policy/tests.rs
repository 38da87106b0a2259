#![allow(clippy::unwrap_used)]
use bytes::Bytes;

use super::*;

fn form(conditions: &str, fields: &[(&str, &str)], bytes: usize) -> MultipartForm {
    let policy =
        format!("{{\"expiration\": \"2030-01-01T00:00:00Z\", \"conditions\": [{conditions}]}}");
    let mut fields: Vec<(String, String)> =
        fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    fields.push(("policy".to_owned(), BASE64.encode(policy)));
    MultipartForm { fields, file: Bytes::from(vec![0; bytes]), file_name: String::new() }
}

fn at(text: &str) -> OffsetDateTime {
    OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339).unwrap()
}

/// The code of the refusal, or nothing.
fn verdict(form: &MultipartForm) -> String {
    let error = check_form(form, "b", at("2029-12-31T23:59:59Z")).err();
    error.map_or_else(String::new, |error| error.code().as_str().to_owned())
}

#[test]
fn each_condition_allows_what_it_says_and_no_more() {
    let key = [("key", "user/a.txt")];
    for (conditions, wanted) in [
        (r#"{"bucket": "b"}, {"key": "user/a.txt"}"#, ""),
        (r#"["eq", "$bucket", "b"], ["starts-with", "$key", "user/"]"#, ""),
        (r#"["starts-with", "$Key", ""]"#, ""),
        (r#"{"key": "user/b.txt"}"#, "AccessDenied"),
        (r#"["starts-with", "$key", "other/"]"#, "AccessDenied"),
        (r#"{"bucket": "c"}, {"key": "user/a.txt"}"#, "AccessDenied"),
        // A field that the policy asks for and the form has not.
        (r#"{"key": "user/a.txt"}, {"acl": "private"}"#, "AccessDenied"),
        // A field that the policy does not speak of.
        (r#"{"bucket": "b"}"#, "AccessDenied"),
        (r#"{"key": "user/a.txt"}, ["content-length-range", 10, 10]"#, ""),
        (r#"{"key": "user/a.txt"}, ["content-length-range", 11, 20]"#, "EntityTooSmall"),
        (r#"{"key": "user/a.txt"}, ["content-length-range", 0, 9]"#, "EntityTooLarge"),
        (r#"["no-such", "$key", ""]"#, "InvalidPolicyDocument"),
        (r#"{"key"}"#, "InvalidPolicyDocument"),
    ] {
        assert_eq!(verdict(&form(conditions, &key, 10)), wanted, "{conditions}");
    }
}

#[test]
fn a_bucket_field_can_not_stand_in_for_the_bucket_that_is_asked() {
    let conditions = r#"{"bucket": "c"}, ["starts-with", "$key", ""]"#;
    assert_eq!(verdict(&form(conditions, &[("key", "k"), ("bucket", "c")], 1)), "AccessDenied");
    let conditions = r#"{"bucket": "b"}, ["starts-with", "$key", ""]"#;
    assert_eq!(verdict(&form(conditions, &[("key", "k"), ("bucket", "b")], 1)), "");
}

#[test]
fn only_ignored_and_signing_fields_go_unspoken_of() {
    let conditions = r#"["starts-with", "$key", ""]"#;
    for (field, wanted) in [
        ("x-ignore-me", ""),
        ("x-amz-signature", ""),
        ("submit", "AccessDenied"),
        ("x-amz-meta-a", "AccessDenied"),
        ("x-amz-server-side-encryption", "AccessDenied"),
        ("acl", "AccessDenied"),
        ("x-amz-acl", "AccessDenied"),
        ("x-amz-object-lock-mode", "AccessDenied"),
        ("tagging", "AccessDenied"),
    ] {
        assert_eq!(verdict(&form(conditions, &[("key", "k"), (field, "v")], 1)), wanted, "{field}");
    }
}

#[test]
fn a_list_of_types_begins_so_in_each_part() {
    let conditions = r#"["starts-with", "$key", ""], ["starts-with", "$Content-Type", "image/"]"#;
    assert_eq!(
        verdict(&form(conditions, &[("key", "k"), ("content-type", "image/png, image/gif")], 1)),
        ""
    );
    assert_eq!(
        verdict(&form(conditions, &[("key", "k"), ("content-type", "image/png,text/html")], 1)),
        "AccessDenied"
    );
}

#[test]
fn a_policy_ends_when_it_says() {
    let form = form(r#"["starts-with", "$key", ""]"#, &[("key", "k")], 1);
    assert!(check_form(&form, "b", at("2029-12-31T23:59:59Z")).is_ok());
    let error = check_form(&form, "b", at("2030-01-01T00:00:00Z")).unwrap_err();
    assert_eq!(error.message(), Some("Invalid according to Policy: Policy expired."));
}

#[test]
fn a_policy_with_a_malformed_date_is_refused() {
    for (expiration, wanted) in [
        ("2030-01-01T00:00:00Z", ""),
        ("2030-01-01T00:00:00.000Z", ""),
        ("2030-01-01T00:00:00+00:00", ""),
        ("2030-01-01 00:00:00Z", "InvalidPolicyDocument"),
        ("2030-01-01 00:00:00.123456+00:00", "InvalidPolicyDocument"),
        ("2030-01-01t00:00:00Z", "InvalidPolicyDocument"),
        ("2030-01-01T00:00:00z", "InvalidPolicyDocument"),
        ("2030-01-01_00:00:00Z", "InvalidPolicyDocument"),
        ("2030-01-01T00:00:00", "InvalidPolicyDocument"),
        ("2030-13-01T00:00:00Z", "InvalidPolicyDocument"),
        ("2030-01-01", "InvalidPolicyDocument"),
        ("", "InvalidPolicyDocument"),
    ] {
        let policy = format!(
            "{{\"expiration\": \"{expiration}\", \"conditions\": [[\"starts-with\", \"$key\", \
            \"\"]]}}"
        );
        let fields =
            vec![("key".to_owned(), "k".to_owned()), ("policy".to_owned(), BASE64.encode(policy))];
        let form = MultipartForm { fields, file: Bytes::new(), file_name: String::new() };
        assert_eq!(verdict(&form), wanted, "{expiration:?}");
    }
}

#[test]
fn the_signature_of_the_reference_is_ours() {
    // "Examples: Browser-Based Upload using HTTP POST (Using AWS Signature Version 4)", S3
    // reference.
    let policy = "eyAiZXhwaXJhdGlvbiI6ICIyMDE1LTEyLTMwVDEyOjAwOjAwLjAwMFoiLA0KICAiY29uZGl0aW9ucyI6IFsNCiAgICB7ImJ1Y2tldCI6ICJzaWd2NGV4YW1wbGVidWNrZXQifSwNCiAgICBbInN0YXJ0cy13aXRoIiwgIiRrZXkiLCAidXNlci91c2VyMS8iXSwNCiAgICB7ImFjbCI6ICJwdWJsaWMtcmVhZCJ9LA0KICAgIHsic3VjY2Vzc19hY3Rpb25fcmVkaXJlY3QiOiAiaHR0cDovL3NpZ3Y0ZXhhbXBsZWJ1Y2tldC5zMy5hbWF6b25hd3MuY29tL3N1Y2Nlc3NmdWxfdXBsb2FkLmh0bWwifSwNCiAgICBbInN0YXJ0cy13aXRoIiwgIiRDb250ZW50LVR5cGUiLCAiaW1hZ2UvIl0sDQogICAgeyJ4LWFtei1tZXRhLXV1aWQiOiAiMTQzNjUxMjM2NTEyNzQifSwNCiAgICB7IngtYW16LXNlcnZlci1zaWRlLWVuY3J5cHRpb24iOiAiQUVTMjU2In0sDQogICAgWyJzdGFydHMtd2l0aCIsICIkeC1hbXotbWV0YS10YWciLCAiIl0sDQoNCiAgICB7IngtYW16LWNyZWRlbnRpYWwiOiAiQUtJQUlPU0ZPRE5ON0VYQU1QTEUvMjAxNTEyMjkvdXMtZWFzdC0xL3MzL2F3czRfcmVxdWVzdCJ9LA0KICAgIHsieC1hbXotYWxnb3JpdGhtIjogIkFXUzQtSE1BQy1TSEEyNTYifSwNCiAgICB7IngtYW16LWRhdGUiOiAiMjAxNTEyMjlUMDAwMDAwWiIgfQ0KICBdDQp9";
    let right =
        sign_policy_v4("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "20151229", "us-east-1", policy);
    assert_eq!(right, "8afdbf4008c03f22c2cd3cdb72e4afbb1f6a588f3255ac628749a66d7f09699e");
}

#[test]
fn a_form_is_signed_by_a_known_key_and_whole() {
    let identities = IdentityStore::with_single("AK", "secret");
    let mut signed = form(
        r#"["starts-with", "$key", ""]"#,
        &[
            ("x-amz-algorithm", "AWS4-HMAC-SHA256"),
            ("x-amz-credential", "AK/20291231/eu-1/s3/aws4_request"),
            ("x-amz-date", "20291231T000000Z"),
        ],
        1,
    );
    let policy = signed.get("policy").unwrap().to_owned();
    signed.fields.push((
        "x-amz-signature".to_owned(),
        sign_policy_v4("secret", "20291231", "eu-1", &policy),
    ));
    assert!(find_signer(&signed, &identities, false).is_ok());
    let changed = |name: &str, value: &str| {
        let mut fields = signed.fields.clone();
        fields.iter_mut().find(|(found, _)| found == name).unwrap().1 = value.to_owned();
        let form = MultipartForm { fields, file: Bytes::new(), file_name: String::new() };
        find_signer(&form, &identities, false).unwrap_err().code().as_str().to_owned()
    };
    for (name, value, code) in [
        ("x-amz-signature", "00", "SignatureDoesNotMatch"),
        ("policy", "e30=", "SignatureDoesNotMatch"),
        ("x-amz-credential", "AK/20291231/eu-2/s3/aws4_request", "SignatureDoesNotMatch"),
        ("x-amz-credential", "OTHER/20291231/eu-1/s3/aws4_request", "InvalidAccessKeyId"),
        ("x-amz-credential", "AK/20291231/eu-1/sts/aws4_request", "InvalidArgument"),
        ("x-amz-credential", "AK/20291230/eu-1/s3/aws4_request", "InvalidArgument"),
        ("x-amz-algorithm", "none", "InvalidArgument"),
        ("x-amz-date", "20291231", "InvalidArgument"),
        ("x-amz-date", "20291231T000000", "InvalidArgument"),
        ("x-amz-date", "20291231 000000Z", "InvalidArgument"),
        ("x-amz-date", "20291231T256199Z", "InvalidArgument"),
    ] {
        assert_eq!(changed(name, value), code, "{name}={value}");
    }
    let unsigned = form(r#"["starts-with", "$key", ""]"#, &[("key", "k")], 1);
    assert_eq!(
        find_signer(&unsigned, &identities, false).unwrap_err().code().as_str(),
        "AccessDenied"
    );
    // "Authenticating Requests in Browser-Based Uploads Using POST (AWS Signature Version 2)":
    // HMAC-SHA1 of the policy.
    let policy = unsigned.get("policy").unwrap().to_owned();
    let mut v2 = unsigned;
    v2.fields.push(("awsaccesskeyid".to_owned(), "AK".to_owned()));
    v2.fields.push((
        "signature".to_owned(),
        BASE64.encode(compute_hmac::<Hmac<Sha1>>(b"secret", &policy)),
    ));
    assert_eq!(find_signer(&v2, &identities, false).unwrap_err().code().as_str(), "InvalidRequest");
    assert!(find_signer(&v2, &identities, true).is_ok());
}
