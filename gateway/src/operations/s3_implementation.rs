//! Implements s3s's trait from the operation table: each operation goes the way that its row says.
//! Clippy refuses a missing method of the trait (stage `lint`). The compiler refuses one that
//! stands in the table twice or is not in the trait.

use async_trait::async_trait;
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result};

use super::operation_core::OperationCore;
use super::operation_input::TableOperation;
use super::rewrite::{self, NamedDestination};
use super::{
    copy_object, delete_objects, get_object, list_buckets, list_objects, multipart_ends, put_object,
};
use crate::mount::MountNamePair;
use crate::operation_table::every_operation;

/// The gateway's implementation of s3s's trait.
#[derive(Clone)]
pub(crate) struct S3Implementation(pub(crate) std::sync::Arc<OperationCore>);

macro_rules! bucket_of {
    (service, $input:ident) => {
        None
    };
    ($scope:ident, $input:ident) => {
        Some(&mut $input.bucket)
    };
}

macro_rules! key_of {
    (object, $input:ident) => {
        Some(&mut $input.key)
    };
    ($scope:ident, $input:ident) => {
        None
    };
}

macro_rules! take_way {
    (bypass, $method:ident, $core:expr, $request:expr) => {
        $core.pass_to_ufs($request).await
    };
    (cached, $method:ident, $core:expr, $request:expr) => {
        get_object::$method($core, $request).await
    };
    (verified, $method:ident, $core:expr, $request:expr) => {
        put_object::$method($core, $request).await
    };
    (listed, $method:ident, $core:expr, $request:expr) => {
        list_objects::pass_listing($core, $request).await
    };
    (copied, $method:ident, $core:expr, $request:expr) => {
        copy_object::$method($core, $request).await
    };
    (batch, $method:ident, $core:expr, $request:expr) => {
        delete_objects::$method($core, $request).await
    };
    (ended, $method:ident, $core:expr, $request:expr) => {
        multipart_ends::$method($core, $request).await
    };
    (mounts, $method:ident, $core:expr, $request:expr) => {
        list_buckets::$method($core, $request).await
    };
    (refused, $method:ident, $core:expr, $request:expr) => {
        Err($core.refuse_operation($request))
    };
}

macro_rules! implement_trait {
    ($($name:ident $method:ident($input:ident) -> $output:ident:
        $right:ident $scope:ident $announces:ident $way:ident $names:ident;)*) => {
        /// Indexes of the table.
        #[allow(clippy::enum_variant_names)]
        enum OperationIndex { $($name),* }

        $(#[async_trait]
        impl TableOperation for $input {
            const INDEX: usize = OperationIndex::$name as usize;
            type Output = $output;

            fn bucket_field(&mut self) -> Option<&mut String> {
                let _input = self;
                bucket_of!($scope, _input)
            }

            fn key_field(&mut self) -> Option<&mut String> {
                let _input = self;
                key_of!($scope, _input)
            }

            fn listing_prefix(&self) -> &str {
                rewrite::$names::listing_prefix(self)
            }

            fn find_destinations(&mut self) -> Vec<NamedDestination<'_>> {
                rewrite::$names::find_destinations(self)
            }

            fn rewrite_inward(&mut self, names: &MountNamePair<'_>) {
                rewrite::$names::rewrite_inward(self, names);
            }

            fn rewrite_outward(output: &mut $output, names: &MountNamePair<'_>) {
                rewrite::$names::rewrite_outward(output, names);
            }

            async fn send_request(
                store: &dyn S3,
                request: S3Request<Self>,
            ) -> S3Result<S3Response<$output>> {
                store.$method(request).await
            }
        })*

        // The trait answers NotImplemented for each method left out; only a client would notice.
        #[deny(clippy::missing_trait_methods)]
        #[async_trait]
        impl S3 for S3Implementation {
            $(async fn $method(&self, request: S3Request<$input>) -> S3Result<S3Response<$output>> {
                take_way!($way, $method, &self.0, request)
            })*
        }
    };
}

every_operation!(implement_trait);
