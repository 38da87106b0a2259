//! Holds the columns of the table against each other. That it has every method of s3s's trait is a
//! lint's affair.
#![allow(clippy::unwrap_used)]

mod compatibility;

use super::*;

#[test]
fn names_are_s3s_own() {
    for row in TABLE {
        let spelled: String =
            row.method.split('_').map(|word| word[..1].to_uppercase() + &word[1..]).collect();
        assert_eq!(spelled, row.name, "{}", row.method);
    }
}

#[test]
fn what_changes_an_object_announces_it() {
    for row in TABLE.iter().filter(|row| row.scope == AccessScope::object) {
        let changes = matches!(
            row.right,
            AccessRight::write | AccessRight::delete | AccessRight::acl | AccessRight::lock
        );
        // Parts and uploads are no object yet.
        let unseen = [
            "upload_part",
            "upload_part_copy",
            "create_multipart_upload",
            "abort_multipart_upload",
            "list_parts",
        ];
        let announces = row.announces != HomeNoticeScope::nothing;
        assert_eq!(changes && !unseen.contains(&row.method), announces, "{}", row.method);
    }
    let batch = TABLE.iter().find(|row| row.method == "delete_objects").unwrap();
    assert_eq!(batch.announces, HomeNoticeScope::keys);
}

#[test]
fn administration_needs_admin_and_the_whole_bucket() {
    for row in TABLE {
        assert_eq!(
            row.right == AccessRight::admin && row.way != OperationRoute::refused,
            row.scope == AccessScope::settings,
            "{}",
            row.method
        );
    }
    for method in [
        "create_bucket",
        "delete_bucket",
        "put_bucket_policy",
        "get_bucket_acl",
        "put_object_lock_configuration",
    ] {
        let row = TABLE.iter().find(|row| row.method == method).unwrap();
        assert_eq!((row.right, row.scope), (AccessRight::admin, AccessScope::settings), "{method}");
    }
}

#[test]
fn who_may_write_may_neither_open_nor_lock() {
    let with = |right: AccessRight| {
        TABLE.iter().filter(move |row| row.right == right).map(|row| row.method)
    };
    assert_eq!(with(AccessRight::acl).collect::<Vec<_>>(), ["put_object_acl"]);
    assert_eq!(
        with(AccessRight::lock).collect::<Vec<_>>(),
        ["put_object_legal_hold", "put_object_retention"]
    );
}

#[test]
fn listings_need_list_on_their_prefix() {
    let listings: Vec<&str> = TABLE
        .iter()
        .filter(|row| row.scope == AccessScope::listing)
        .map(|row| row.method)
        .collect();
    assert_eq!(
        listings,
        ["list_multipart_uploads", "list_object_versions", "list_objects", "list_objects_v2"]
    );
    assert!(
        TABLE
            .iter()
            .all(|row| (row.scope == AccessScope::listing) == (row.right == AccessRight::list))
    );
}
