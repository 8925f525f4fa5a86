//! The page: a handful of files in the program, nothing from anywhere else.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use crate::failure::{ApiError, ErrorBody};

/// A file of the page.
struct Asset {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

macro_rules! asset {
    ($name:literal, $kind:literal) => {
        Asset { name: $name, kind: $kind, bytes: include_bytes!(concat!("page/", $name)) }
    };
}

static INDEX: Asset = asset!("index.html", "text/html; charset=utf-8");

static ASSETS: &[Asset] = &[
    asset!("style.css", "text/css; charset=utf-8"),
    asset!("app.js", "text/javascript; charset=utf-8"),
    asset!("canvas.js", "text/javascript; charset=utf-8"),
    asset!("stream.js", "text/javascript; charset=utf-8"),
    asset!("settings.js", "text/javascript; charset=utf-8"),
    asset!("icon.svg", "image/svg+xml"),
];

/// What the page may do: load its own files and speak to this server. No inline script or style, no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Changes with every build that has other files, so that a browser never mixes two.
static TAG: LazyLock<String> = LazyLock::new(|| {
    let bytes = ASSETS.iter().chain([&INDEX]).flat_map(|asset| asset.bytes);
    // FNV-1a
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    format!("\"{hash:016x}\"")
});

/// All bytes of the page.
pub fn page_weight() -> usize {
    ASSETS.iter().chain([&INDEX]).map(|asset| asset.bytes.len()).sum()
}

fn respond(asset: &Asset, headers: &HeaderMap) -> Response {
    let tag = &*TAG;
    let fresh = headers.get(header::IF_NONE_MATCH).is_some_and(|given| given.as_bytes() == tag.as_bytes());
    let mut response = match fresh {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => ([(header::CONTENT_TYPE, asset.kind)], asset.bytes).into_response(),
    };
    let to = response.headers_mut();
    to.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    to.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    to.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    to.insert(HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin"));
    if let Ok(tag) = HeaderValue::from_str(tag) {
        to.insert(header::ETAG, tag);
    }
    response
}

/// The page
#[utoipa::path(get, path = "/", tag = "page", responses((status = 200, body = String, content_type = "text/html")))]
pub(crate) async fn index(headers: HeaderMap) -> Response {
    respond(&INDEX, &headers)
}

/// A file of the page
#[utoipa::path(get, path = "/page/{name}", tag = "page", params(("name" = String, Path)),
    responses((status = 200, body = String), (status = 404, body = ErrorBody)))]
pub(crate) async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Result<Response, ApiError> {
    let asset = ASSETS.iter().find(|asset| asset.name == name);
    let asset = asset.ok_or_else(|| ApiError::no_route(&format!("/page/{name}")))?;
    Ok(respond(asset, &headers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_light_and_needs_nothing_else() {
        assert!(page_weight() < 150_000, "{} bytes", page_weight());
        for asset in ASSETS.iter().chain([&INDEX]) {
            let text = std::str::from_utf8(asset.bytes).expect("all files are text");
            let elsewhere = text.replace("http://www.w3.org/", "");
            assert!(!elsewhere.contains("http://") && !elsewhere.contains("https://"), "{} links out", asset.name);
            assert!(!text.contains("style=\"") && !text.contains("onclick="), "{}: the policy forbids it", asset.name);
        }
    }
}
