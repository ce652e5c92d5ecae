//! Bytes and text there and back, on a graph that TensorFlow wrote and on hostile input.

use bytes::Bytes;
use prost::Message;
use thalweg_proto::attr_value::Value;
use thalweg_proto::text::{self, TextError};
use thalweg_proto::{
    AttrValue, DataType, GraphDef, MetaGraphDef, NameAttrList, NodeDef, SavedModel, TensorProto,
};

const GRAPH: &str = "tensorflow.GraphDef";
const ATTR: &str = "tensorflow.AttrValue";

/// A graph with functions, a while loop, devices and unprintable bytes, as
/// TensorFlow 2.21 writes it with `tf.io.write_graph` and with `SerializeToString`.
const GRAPH_TEXT: &str = include_str!("data/graph.pbtxt");
const GRAPH_BYTES: &[u8] = include_bytes!("data/graph.pb");

#[test]
fn bytes_survive() {
    let graph = GraphDef::decode(GRAPH_BYTES).unwrap();
    let encoded = graph.encode_to_vec();
    assert_eq!(GraphDef::decode(encoded.as_slice()).unwrap().encode_to_vec(), encoded);
    // TensorFlow spells out the key of the three `arg_attr { key: 0 }`, prost leaves it out.
    assert_eq!(encoded.len() + 3 * 2, GRAPH_BYTES.len());
}

#[test]
fn decoding_shares_the_buffer() {
    let content = vec![7; 1000];
    let proto = TensorProto { tensor_content: content.into(), ..Default::default() };
    let encoded = Bytes::from(proto.encode_to_vec());
    let decoded = TensorProto::decode(encoded.clone()).unwrap();
    assert!(encoded.as_ptr_range().contains(&decoded.tensor_content.as_ptr()));
}

#[test]
fn text_is_what_tensorflow_writes() {
    let from_bytes = GraphDef::decode(GRAPH_BYTES).unwrap();
    let from_text: GraphDef = text::decode(GRAPH, GRAPH_TEXT).unwrap();
    // NaN is not equal to itself, its bytes are.
    assert_eq!(from_text.encode_to_vec(), from_bytes.encode_to_vec());
    assert_eq!(text::encode(GRAPH, &from_bytes), GRAPH_TEXT);
}

#[test]
fn every_byte_survives_text() {
    let all = Bytes::from_iter(0..=255);
    let attr = AttrValue { value: Some(Value::S(all)) };
    assert_eq!(text::decode::<AttrValue>(ATTR, &text::encode(ATTR, &attr)), Ok(attr));
}

#[test]
fn an_enum_value_without_a_name_survives_text() {
    let attr = AttrValue { value: Some(Value::Type(77)) };
    assert_eq!(text::encode(ATTR, &attr), "type: 77\n");
    assert_eq!(text::decode::<AttrValue>(ATTR, "type: 77"), Ok(attr));
    assert_eq!(DataType::try_from(133), Ok(DataType::DtFloat4E2m1fnRef));
}

#[test]
fn all_of_the_language_is_read() {
    for (name, text, expected) in [
        (ATTR, "s: 'a' \"b\" # comment {{{\n '\\'c'", "s: \"ab\\'c\"\n"),
        (
            ATTR,
            r#"s: "\x41\x4a\101\7\u00e9\U0001F600\?""#,
            "s: \"AJA\\007\\303\\251\\360\\237\\230\\200?\"\n",
        ),
        (ATTR, "i: -0x10", "i: -16\n"),
        (ATTR, "i: 017", "i: 15\n"),
        (ATTR, "i: -9223372036854775808", "i: -9223372036854775808\n"),
        (ATTR, "f: 0.10000000149011612", "f: 0.1\n"),
        (ATTR, "f: 1.5e3f", "f: 1500.0\n"),
        (ATTR, "f: - .5", "f: -0.5\n"),
        (ATTR, "f: -Infinity", "f: -inf\n"),
        (ATTR, "b: True;", "b: true\n"),
        (ATTR, "list < i: [1, 2] i: 3 >", "list {\n  i: 1\n  i: 2\n  i: 3\n}\n"),
        (
            ATTR,
            "list: { type: [DT_INT4_REF], shape: [{}, <>] }",
            "list {\n  type: DT_INT4_REF\n  shape {\n  }\n  shape {\n  }\n}\n",
        ),
        (ATTR, "list { i: [] }", "list {\n}\n"),
        (
            "tensorflow.NodeDef",
            "attr: [{ key: 'b' }, { value { i: 1 } key: 'a' }]",
            "attr {\n  key: \"a\"\n  value {\n    i: 1\n  }\n}\nattr {\n  key: \"b\"\n  value {\n  }\n}\n",
        ),
        (
            "google.protobuf.Any",
            "[type.googleapis.com/tensorflow.AttrValue] { i: 3 }",
            "type_url: \"type.googleapis.com/tensorflow.AttrValue\"\nvalue: \"\\030\\003\"\n",
        ),
    ] {
        assert_eq!(rewrite(name, text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn errors_say_where_and_what() {
    for (text, expected) in [
        ("i: 1\n  nonsense: 2", "line 2, column 3: tensorflow.AttrValue has no field 'nonsense'"),
        ("list { i: 1", "line 1, column 12: expected a field name or '}', found the end"),
        ("i 1", "line 1, column 3: expected ':', found '1'"),
        (
            "i: 9223372036854775808",
            "line 1, column 4: '9223372036854775808' is not a number that fits i64",
        ),
        ("i: 1abc", "line 1, column 4: '1abc' is not a number that fits i64"),
        ("i: 1 i: 2", "line 1, column 6: 'i' is set twice"),
        ("i: 1 b: true", "line 1, column 6: 'b' excludes 'i', set before"),
        ("type: DT_NONE", "line 1, column 7: tensorflow.DataType has no value 'DT_NONE'"),
        ("s: \"é\\é\"", "line 1, column 6: this escape has no meaning"),
        ("s: \"\\400\"", "line 1, column 5: this escape has no meaning"),
        ("s: \"\\", "line 1, column 4: this string does not end on its line"),
        ("s: \"a\nb\"", "line 1, column 4: this string does not end on its line"),
        ("s: \"\\u12é\"", "line 1, column 5: this escape has no meaning"),
        ("s: \"\\7é\\xé\"", "line 1, column 8: this escape has no meaning"),
        ("placeholder: '\\xff'", "line 1, column 14: the string is not UTF-8"),
        ("é", "line 1, column 1: 'é' has no place here"),
        ("}", "line 1, column 1: expected a field name, found '}'"),
        ("b: yes", "line 1, column 4: expected true or false, found 'yes'"),
        ("f: 1.2.3", "line 1, column 4: expected a number, found '1.2.3'"),
        ("[a/b] {}", "line 1, column 1: only google.protobuf.Any takes a type in brackets"),
        ("list { i: [1 2] }", "line 1, column 14: expected ',' or ']', found '2'"),
    ] {
        let error = text::decode::<AttrValue>(ATTR, text).unwrap_err();
        assert_eq!(error.to_string(), expected, "{text}");
    }
    let error = text::decode::<AttrValue>("tensorflow.Nothing", "").unwrap_err();
    assert_eq!(error.message, "there is no message named 'tensorflow.Nothing'");
}

#[test]
fn deep_nesting_is_an_error_and_not_a_stack_overflow() {
    let text = "func { attr { value { ".repeat(100_000);
    let error = text::decode::<AttrValue>(ATTR, &text).unwrap_err();
    assert_eq!(error.message, "messages nest deeper than 100 levels");
    let text = format!("dtype: DT_VARIANT {}", "variant_val { tensors { ".repeat(100_000));
    let error = text::decode::<TensorProto>("tensorflow.TensorProto", &text).unwrap_err();
    assert_eq!(error.message, "messages nest deeper than 100 levels");

    let braces = "{".repeat(100_000);
    assert!(text::decode::<AttrValue>(ATTR, &braces).is_err());
    assert!(text::decode::<AttrValue>(ATTR, &format!("func {braces}")).is_err());
    let any = "[type.googleapis.com/google.protobuf.Any] { ".repeat(100_000);
    let error = text::decode::<AttrValue>("google.protobuf.Any", &any).unwrap_err();
    assert_eq!(error.message, "messages nest deeper than 100 levels");
}

/// As deep as bytes can nest, text can be written: `encode` must never meet a message that its own
/// decoder refuses.
#[test]
fn whatever_decodes_can_be_written() {
    let mut attr = AttrValue::default();
    let mut deepest = 0;
    for depth in 1..200 {
        let func = NameAttrList { attr: [(String::new(), attr)].into(), ..Default::default() };
        attr = AttrValue { value: Some(Value::Func(func)) };
        let Ok(decoded) = AttrValue::decode(attr.encode_to_vec().as_slice()) else { break };
        assert_eq!(text::encode(ATTR, &decoded).matches("func").count(), depth);
        deepest = depth;
    }
    assert!((20..100).contains(&deepest), "{deepest}");
}

#[test]
fn no_prefix_of_a_text_panics() {
    // A slice of it: every prefix of the whole takes quadratic time.
    let start = GRAPH_TEXT.find("bytes").unwrap();
    let sample = &GRAPH_TEXT[start - 20..start + 1500];
    for end in 0..sample.len() {
        let _ = text::decode::<GraphDef>(GRAPH, &sample[..end]);
        let _ = text::decode::<NodeDef>("tensorflow.NodeDef", &sample[end..]);
    }
}

#[test]
fn other_messages_are_here() {
    let saved = SavedModel { meta_graphs: vec![MetaGraphDef::default()], ..Default::default() };
    let text = text::encode("tensorflow.SavedModel", &saved);
    assert_eq!(text, "meta_graphs {\n}\n");
    assert_eq!(text::decode::<SavedModel>("tensorflow.SavedModel", &text), Ok(saved));
}

fn rewrite(name: &str, text: &str) -> Result<String, TextError> {
    Ok(match name {
        ATTR => text::encode(name, &text::decode::<AttrValue>(name, text)?),
        "tensorflow.NodeDef" => text::encode(name, &text::decode::<NodeDef>(name, text)?),
        _ => text::encode(name, &text::decode::<thalweg_proto::google::protobuf::Any>(name, text)?),
    })
}
