//! GET and HEAD through the cache tier.
