//! Holds the columns of the table against each other. That it has every method of s3s's trait is a
//! lint's affair.
#![allow(clippy::unwrap_used)]

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
    for row in TABLE.iter().filter(|row| row.scope == Scope::object) {
        let changes = matches!(row.right, Right::write | Right::delete | Right::acl | Right::lock);
        // Parts and uploads are no object yet.
        let unseen = [
            "upload_part",
            "upload_part_copy",
            "create_multipart_upload",
            "abort_multipart_upload",
            "list_parts",
        ];
        let announces = row.announces != Announces::nothing;
        assert_eq!(changes && !unseen.contains(&row.method), announces, "{}", row.method);
    }
    let batch = TABLE.iter().find(|row| row.method == "delete_objects").unwrap();
    assert_eq!(batch.announces, Announces::keys);
}

#[test]
fn administration_needs_admin_and_the_whole_bucket() {
    for row in TABLE {
        assert_eq!(
            row.right == Right::admin && row.way != Way::refused,
            row.scope == Scope::settings,
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
        assert_eq!((row.right, row.scope), (Right::admin, Scope::settings), "{method}");
    }
}

#[test]
fn who_may_write_may_neither_open_nor_lock() {
    let with =
        |right: Right| TABLE.iter().filter(move |row| row.right == right).map(|row| row.method);
    assert_eq!(with(Right::acl).collect::<Vec<_>>(), ["put_object_acl"]);
    assert_eq!(
        with(Right::lock).collect::<Vec<_>>(),
        ["put_object_legal_hold", "put_object_retention"]
    );
}

#[test]
fn listings_need_list_on_their_prefix() {
    let listings: Vec<&str> =
        TABLE.iter().filter(|row| row.scope == Scope::listing).map(|row| row.method).collect();
    assert_eq!(
        listings,
        ["list_multipart_uploads", "list_object_versions", "list_objects", "list_objects_v2"]
    );
    assert!(TABLE.iter().all(|row| (row.scope == Scope::listing) == (row.right == Right::list)));
}
