//! Owns access control lists. They grant everything to the one owner and cannot be changed.

use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result};

use super::{
    check_canned_acl, check_key, check_version, not_implemented, refuse_unkept_promises,
    store_owner,
};
use crate::store::{LocalStore, find_bucket, find_record};

fn owner_grants() -> Grants {
    let Owner { display_name, id } = store_owner();
    let grantee = Grantee {
        display_name,
        email_address: None,
        id,
        type_: Type::from_static(Type::CANONICAL_USER),
        uri: None,
    };
    vec![Grant {
        grantee: Some(grantee),
        permission: Some(Permission::from_static(Permission::FULL_CONTROL)),
    }]
}

/// Answers that the owner has full control.
pub async fn get_bucket_acl(
    store: &LocalStore,
    req: S3Request<GetBucketAclInput>,
) -> S3Result<S3Response<GetBucketAclOutput>> {
    let name = req.input.bucket;
    store.run_blocking(move |s| find_bucket(&s.open_view()?, &name)).await?;
    Ok(S3Response::new(GetBucketAclOutput {
        grants: Some(owner_grants()),
        owner: Some(store_owner()),
    }))
}

/// Answers that the owner has full control. Fails where there is no such object.
pub async fn get_object_acl(
    store: &LocalStore,
    req: S3Request<GetObjectAclInput>,
) -> S3Result<S3Response<GetObjectAclOutput>> {
    let input = req.input;
    check_key(&input.key)?;
    check_version(input.version_id.as_deref())?;
    store.run_blocking(move |s| find_record(&s.open_view()?, &input.bucket, &input.key)).await?;
    let output = GetObjectAclOutput {
        grants: Some(owner_grants()),
        owner: Some(store_owner()),
        request_charged: None,
    };
    Ok(S3Response::new(output))
}

/// Accepts only what changes nothing: the canned ACL `private`.
pub async fn put_bucket_acl(
    store: &LocalStore,
    req: S3Request<PutBucketAclInput>,
) -> S3Result<S3Response<PutBucketAclOutput>> {
    let input = req.input;
    let name = input.bucket;
    store.run_blocking(move |s| find_bucket(&s.open_view()?, &name)).await?;
    refuse_unkept_promises!(
        input;
        access_control_policy, grant_full_control, grant_read, grant_read_acp, grant_write,
        grant_write_acp,
    );
    match input.acl.as_ref().map(BucketCannedACL::as_str) {
        None => return Err(not_implemented("a PutBucketAcl without a canned ACL")),
        canned => check_canned_acl(canned)?,
    }
    Ok(S3Response::new(PutBucketAclOutput::default()))
}

/// Accepts only what changes nothing: the canned ACL `private`. Fails where there is no such
/// object.
pub async fn put_object_acl(
    store: &LocalStore,
    req: S3Request<PutObjectAclInput>,
) -> S3Result<S3Response<PutObjectAclOutput>> {
    let input = req.input;
    check_key(&input.key)?;
    check_version(input.version_id.as_deref())?;
    let (bucket, key) = (input.bucket, input.key);
    store.run_blocking(move |s| find_record(&s.open_view()?, &bucket, &key)).await?;
    refuse_unkept_promises!(
        input;
        access_control_policy, grant_full_control, grant_read, grant_read_acp, grant_write,
        grant_write_acp,
    );
    match input.acl.as_ref().map(ObjectCannedACL::as_str) {
        None => return Err(not_implemented("a PutObjectAcl without a canned ACL")),
        canned => check_canned_acl(canned)?,
    }
    Ok(S3Response::new(PutObjectAclOutput::default()))
}
