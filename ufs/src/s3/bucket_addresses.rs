//! Owns where a bucket's objects are: the URL that their keys follow, and how requests there are
//! signed. The SDK's own rules decide.

use std::collections::HashMap;
use std::sync::Arc;

use aws_sdk_s3::config::endpoint::{DefaultResolver, Endpoint, Params, ResolveEndpoint};
use aws_smithy_types::Document;
use futures::FutureExt;
use http::Uri;
use parking_lot::RwLock;

use crate::settings::UfsSettings;

/// Bound on the addresses that are kept. Names of buckets come from clients where a mount takes
/// them all; beyond the bound, the rules are asked again.
const ADDRESSES_MAX: usize = 1024;

/// Returns an endpoint as the SDK's rules need it. They would glue a bucket to a path that does not
/// end in a slash.
pub(super) fn endpoint_base(endpoint: &str) -> String {
    let path = endpoint.parse::<Uri>().map_or(1, |uri| uri.path().len());
    let lacks_slash = path > 1 && !endpoint.ends_with('/');
    format!("{endpoint}{}", if lacks_slash { "/" } else { "" })
}

/// Where one bucket's objects are.
#[derive(Debug)]
pub(super) struct BucketAddress {
    /// Without a slash at its end.
    pub(super) url: String,
    /// Headers that the address asks for.
    pub(super) headers: Vec<(String, String)>,
    pub(super) signing_name: String,
    pub(super) signing_region: String,
}

/// Finds and keeps addresses of buckets.
pub(super) struct BucketAddresses {
    resolver: DefaultResolver,
    region: String,
    endpoint: Option<String>,
    path_style: bool,
    /// `None` for a bucket that only the SDK can reach.
    found: RwLock<HashMap<String, Option<Arc<BucketAddress>>>>,
}

impl BucketAddresses {
    pub(super) fn new(settings: &UfsSettings) -> Self {
        Self {
            resolver: DefaultResolver::new(),
            region: settings.region.clone(),
            endpoint: settings.endpoint.as_deref().map(endpoint_base),
            path_style: settings.path_style,
            found: RwLock::default(),
        }
    }

    /// Returns a bucket's address. Returns `None` if its name fits none, or if requests there need
    /// another signature than SigV4.
    pub(super) fn of_bucket(&self, bucket: &str) -> Option<Arc<BucketAddress>> {
        if let Some(found) = self.found.read().get(bucket) {
            return found.clone();
        }
        let address = self.find_address(bucket).map(Arc::new);
        let mut found = self.found.write();
        if found.len() >= ADDRESSES_MAX {
            found.clear();
        }
        found.insert(bucket.to_owned(), address.clone());
        address
    }

    fn find_address(&self, bucket: &str) -> Option<BucketAddress> {
        // The rules have an address for no bucket: that of the list of buckets.
        if bucket.is_empty() {
            return None;
        }
        let rules = Params::builder()
            .bucket(bucket)
            .region(&*self.region)
            .set_endpoint(self.endpoint.clone())
            .force_path_style(self.path_style)
            .disable_s3_express_session_auth(true)
            .build()
            .ok()?;
        let endpoint = self.resolver.resolve_endpoint(&rules).now_or_never()?.ok()?;
        let url = endpoint.url().trim_end_matches('/').to_owned();
        let (signing_name, signing_region) = self.signing_scope(&endpoint)?;
        let headers = endpoint
            .headers()
            .flat_map(|(name, values)| values.map(move |value| (name.to_owned(), value.to_owned())))
            .collect();
        Some(BucketAddress { url, headers, signing_name, signing_region })
    }

    /// Returns the service and the region that a signature names.
    fn signing_scope(&self, endpoint: &Endpoint) -> Option<(String, String)> {
        let schemes = endpoint.auth_schemes();
        if schemes.is_empty() {
            return Some(("s3".to_owned(), self.region.clone()));
        }
        let scheme = schemes.iter().find(|scheme| scheme.name() == "sigv4")?;
        let text = |name: &str, unnamed: &str| {
            let named = scheme.get(name).and_then(Document::as_string);
            named.unwrap_or(unnamed).to_owned()
        };
        Some((text("signingName", "s3"), text("signingRegion", &self.region)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn address(endpoint: Option<&str>, path_style: bool, bucket: &str) -> Option<BucketAddress> {
        let settings = UfsSettings {
            endpoint: endpoint.map(str::to_owned),
            region: "eu-west-1".into(),
            path_style,
            ..UfsSettings::default()
        };
        BucketAddresses::new(&settings).find_address(bucket)
    }

    #[test]
    fn a_bucket_is_part_of_the_path_or_of_the_host() {
        for (endpoint, path_style, url) in [
            (Some("http://store:9000"), true, "http://store:9000/bkt"),
            (Some("http://store:9000/"), true, "http://store:9000/bkt"),
            (Some("http://store:9000/s3"), true, "http://store:9000/s3/bkt"),
            (Some("http://store:9000"), false, "http://bkt.store:9000"),
            (Some("http://10.1.2.3:9000"), false, "http://10.1.2.3:9000/bkt"),
            (None, false, "https://bkt.s3.eu-west-1.amazonaws.com"),
            (None, true, "https://s3.eu-west-1.amazonaws.com/bkt"),
        ] {
            let found = address(endpoint, path_style, "bkt").unwrap();
            assert_eq!(found.url, url, "{endpoint:?}");
            assert_eq!((&*found.signing_name, &*found.signing_region), ("s3", "eu-west-1"));
        }
    }

    #[test]
    fn what_only_the_sdk_can_sign_has_no_address() {
        let regions = "arn:aws:s3::123456789012:accesspoint:mfzwi23gnjvgw.mrap";
        assert!(address(None, false, regions).is_none());
        let point = "arn:aws:s3:eu-west-1:123456789012:accesspoint:mine";
        let found = address(None, false, point).unwrap();
        assert_eq!(found.url, "https://mine-123456789012.s3-accesspoint.eu-west-1.amazonaws.com");
        assert!(address(Some("http://store:9000"), true, "").is_none());
    }

    #[test]
    fn names_of_buckets_do_not_pile_up() {
        let settings = UfsSettings {
            endpoint: Some("http://store:9000".into()),
            region: "us-east-1".into(),
            ..UfsSettings::default()
        };
        let addresses = BucketAddresses::new(&settings);
        for number in 0..3 * ADDRESSES_MAX {
            assert!(addresses.of_bucket(&format!("bucket-{number}")).is_some());
            assert!(addresses.found.read().len() <= ADDRESSES_MAX);
        }
    }
}
