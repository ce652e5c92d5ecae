//! Our `.proto` files against the facts in `fields.txt`, in both directions.

use std::collections::BTreeSet;

use prost_reflect::prost_types::FieldOptions;
use prost_reflect::{
    Cardinality, DescriptorPool, EnumDescriptor, FieldDescriptor, FileDescriptor, Kind,
    MessageDescriptor, Syntax,
};
use thalweg_proto::FILE_DESCRIPTOR_SET;

/// Files of others, and two of TensorFlow Serving's that its Python package lacks.
const NOT_TENSORFLOWS: &[&str] = &[
    "google/",
    "grpc/",
    "inference/",
    "tensorflow_serving/config/monitoring_config.proto",
    "tensorflow_serving/servables/",
];

#[test]
fn descriptors_agree_with_the_facts() {
    let facts: BTreeSet<String> = facts(include_str!("fields.txt"));
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
    let mut ours = BTreeSet::new();
    for file in
        pool.files().filter(|file| !NOT_TENSORFLOWS.iter().any(|p| file.name().starts_with(p)))
    {
        describe_file(&file, &mut ours);
    }

    let missing: Vec<_> = facts.difference(&ours).collect();
    let invented: Vec<_> = ours.difference(&facts).collect();
    assert!(missing.is_empty() && invented.is_empty(), "-{missing:#?}\n+{invented:#?}");
    assert!(facts.len() > 2000, "fields.txt is cut short: {} facts", facts.len());
}

/// One string a fact, each with the name of the message or enum it belongs to.
fn facts(text: &str) -> BTreeSet<String> {
    let mut owner = "";
    let mut facts = BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.split_once(' ') {
            Some(("file", _)) => {
                facts.insert(line.to_owned());
            }
            Some(("message" | "enum", name)) => {
                owner = name;
                facts.insert(line.to_owned());
            }
            _ => {
                facts.insert(format!("{owner}: {line}"));
            }
        }
    }
    facts
}

fn describe_file(file: &FileDescriptor, out: &mut BTreeSet<String>) {
    let syntax = match file.syntax() {
        Syntax::Proto2 => "proto2",
        Syntax::Proto3 => "proto3",
    };
    out.insert(format!("file {} {syntax} {}", file.name(), file.package_name()));
    for message in file.messages() {
        describe_message(&message, out);
    }
    for descriptor in file.enums() {
        describe_enum(&descriptor, out);
    }
}

fn describe_message(message: &MessageDescriptor, out: &mut BTreeSet<String>) {
    out.insert(format!("message {}", message.full_name()));
    for field in message.fields() {
        out.insert(format!("{}: {}", message.full_name(), describe_field(&field)));
    }
    for child in message.child_messages().filter(|child| !child.is_map_entry()) {
        describe_message(&child, out);
    }
    for child in message.child_enums() {
        describe_enum(&child, out);
    }
}

fn describe_enum(descriptor: &EnumDescriptor, out: &mut BTreeSet<String>) {
    out.insert(format!("enum {}", descriptor.full_name()));
    for value in descriptor.values() {
        out.insert(format!("{}: {} {}", descriptor.full_name(), value.number(), value.name()));
    }
}

fn describe_field(field: &FieldDescriptor) -> String {
    let (label, kind) = match (field.cardinality(), field.kind()) {
        (Cardinality::Repeated, Kind::Message(entry)) if field.is_map() => {
            let key = type_name(&entry.map_entry_key_field().kind());
            ("map", format!("{key},{}", type_name(&entry.map_entry_value_field().kind())))
        }
        (Cardinality::Repeated, kind) => ("repeated", type_name(&kind)),
        (Cardinality::Required, kind) => ("required", type_name(&kind)),
        (Cardinality::Optional, kind) => ("optional", type_name(&kind)),
    };
    let mut line = format!("{} {label} {kind} {}", field.number(), field.name());
    let proto = field.field_descriptor_proto();
    if proto.proto3_optional() {
        line += " explicit";
    } else if let Some(oneof) = field.containing_oneof() {
        line += &format!(" oneof={}", oneof.name());
    }
    if field.is_packed() {
        line += " packed";
    }
    if let Some(default) = &proto.default_value {
        line += &format!(" default={default}");
    }
    if proto.options.as_ref().is_some_and(FieldOptions::deprecated) {
        line += " deprecated";
    }
    line
}

fn type_name(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(descriptor) => descriptor.full_name().to_owned(),
        scalar => format!("{scalar:?}").to_ascii_lowercase(),
    }
}
