//! References of images: in three parts, or in one.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Where images are that the policy does not place. There is no public place yet: an administrator loads the images, or
/// names a registry.
pub const DEFAULT_REPOSITORY: &str = "localhost/openfuyao";
/// The version where the policy has none.
pub const DEFAULT_VERSION: &str = "latest";

/// Of an object with `repository`, `image` and `version`.
pub(super) const RULE: &str =
    "(has(self.repository) && self.repository != '') == (has(self.version) && self.version != '')";
pub(super) const MESSAGE: &str = "write repository and version together (image is then a name), or neither (image is then the full reference)";

pub(super) fn repository(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 512,
        "pattern": "^([a-zA-Z0-9]([-a-zA-Z0-9._]*)(:[0-9]{1,5})?(/[a-z0-9][-a-z0-9._]*)*)?$",
    })
}

pub(super) fn name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 512,
        "pattern": "^[a-zA-Z0-9][-a-zA-Z0-9._/:]*(@sha256:[0-9a-f]{64})?$",
    })
}

pub(super) fn version(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "pattern": "^([a-zA-Z0-9_][-a-zA-Z0-9._]{0,127}|sha256:[0-9a-f]{64})?$",
    })
}

/// Puts a reference together. With neither repository nor version, `image` is the whole.
pub fn reference(repository: Option<&str>, image: Option<&str>, version: Option<&str>, name: &str) -> String {
    let given = |part: Option<&str>| part.filter(|part| !part.is_empty()).map(str::to_owned);
    let (repository, version) = (given(repository), given(version));
    if let (None, None, Some(image)) = (&repository, &version, given(image)) {
        return image;
    }
    let repository = repository.unwrap_or_else(|| DEFAULT_REPOSITORY.to_owned());
    let version = version.unwrap_or_else(|| DEFAULT_VERSION.to_owned());
    let image = given(image).unwrap_or_else(|| name.to_owned());
    let separator = if version.starts_with("sha256:") { '@' } else { ':' };
    format!("{}/{image}{separator}{version}", repository.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_named_in_three_parts_or_in_one() {
        let of = |repository, image, version| reference(repository, image, version, "kae-device-plugin");
        assert_eq!(of(None, None, None), "localhost/openfuyao/kae-device-plugin:latest");
        assert_eq!(of(Some("r.example:5000/a"), Some("b"), Some("v1")), "r.example:5000/a/b:v1");
        assert_eq!(of(Some("r.example/a"), None, Some("v1")), "r.example/a/kae-device-plugin:v1");
        assert_eq!(of(Some("r.example"), Some("b"), Some("sha256:00")), "r.example/b@sha256:00");
        assert_eq!(of(None, Some("r.example/b@sha256:00"), None), "r.example/b@sha256:00");
        assert_eq!(of(Some(""), Some("r.example/b:v1"), Some("")), "r.example/b:v1");
    }
}
