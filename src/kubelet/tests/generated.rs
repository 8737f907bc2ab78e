//! The generated code against `proto/`, and `proto/` against Kubernetes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorProto, FileDescriptorSet};

use super::program::Program;

/// Each API's file below `proto/`, its package, and its file below `gen/`.
const APIS: [(&str, &str, &str); 3] = [
    ("deviceplugin/v1beta1.proto", "v1beta1", "deviceplugin_v1beta1.rs"),
    ("pluginregistration/v1.proto", "pluginregistration", "pluginregistration_v1.rs"),
    ("podresources/v1.proto", "v1", "podresources_v1.rs"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn ours(proto: &str) -> FileDescriptorSet {
    protox::compile([proto], [root().join("proto")]).unwrap()
}

fn generate(proto: &str, package: &str) -> String {
    let out = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .build_transport(false)
        .emit_rerun_if_changed(false)
        .btree_map(".")
        .out_dir(out.path())
        .compile_fds(ours(proto))
        .unwrap();
    std::fs::read_to_string(out.path().join(format!("{package}.rs"))).unwrap()
}

#[test]
fn generated_code_is_what_the_proto_files_say() {
    let bless = std::env::var_os("PCIDP_BLESS").is_some();
    for (proto, package, file) in APIS {
        let path: PathBuf = root().join("src/kubelet/gen").join(file);
        let expected = generate(proto, package);
        if bless {
            std::fs::write(&path, &expected).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == expected,
            "src/kubelet/gen/{file} is not what proto/{proto} says; PCIDP_BLESS=1 cargo test writes it again"
        );
    }
}

/// What the Go module says, or nothing, loudly, where it cannot be had.
fn theirs() -> Option<FileDescriptorSet> {
    let output = Program::build("descriptors")?.command().output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(FileDescriptorSet::decode(output.stdout.as_slice()).unwrap())
}

/// Everything that is visible on the wire, one fact a line.
fn facts(file: &FileDescriptorProto) -> BTreeSet<String> {
    let mut facts = BTreeSet::new();
    facts.insert(format!("syntax {}", file.syntax()));
    assert!(file.enum_type.is_empty() && file.extension.is_empty());
    for message in &file.message_type {
        message_facts(&format!(".{}", file.package()), message, &mut facts);
    }
    for service in &file.service {
        for method in &service.method {
            facts.insert(format!(
                "method /{}.{}/{} ({}{}) -> {}{}",
                file.package(),
                service.name(),
                method.name(),
                if method.client_streaming() { "stream " } else { "" },
                method.input_type(),
                if method.server_streaming() { "stream " } else { "" },
                method.output_type(),
            ));
        }
    }
    facts
}

fn message_facts(scope: &str, message: &DescriptorProto, facts: &mut BTreeSet<String>) {
    let name = format!("{scope}.{}", message.name());
    let map = message.options.as_ref().is_some_and(prost_types::MessageOptions::map_entry);
    facts.insert(format!("message {name}{}", if map { " (map entry)" } else { "" }));
    for field in &message.field {
        let label = Label::try_from(field.label() as i32).unwrap().as_str_name();
        let kind = Type::try_from(field.r#type() as i32).unwrap().as_str_name();
        facts.insert(format!(
            "field {name}.{} = {} {label} {kind} {} oneof {:?}",
            field.name(),
            field.number(),
            field.type_name(),
            field.oneof_index,
        ));
    }
    for nested in &message.nested_type {
        message_facts(&name, nested, facts);
    }
}

#[test]
fn proto_files_say_what_the_kubelet_says() {
    let Some(theirs) = theirs() else { return };
    assert_eq!(theirs.file.len(), APIS.len());
    for ((proto, package, _), theirs) in APIS.into_iter().zip(&theirs.file) {
        assert_eq!(theirs.package(), package);
        let ours = ours(proto);
        let [ours] = ours.file.as_slice() else { panic!("{proto} imports something") };
        let (ours, theirs) = (facts(ours), facts(theirs));
        let missing: Vec<_> = theirs.difference(&ours).collect();
        let invented: Vec<_> = ours.difference(&theirs).collect();
        assert!(
            missing.is_empty() && invented.is_empty(),
            "proto/{proto}: missing {missing:#?}, not known to the kubelet {invented:#?}"
        );
    }
}
